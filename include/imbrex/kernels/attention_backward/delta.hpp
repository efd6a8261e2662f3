// delta = rowsum(dO * O) in a launch of its own, for backward passes that attend elsewhere or in parts: ring attention and
// Ulysses attention compute it once, on the rank that has O, and send one number per row instead of O.
#pragma once

#include <imbrex/core/functional.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/merge_lse.hpp>

namespace imbrex {

// Of output rows (merge_lse/kernel.hpp). O is fp32 or has the type of dO.
template <class Out, class In>
struct attention_delta_step {
    attention_view<const Out> out;
    attention_view<const In> d_out;
    attention_row_view delta;

    template <class Rows>
    struct pieces {
        typename Rows::template tile<Out> out;
        typename Rows::template tile<In> d_out;
    };
    template <class Rows>
    struct numbers {
        typename Rows::values delta;
    };
    template <class Rows>
    IMBREX_KERNEL void load(const Rows& rows, pieces<Rows>& held, int column) const {
        rows.load(held.out, out, column);
        rows.load(held.d_out, d_out, column);
    }
    template <class Rows>
    IMBREX_KERNEL void begin(const Rows& rows, numbers<Rows>& all) const {
        fill(rows.self, all.delta, 0.0f);
    }
    template <class Rows>
    IMBREX_KERNEL void store(const Rows& rows, numbers<Rows>& all, const pieces<Rows>& held, int) const {
        typename Rows::template tile<float> products;
        transform(rows.self, products, functional::multiply{}, held.out, held.d_out);
        fold_rows(rows.self, all.delta, products, functional::add{});
    }
    template <class Rows>
    IMBREX_KERNEL void end(const Rows& rows, numbers<Rows>& all) const {
        finish_rows(rows.self, all.delta, functional::add{});
        rows.store(delta, all.delta);
    }
};

inline namespace IMBREX_WORLDS {

// delta: contiguous [batch, head, row].
template <class Out, class In>
void launch_attention_delta(world where, const attention_view<const Out>& out, const attention_view<const In>& d_out,
                            float* delta, void* stream) {
    using namespace detail;
    require_output_rows(out, "out");
    const output_rows all = output_rows_of(out);
    if (no_rows(all)) return;
    const attention_delta_step<Out, In> step{out, d_out, batch_head_rows(delta, all.heads, all.seqlen_q)};
    launch_on_output_rows(where, step, all, output_in_chunks(out) && output_in_chunks(d_out), stream);
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
