// Gradient of attention sinks: dSink_h = -sum over all queries of exp(sink_h - LSE) * delta, since a sink is a key with
// probability exp(sink_h - LSE) and no value. A block per head sums in a fixed order. A query that sees no key has
// delta = 0 and adds nothing.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

namespace imbrex {

template <row_alignment Known>
struct attention_backward_sinks {
    static constexpr int warps = 8;
    static constexpr bool uses_pdl = true;
    static constexpr int columns = 256;

    struct arguments {
        const float* sinks;
        float* d_sinks;
        attention_row_view lse2;
        attention_row_view delta;
        int batches;
        int queries;
        bool adds;  // to d_sinks
    };
    struct shared_memory {
        shared_vector<float, warps> sums;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const int head = block.index().x;
        block.each_warp([&](warp& self) {
            put(self, shared.sums, self.index(), share_of(self, head, args));
            barriers::template of<all_warps>().sync(self, warps);
            if (self.index() != 0) return;
            float* const to = args.d_sinks + head;
            float sum = args.adds ? get(self, to) : 0.0f;
            for (int i = 0; i < warps; ++i) sum -= get(self, shared.sums, i);
            put(self, to, sum);
        });
    }

  private:
    using row = vector_row_tile<float, 1, columns>;
    struct all_warps {};
    using barriers = named_barriers<all_warps>;

    // Every eighth piece of the queries.
    IMBREX_KERNEL static float share_of(warp& self, int head, const arguments& args) {
        const float sink = read_element(args.sinks, head) * log2_of_e;
        const int pieces = (args.queries + columns - 1) / columns;
        vector_row_values<row> sum;
        fill(self, sum, 0.0f);
        for (int i = self.index(); i < args.batches * pieces; i += warps) {
            const int batch = i / pieces, first = i % pieces * columns;
            row lse2, delta;
            load_rows_from<Known>(
                self, lse2, [&](int) { return args.lse2.at(batch, head, first); }, args.queries - first);
            load_rows_from<Known>(
                self, delta, [&](int) { return args.delta.at(batch, head, first); }, args.queries - first);
            transform(
                self, delta,
                [&](float total, float delta) { return delta == 0 ? 0.0f : hw::exp2(sink - total) * delta; }, lse2,
                delta);
            fold_rows(self, sum, delta, functional::add{});
        }
        finish_rows(self, sum, functional::add{});
        return row_value(self, sum);
    }
};

}  // namespace imbrex
