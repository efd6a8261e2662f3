// Simulated times of each schedule on a cluster (comm/cost_model.hpp), for bench_scaling.
#pragma once

#include <imbrex/comm/cost_model.hpp>
#include <imbrex/comm/schedule.hpp>

#include <string>
#include <utility>
#include <vector>

namespace bench {

struct prediction {
    std::string schedule;
    double seconds = 0;
    double efficiency = 0;
    // Fractions of the time, averaged over ranks.
    double hidden = 0;
    double exposed = 0;
    double idle = 0;
    int q_chunks = 1;
};

template <class Schedule>
prediction predicted(std::string name, const Schedule& schedule, const imbrex::cluster_machine& machine) {
    const imbrex::timeline line = simulate(schedule, machine);
    prediction made{std::move(name), line.time(), line.efficiency()};
    const double all = line.time() * line.ranks;
    if (all == 0) return made;  // no tokens
    for (const imbrex::time_breakdown& shares : time_breakdown_of(line)) {
        made.hidden += shares.hidden() / all;
        made.exposed += shares.exposed / all;
        made.idle += shares.idle / all;
    }
    return made;
}

// The fastest mesh with zigzag placement; the ring (q_chunks = 1) is passed in. The search is bounded by the
// byte-optimal q_chunks.
inline prediction best_mesh(imbrex::ring_schedule zigzag, const prediction& ring,
                            const imbrex::cluster_machine& machine) {
    prediction best = ring;
    best.schedule = "best mesh";
    const int most = 4 * best_q_chunks(zigzag.ranks, zigzag.sizes);
    for (int chunks = 2; chunks <= most && chunks <= zigzag.ranks; ++chunks) {
        if (zigzag.ranks % chunks != 0) continue;
        zigzag.q_chunks = chunks;
        prediction made = predicted("best mesh", zigzag, machine);
        made.q_chunks = chunks;
        // More chunks need more memory, so they must be faster to win.
        if (made.seconds < 0.9999 * best.seconds) best = made;
    }
    return best;
}

// All schedules that allow this number of ranks, causal.
inline std::vector<prediction> predictions_of(int tokens, int ranks, const imbrex::attention_sizes& sizes,
                                              const imbrex::cluster_machine& machine) {
    const auto with = [&](imbrex::token_placement placement) {
        return imbrex::ring_schedule{.tokens = tokens, .ranks = ranks, .placement = placement, .sizes = sizes};
    };
    const imbrex::ring_schedule zigzag = with(imbrex::token_placement::zigzag);
    std::vector<prediction> made;
    made.push_back(predicted("ring", with(imbrex::token_placement::contiguous), machine));
    made.push_back(predicted("zigzag", zigzag, machine));
    made.push_back(predicted("striped", with(imbrex::token_placement::striped), machine));
    made.push_back(best_mesh(zigzag, made[1], machine));
    if (ranks <= sizes.kv_heads) {
        const imbrex::ulysses_schedule heads{.tokens = tokens, .ranks = ranks, .sizes = sizes};
        made.push_back(predicted("Ulysses", heads, machine));
    }
    return made;
}

}  // namespace bench
