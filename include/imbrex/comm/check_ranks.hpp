// The checker for kernels that ranks launch between transfers: all ranks run in this program, on the loopback transport
// in the checked host world.
//
//     const auto found = check_ranks(4, [&](loopback& comm) { attention::launch(comm, plans[comm.rank()], ...); });
//
// The launches of a rank form one stream, as in host::check_launches. The seed also decides which transfers arrive
// early and which late. A rank that uses a buffer of a transfer before it waits for the transfer gets NaN, or a
// communication_error that begins with "hazard". Schedules are not shrunk.
#pragma once

#include <imbrex/comm/loopback.hpp>
#include <imbrex/hw/host/launch.hpp>

#include <optional>

namespace imbrex {

// Runs work(comm) on every rank under the seeds of `options`. Returns the first hazard of a rank, or none.
template <class Work>
std::optional<hazard> check_ranks(int ranks, const Work& work, const host::check_options& options = {}) {
    for (int i = 0; i < options.schedules; ++i) {
        host::check_options one = options;
        one.first_seed += static_cast<std::uint64_t>(i);
        one.schedules = 1;
        one.shrink_replays = 0;  // a replay would need the other ranks
        loopback_group group(world::host_checked, ranks, {.seed = one.first_seed});
        try {
            run_ranks(group, [&](loopback& comm) {
                const auto launches = [&] {
                    work(comm);
                    comm.synchronise();
                };
                // An exception ends the other ranks, too.
                if (const auto found = host::check_launches(launches, one)) throw hazard_error(*found);
            });
        } catch (const hazard_error& caught) {
            return caught.reported_hazard();
        }
    }
    return std::nullopt;
}

}  // namespace imbrex
