// Row-wise kernels between the steps of ring attention backward, on the engine of merge_lse: delta of the own queries, and
// sums of fp32 gradients.
#pragma once

#include <imbrex/core/functional.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/merge_lse.hpp>

namespace imbrex {

// delta = rowsum(dO * O)
template <class In>
struct attention_delta_step {
    attention_view<const float> out;
    attention_view<const In> d_out;
    attention_row_view delta;

    template <class Rows>
    struct pieces {
        typename Rows::template tile<float> out;
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
    IMBREX_KERNEL void store(const Rows& rows, numbers<Rows>& all, pieces<Rows>& held, int) const {
        transform(rows.self, held.out, functional::multiply{}, held.out, held.d_out);
        fold_rows(rows.self, all.delta, held.out, functional::add{});
    }
    template <class Rows>
    IMBREX_KERNEL void end(const Rows& rows, numbers<Rows>& all) const {
        finish_rows(rows.self, all.delta, functional::add{});
        rows.store(delta, all.delta);
    }
};

// sum = sum + more, or 0 without `more`.
struct add_gradients_step {
    attention_view<const float> more;
    attention_view<float> sum;

    template <class Rows>
    struct pieces {
        typename Rows::template tile<float> sum, more;
    };
    template <class Rows>
    struct numbers {
        typename Rows::values zero;
    };
    template <class Rows>
    IMBREX_KERNEL void load(const Rows& rows, pieces<Rows>& held, int column) const {
        if (more.pointer == nullptr) return;
        rows.load(held.sum, attention_view<const float>(sum), column);
        rows.load(held.more, more, column);
    }
    template <class Rows>
    IMBREX_KERNEL void begin(const Rows& rows, numbers<Rows>& all) const {
        fill(rows.self, all.zero, 0.0f);
    }
    template <class Rows>
    IMBREX_KERNEL void store(const Rows& rows, const numbers<Rows>& all, pieces<Rows>& held, int column) const {
        if (more.pointer == nullptr) {
            transform(
                rows.self, held.sum, [](float zero) { return zero; }, all.zero);
        } else {
            transform(rows.self, held.sum, functional::add{}, held.sum, held.more);
        }
        rows.store(sum, held.sum, column);
    }
    template <class Rows>
    IMBREX_KERNEL void end(const Rows&, const numbers<Rows>&) const {}
};

inline namespace IMBREX_WORLDS {

// Contiguous tensors [row, head, head_dim]; delta [head, row].
template <class In>
void launch_attention_delta(world where, const attention_view<const float>& out, const attention_view<const In>& d_out,
                            float* delta, void* stream) {
    using namespace detail;
    const output_rows all = output_rows_of(out);
    if (no_rows(all)) return;
    const attention_delta_step<In> step{out, d_out, batch_head_rows(delta, all.heads, all.seqlen_q)};
    launch_on_output_rows(where, step, all, output_in_chunks(out) && output_in_chunks(d_out), stream);
}

inline void launch_add_gradients(world where, const attention_view<float>& sum, const float* more, void* stream) {
    using namespace detail;
    const output_rows all = output_rows_of(sum);
    if (no_rows(all)) return;
    const attention_view<const float> added{more, sum.extents, sum.strides};
    launch_on_output_rows(where, add_gradients_step{added, sum}, all, output_in_chunks(sum) && output_in_chunks(added),
                          stream);
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
