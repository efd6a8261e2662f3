// Postprocess of the backward pass: dQ, multiplied by the scale, in the type of the inputs or added to fp32 rows. A
// warpgroup takes a block of queries. By TMA it stores whole blocks; otherwise it writes from registers, with any
// strides. It overlaps its neighbours in the stream by PDL.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention_backward/gradient_rows.hpp>
#include <imbrex/kernels/attention_backward/query_block.hpp>
#include <imbrex/kernels/attention_backward/workspace.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/fragment_buffer.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <type_traits>

namespace imbrex {

enum class attention_d_q_store { by_tma, from_registers };

template <class Gradient, class Workspace, attention_d_q_store Store>
struct attention_backward_postprocess {
    static constexpr bool can_use_tma = Store == attention_d_q_store::by_tma;
    static constexpr gpu_architecture architecture = can_use_tma ? gpu_architecture::sm_90a : gpu_architecture::sm_80;
    static constexpr int warps = 4;
    static constexpr bool uses_pdl = true;
    static constexpr int block_m = Workspace::block_m;
    using d_q_tile = shared_tile<Gradient, block_m, Workspace::head_dim_qk>;
    using d_q_part = typename Workspace::d_q_part;

    struct nothing {};
    struct arguments {
        std::conditional_t<can_use_tma, tma_tensor<d_q_tile, 4>, nothing> d_q;
        attention_view<Gradient> d_q_view;
        Workspace from;
        attention_seqlens lengths;
        int batches;
        float scale;
    };
    struct tile_in_shared_memory {
        d_q_tile d_q;
    };
    using shared_memory = std::conditional_t<can_use_tma, tile_in_shared_memory, nothing>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const attention_query_block at =
            attention_query_block_at(args.from, args.lengths, args.batches, block.index().x);
        if (at.valid_rows <= 0) return;
        block.each_warpgroup([&](warpgroup& self) {
            if constexpr (can_use_tma) {
                // In a varlen batch TMA would overwrite the next sequence.
                if (!args.lengths.varlen() || at.valid_rows >= block_m) {
                    write_by_tma(self, args, shared, at);
                    return;
                }
            }
            write_from_registers(self, args, at);
        });
    }

  private:
    using tile = warpgroup_tile<float, d_q_part::rows, d_q_part::columns>;

    IMBREX_KERNEL static tile scaled_part(warpgroup& self, const arguments& args, const attention_query_block& at,
                                          int part) {
        tile d_q;
        load(self, d_q, args.from.part_of_d_q(at.index, part));
        map(self, d_q, [&](float x) { return x * args.scale; });
        return d_q;
    }

    IMBREX_KERNEL static void write_by_tma(warpgroup& self, const arguments& args, shared_memory& shared,
                                           const attention_query_block& at) {
        for (int part = 0; part < Workspace::d_q_parts; ++part) {
            store(self,
                  shared.d_q.template subtile<d_q_part::rows, d_q_part::columns>(Workspace::part_row(part),
                                                                                 Workspace::part_column(part)),
                  convert_to<Gradient>(self, scaled_part(self, args, at, part)));
        }
        fence_async(self);
        self.sync();
        store_async(self, args.d_q.at(at.member, at.head, at.row, 0), shared.d_q);
        commit_stores(self);
        wait_stores_read(self);
    }

    IMBREX_KERNEL static void write_from_registers(warpgroup& self, const arguments& args,
                                                   const attention_query_block& at) {
        global_tile<Gradient> to = args.d_q_view.at(at.member, at.head, at.row, 0);
        to.rows = at.valid_rows;
        for (int part = 0; part < Workspace::d_q_parts; ++part) {
            write_gradient_rows(self, to.from(Workspace::part_row(part), Workspace::part_column(part)),
                                scaled_part(self, args, at, part));
        }
    }
};

}  // namespace imbrex
