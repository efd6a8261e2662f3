// A stable counting sort of the choices by expert. In the second kernel of the router each block adds up the counts of the
// blocks before it, so all blocks work at the same time, and then places its own tokens' choices. With few tokens the
// only block of the first kernel sorts them itself.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex {

// The choices of a block's tokens, and how often all tokens chose each expert; from these, the routing.
struct choice_sort {
    static constexpr int most_choices = moe_routing::tokens_per_block * moe_sizes::most_chosen;

    struct expert_counts {
        int before;  // choices in the blocks before this one
        int total;
    };
    struct shared_memory {
        shared_vector<int, most_choices> chosen;
        shared_vector<expert_counts, moe_sizes::most_experts> counts;
        shared_vector<int, moe_sizes::most_experts> first_tile;
        shared_vector<int, most_choices> rows;
    };

    // `chosen` and `counts` have been written; the choices of the block begin with number `first`.
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const moe_routing& routing, shared_memory& shared, int first,
                                  int choices) {
        const moe_sizes& sizes = routing.sizes;
        block.sync();
        fill_indexed(block, shared.first_tile, [&](int expert) {
            int tiles = 0;
            for (int i = 0; i < expert && i < sizes.experts; ++i) {
                const expert_counts other = *shared.counts.at(i);
                tiles += ceil_div(other.total, sizes.tile_rows);
            }
            if (expert < sizes.experts && expert % block.count().x == block.index().x) {
                const expert_counts own = *shared.counts.at(expert);
                describe_tiles(routing, expert, tiles, own.total);
            }
            return tiles;
        });
        block.sync();
        fill_indexed(block, shared.rows, [&](int i) { return i < choices ? place(routing, shared, first, i) : 0; });
    }

  private:
    // The row of choice number i of this block.
    IMBREX_KERNEL static int place(const moe_routing& routing, const shared_memory& shared, int first, int i) {
        const int expert = *shared.chosen.at(i);
        const expert_counts counts = *shared.counts.at(expert);
        int row = *shared.first_tile.at(expert) * routing.sizes.tile_rows + counts.before;
        for (int earlier = 0; earlier < i; ++earlier) row += *shared.chosen.at(earlier) == expert ? 1 : 0;
        write_element(routing.row_of_choice, std::int64_t{first} + i, row);
        write_element(routing.token_of_row, row, (first + i) / routing.sizes.top_k);
        return row;
    }

    // The tiles of an expert, and the rows of its last tile that have no token.
    IMBREX_KERNEL static void describe_tiles(const moe_routing& routing, int expert, int first_tile, int rows) {
        const int tile_rows = routing.sizes.tile_rows, tiles = ceil_div(rows, tile_rows);
        for (int i = 0; i < tiles; ++i) write_element(routing.expert_of_tile, first_tile + i, expert);
        for (int row = rows; row < tiles * tile_rows; ++row) {
            write_element(routing.token_of_row, std::int64_t{first_tile} * tile_rows + row, moe_routing::no_token);
        }
        if (expert == routing.sizes.experts - 1) write_element(routing.tiles, 0, first_tile + tiles);
    }
};

struct sort_choices_kernel {
    static constexpr int warps = 8;
    static constexpr bool uses_pdl = true;

    struct arguments {
        moe_routing routing;
    };
    using shared_memory = choice_sort::shared_memory;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const moe_routing& routing = args.routing;
        const int most = moe_routing::tokens_per_block * routing.sizes.top_k, first = block.index().x * most;
        const int left = routing.sizes.choices() - first, choices = left < most ? left : most;
        pdl_wait(block);
        pdl_launch_dependents(block);
        fill_indexed(block, shared.chosen, [&](int i) {
            return i < choices ? read_element(routing.expert_of_choice, std::int64_t{first} + i) : 0;
        });
        fill_indexed(block, shared.counts,
                     [&](int expert) { return counts_of(routing, expert, static_cast<int>(block.index().x)); });
        choice_sort::run(block, routing, shared, first, choices);
    }

  private:
    IMBREX_KERNEL static choice_sort::expert_counts counts_of(const moe_routing& routing, int expert, int own) {
        choice_sort::expert_counts found{0, 0};
        if (expert >= routing.sizes.experts) return found;
        for (int block = 0; block < routing.blocks(); ++block) {
            if (block == own) found.before = found.total;
            found.total += read_element(routing.block_counts, std::int64_t{block} * routing.sizes.experts + expert);
        }
        return found;
    }
};

}  // namespace imbrex
