// The routing of a mixture-of-experts layer as plain loops compute it, and buffers for one in a world.
#pragma once

#include <imbrex/kernels/moe_router.hpp>

#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace imbrex_test {

struct expected_routing {
    std::vector<int> experts, rows, token_of_row, expert_of_tile;
    std::vector<double> weights;
};

// `experts` and `weights` of the choices are given; their order by expert is not.
inline void sort_expected(expected_routing& all, const imbrex::moe_sizes& sizes) {
    all.rows.assign(all.experts.size(), -1);
    for (int expert = 0; expert < sizes.experts; ++expert) {
        for (int choice = 0; choice < sizes.choices(); ++choice) {
            if (all.experts[choice] != expert) continue;
            if (all.token_of_row.size() % sizes.tile_rows == 0) all.expert_of_tile.push_back(expert);
            all.rows[choice] = static_cast<int>(all.token_of_row.size());
            all.token_of_row.push_back(choice / sizes.top_k);
        }
        while (all.token_of_row.size() % sizes.tile_rows != 0) all.token_of_row.push_back(-1);
    }
}

// A routing in memory of a world, and its arrays after a launch.
struct routing_trial {
    imbrex::moe_sizes sizes;
    buffer<unsigned char> workspace;
    unsigned char* base = nullptr;
    imbrex::moe_routing routing;

    routing_trial(world where, const imbrex::moe_sizes& sizes)
        : sizes(sizes),
          workspace(where, imbrex::moe_routing::workspace_bytes(sizes) + 256, 0xee),
          routing(imbrex::moe_routing::in_workspace(aligned(workspace.upload()), sizes)) {}

    void download() { workspace.download(); }
    template <class T>
    std::vector<T> read(const T* from, int count) {
        const auto* first =
            reinterpret_cast<const T*>(workspace.values.data() + (reinterpret_cast<const unsigned char*>(from) - base));
        return {first, first + count};
    }
    int tiles() { return read(routing.tiles, 1)[0]; }

    // Writes choices directly, without the router.
    void set(const expected_routing& all) {
        const auto write = [&](const auto* to, const auto& values) {
            using element = std::remove_cvref_t<decltype(*to)>;
            auto* first = reinterpret_cast<element*>(workspace.values.data() +
                                                     (reinterpret_cast<const unsigned char*>(to) - base));
            for (std::size_t i = 0; i < values.size(); ++i) first[i] = static_cast<element>(values[i]);
        };
        write(routing.expert_of_choice, all.experts);
        write(routing.weight_of_choice, all.weights);
        write(routing.row_of_choice, all.rows);
        write(routing.token_of_row, all.token_of_row);
        write(routing.expert_of_tile, all.expert_of_tile);
        write(routing.tiles, std::vector<int>{static_cast<int>(all.expert_of_tile.size())});
        workspace.upload();
    }

  private:
    unsigned char* aligned(unsigned char* memory) {
        base = memory;
        return memory + (256 - reinterpret_cast<std::uintptr_t>(memory) % 256) % 256;
    }
};

// Random different experts for each token. `uneven`: most tokens choose the first experts, and the last one never is.
inline expected_routing random_routing(const imbrex::moe_sizes& sizes, unsigned seed, bool uneven) {
    std::mt19937 generator(seed);
    expected_routing all;
    for (int token = 0; token < sizes.tokens; ++token) {
        std::vector<int> order(sizes.experts);
        for (int i = 0; i < sizes.experts; ++i) order[i] = i;
        if (!uneven || generator() % 4 == 0) std::shuffle(order.begin(), order.end() - (uneven ? 1 : 0), generator);
        for (int i = 0; i < sizes.top_k; ++i) {
            all.experts.push_back(order[i]);
            all.weights.push_back((generator() % 1000 + 1) / 1000.0f);
        }
    }
    sort_expected(all, sizes);
    return all;
}

}  // namespace imbrex_test
