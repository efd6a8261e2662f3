// The routing of a mixture-of-experts layer: which experts each token chose, and in which order the grouped GEMM
// (kernels/moe_gemm.hpp) processes the choices. The router (kernels/moe_router.hpp) writes it on the device; nothing
// returns to the host, so a launch that reads it only knows the largest possible number of tiles.
//
//     choice  (token, 0 .. top_k - 1)  an expert and its weight
//     row     the choices sorted by expert, and by token for the same expert. The rows of each expert are padded to whole
//             tiles of `tile_rows`, so a tile belongs to one expert
//
//     3 tokens, top_k 2, tile_rows 4      token 0: experts 2, 0    token 1: 0, 3    token 2: 2, 0
//     row             0  1  2  3 | 4  5  6  7 | 8  9 10 11
//     token_of_row    0  1  2  - | 0  2  -  - | 1  -  -  -        -: no token (no_token)
//     expert_of_tile      0      |     2      |     3
//     row_of_choice   token 0: 4, 0    token 1: 1, 8    token 2: 5, 2
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/workspace_layout.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

struct moe_sizes {
    static constexpr int most_experts = 512, most_chosen = 16;

    int tokens = 0;
    int experts = 0;
    int top_k = 0;
    int tile_rows = 128;  // rows of a tile of the grouped GEMM

    IMBREX_FN int choices() const { return tokens * top_k; }
    // The largest possible number of tiles: each of the experts in use has one that is not full.
    IMBREX_FN int max_tiles() const {
        const int used = experts < choices() ? experts : choices();
        return used + (choices() - used) / tile_rows;
    }
    IMBREX_FN int max_rows() const { return max_tiles() * tile_rows; }

    void require_valid() const {
        require(experts >= 1 && experts <= most_experts, "experts: ", experts, "; must be from 1 to ", most_experts);
        const int most = experts < most_chosen ? experts : most_chosen;
        require(top_k >= 1 && top_k <= most, "top_k: ", top_k, "; must be from 1 to ", most, " for ", experts,
                " experts");
        require(tile_rows >= 1 && tile_rows <= 256, "tile_rows: ", tile_rows, "; must be from 1 to 256");
        const std::int64_t rows = std::int64_t{tokens} * top_k + std::int64_t{experts} * tile_rows;
        require(tokens >= 0 && rows <= 2147483647, "tokens: ", tokens, "; with ", top_k, " choices each and ", experts,
                " experts of whole tiles, the rows must be from 0 to 2147483647");
    }
};

// Pointers to device memory, or to host memory in the host world.
struct moe_routing {
    static constexpr int no_token = -1;
    static constexpr int tokens_per_block = 32;  // of the router's kernels

    moe_sizes sizes;
    int* expert_of_choice = nullptr;    // [tokens, top_k], by descending score
    float* weight_of_choice = nullptr;  // [tokens, top_k]
    int* row_of_choice = nullptr;       // [tokens, top_k]
    int* token_of_row = nullptr;        // [max_rows], written for the tiles in use
    int* expert_of_tile = nullptr;      // [max_tiles], written for the tiles in use
    int* tiles = nullptr;               // [1]: the number of tiles in use
    int* block_counts = nullptr;        // [blocks, experts]: choices of each expert in each block of tokens

    IMBREX_FN int blocks() const { return ceil_div(sizes.tokens, tokens_per_block); }

    // Bytes of a workspace that holds a routing of these sizes.
    static std::size_t workspace_bytes(const moe_sizes& sizes) { return divide(sizes, nullptr, nullptr); }

    // The routing in a workspace of at least workspace_bytes(sizes), aligned to 256 bytes.
    static moe_routing in_workspace(void* workspace, const moe_sizes& sizes) {
        moe_routing made;
        divide(sizes, static_cast<char*>(workspace), &made);
        return made;
    }

    void require_given() const {
        if (sizes.tokens == 0) return;
        const auto check = [](const void* pointer, const char* name) {
            require(pointer != nullptr, "routing.", name, ": null; take the routing from moe_routing::in_workspace");
        };
        check(expert_of_choice, "expert_of_choice");
        check(weight_of_choice, "weight_of_choice");
        check(row_of_choice, "row_of_choice");
        check(token_of_row, "token_of_row");
        check(expert_of_tile, "expert_of_tile");
        check(tiles, "tiles");
        check(block_counts, "block_counts");
    }

  private:
    static std::size_t divide(const moe_sizes& sizes, char* memory, moe_routing* made) {
        sizes.require_valid();
        workspace_layout buffers;
        const auto ints = [&](std::int64_t count) {
            return buffers.add(static_cast<std::size_t>(count) * sizeof(int));
        };
        const std::size_t experts = ints(sizes.choices()), weights = ints(sizes.choices()),
                          rows = ints(sizes.choices());
        const std::size_t tokens = ints(sizes.max_rows()), tile_experts = ints(sizes.max_tiles()), tiles = ints(1);
        const std::size_t counts = ints(std::int64_t{ceil_div(sizes.tokens, tokens_per_block)} * sizes.experts);
        if (made == nullptr) return buffers.bytes();
        buffers.require_given(memory, "workspace");
        const auto at = [&](std::size_t offset) { return reinterpret_cast<int*>(memory + offset); };
        *made = {sizes,     at(experts), reinterpret_cast<float*>(memory + weights),
                 at(rows),  at(tokens),  at(tile_experts),
                 at(tiles), at(counts)};
        return buffers.bytes();
    }
};

}  // namespace imbrex
