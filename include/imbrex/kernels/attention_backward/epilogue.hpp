// Epilogue of the Hopper attention backward kernel: dK and dV to global memory, through the shared memory of K and V and
// by TMA. From registers if the gradients are added to fp32 tensors, and a partial tile of a varlen batch, where TMA
// would overwrite the next sequence.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention_backward/gradient_rows.hpp>
#include <imbrex/kernels/attention_backward/work.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

// What a consumer has of the block of keys: 64 keys from first_key on, and a part of the columns.
struct attention_backward_share {
    int first_key;
    int part;
};

template <class Kernel>
class attention_backward_epilogue {
    using arguments = typename Kernel::arguments;
    using element = typename Kernel::element;
    static constexpr int warpgroup_keys = 64;

    struct k_and_v_unused {};
    using barriers = named_barriers<k_and_v_unused>;

  public:
    // `k` and `v` are the parts of K and V that the consumer overwrites, once all consumers are done with them.
    template <class K, class V, class DK, class DV>
    IMBREX_KERNEL static void write(warpgroup& self, const attention_key_block& work, const arguments& args,
                                    const attention_backward_share& share, K&& k, V&& v, const DK& d_k, const DV& d_v) {
        const int batch = work.sequence.batch, member = args.lengths.member(batch);
        const int first = work.keys.first + share.first_key;
        const int row = args.lengths.first_key(batch) + first;
        const bool varlen = args.lengths.varlen();
        const int exist = varlen ? work.sequence.seqlen_k - first : args.d_k_view.rows() - first;
        const int column_k = share.part * DK::columns, column_v = share.part * DV::columns;
        const auto write_rows = [&] {
            auto to_k = args.d_k_view.at(member, work.kv_head, row, 0);
            auto to_v = args.d_v_view.at(member, work.kv_head, row, 0);
            to_k.rows = to_v.rows = exist;
            write_gradient_rows(self, to_k.from(0, column_k), d_k);
            write_gradient_rows(self, to_v.from(0, column_v), d_v);
        };
        if constexpr (Kernel::accumulates) {
            if (exist > 0) write_rows();
        } else {
            barriers::template of<k_and_v_unused>().sync(self, Kernel::consumer_warps);
            if (exist <= 0) return;
            if (varlen && exist < warpgroup_keys) {
                write_rows();
                return;
            }
            store(self, v.template subtile<DV::rows, DV::columns>(0), convert_to<element>(self, d_v));
            store(self, k.template subtile<DK::rows, DK::columns>(0), convert_to<element>(self, d_k));
            fence_async(self);
            self.sync();
            store_async(self, args.d_v.at(member, work.kv_head, row, column_v).out_of_bounds_fill(), v);
            store_async(self, args.d_k.at(member, work.kv_head, row, column_k).out_of_bounds_fill(), k);
            commit_stores(self);
            wait_stores_read(self);
        }
    }
};

}  // namespace imbrex
