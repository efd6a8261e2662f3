// The row-wise kernel between the steps of ring attention backward, on the engine of merge_lse: sums of fp32 gradients.
#pragma once

#include <imbrex/core/functional.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/merge_lse.hpp>

namespace imbrex {

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

// Contiguous tensors [row, head, head_dim].
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
