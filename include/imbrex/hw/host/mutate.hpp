// Mutation testing of a kernel, or of the launches of a stream: mutates each synchronisation in turn
// (hw/host/mutation.hpp) and counts the mutations that the checker detects.
//
//     host::mutate<my_kernel>(grid, arguments)                            a kernel alone: it overlaps no other
//     host::mutate_launches([&] { prepare(); multiply(); }, options)      a stream: also its PDL waits and launches
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/hw/host/checked_run.hpp>
#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/hw/host/launch.hpp>
#include <imbrex/hw/host/mutation.hpp>
#include <imbrex/hw/host/options.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace imbrex::host {

// The checker's finding for one mutation.
struct mutation_result {
    mutation made;
    std::optional<hazard> found;
};
struct mutation_score {
    std::vector<mutation_result> results;
    int killed() const {
        int count = 0;
        for (const mutation_result& one : results) count += one.found.has_value() ? 1 : 0;
        return count;
    }
    int total() const { return static_cast<int>(results.size()); }
    std::string text() const {
        std::string out = str_cat(killed(), " / ", total(), " mutations detected\n");
        for (const mutation_result& one : results) {
            out += str_cat("  ", one.found ? name_of(one.found->kind) : "SURVIVED", ": ", one.made.text(), "\n");
        }
        return out;
    }
};

struct mutation_options {
    int schedules = 20;                       // seeds per mutation, at most
    std::vector<synchronisation> kinds = {};  // what to mutate; empty: everything

    bool includes(synchronisation kind) const {
        return kinds.empty() || std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    }
};

#if !IMBREX_DEVICE_WORLD
namespace detail {

// `run(options)` makes one checked run and returns its hazard, if any.
inline mutation_score mutate_runs(const hw::checked_run& run, const mutation_options& given) {
    std::vector<synchronisation_site> sites;
    host_options options;
    options.mode = host_mode::checked;
    options.sites = &sites;
    if (const std::optional<hazard> found = run(options)) throw hazard_error(*found);
    options.sites = nullptr;
    mutation_score score;
    for (const synchronisation_site& site : sites) {
        if (!given.includes(site.kind)) continue;
        for (const mutation_operator how : mutation_operators_of(site.kind)) {
            mutation_result result{{site, how}, std::nullopt};
            options.mutate = result.made;
            for (int seed = 0; seed < given.schedules && !result.found; ++seed) {
                options.seed = static_cast<std::uint64_t>(seed);
                result.found = run(options);
            }
            score.results.push_back(std::move(result));
        }
    }
    return score;
}

}  // namespace detail
#endif

// Mutates each synchronisation of the kernel in turn, and runs each mutation checked until the checker detects it,
// under at most `schedules` seeds. Throws hazard_error if the kernel itself has a hazard under seed 0.
template <class Kernel, class Prepare = no_preparation>
mutation_score mutate([[maybe_unused]] grid_dim grid, [[maybe_unused]] const typename Kernel::arguments& arguments,
                      [[maybe_unused]] int schedules = 20, [[maybe_unused]] const Prepare& prepare = {}) {
#if !IMBREX_DEVICE_WORLD
    const auto run = [&](const host_options& options) {
        prepare();
        return detail::run_checked<Kernel>(grid, arguments, options);
    };
    return detail::mutate_runs(hw::checked_run(run), {.schedules = schedules});
#else
    return {};
#endif
}

// The same for the kernels that `work` launches in the checked host world, as one stream. `work` runs anew for each
// schedule. A synchronisation that several kernels of the stream pass on one line is mutated in all of them.
template <class Work>
mutation_score mutate_launches([[maybe_unused]] const Work& work, [[maybe_unused]] const mutation_options& given = {}) {
#if !IMBREX_DEVICE_WORLD
    const auto run = [&](const host_options& options) -> std::optional<hazard> {
        const hw::launches_in_one_stream stream(options);
        try {
            work();
        } catch (const hazard_error& caught) {
            return caught.reported_hazard();
        }
        return std::nullopt;
    };
    return detail::mutate_runs(hw::checked_run(run), given);
#else
    return {};
#endif
}

}  // namespace imbrex::host
