// LSE merge of attention results over different keys (split-KV, ring attention, cascade), after the attention kernels:
//
//     clear_attention_outputs::launch(world::device, result, stream);                    // an empty result
//     merge_lse<bf16>::launch(world::device, {.first = a, .second = b, .out = out}, stream);
//     downconvert_output<bf16>::launch(world::device, {.o_accum = o, .out = out}, stream);  // fp32 to bf16 or fp16
//
// An operand is either normalised (O in fp32 with its base-2 LSE: `o_accum`, `lse2`) or a split-KV partial
// (unnormalised O in fp32 with the row maximum and row sum: `o_accum`, `row_max`, `row_sum`), as attention writes it
// (attention/output.hpp). The merged result is
//
//     a partial       O in fp32, row_max, row_sum             to be merged again
//     or finished     O in fp32, lse2                         normalised; attention sinks may be added
//                     O in bf16 or fp16, lse2 if wanted
//
// Without a second operand the first one is finished alone. Rows that saw no key have an LSE or row maximum of
// -infinity, as after clearing: their weight is zero and their O may be anything. If both are empty, O is 0. Clearing a
// result without columns clears only its row values.
//
// The same operands in the same order give the same bits, on every rank, and whether the result is finished at once or
// later. In the other order the last bits may differ.
//
// Fast for a multiple of 8 columns in rows aligned to 16 bytes; all other strides and sizes work too. The output may be
// one of the operands with the same strides; otherwise it must not overlap them. Nothing is allocated and the host does
// not wait. Invalid arguments throw imbrex::error before launch.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/merge_lse/kernel.hpp>
#include <imbrex/kernels/merge_lse/problem.hpp>

#include <optional>

namespace imbrex {

namespace detail {

inline namespace IMBREX_WORLDS {

// Picks the kernel by the number of columns. `vectorised`: all accesses can be 16 bytes wide.
template <class Step>
void launch_on_output_rows(world where, const Step& step, const output_rows& all, bool vectorised, void* stream) {
    const auto launch_kernel = [&]<int Rows, int Columns, row_alignment Known>() {
        using kernel = output_rows_kernel<Step, Rows, Columns, Known>;
        const typename kernel::arguments args{step, all};
        imbrex::launch<kernel>(where, kernel::grid_of(args), args, stream);
    };
    if (!vectorised) {
        launch_kernel.template operator()<1, 256, row_alignment::unaligned>();
    } else if (all.columns <= 64) {
        launch_kernel.template operator()<4, 64, row_alignment::aligned>();
    } else if (all.columns <= 128) {
        launch_kernel.template operator()<2, 128, row_alignment::aligned>();
    } else {
        launch_kernel.template operator()<1, 256, row_alignment::aligned>();
    }
}

}  // namespace IMBREX_WORLDS

}  // namespace detail

inline namespace IMBREX_WORLDS {

class clear_attention_outputs {
  public:
    using problem = attention_aux_outputs;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& result, const host::check_options& options = {},
                                       const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, result, more...); }, options);
    }

    static void launch(world where, const problem& result, void* stream = nullptr) {
        using namespace detail;
        require_output_rows(result.o_accum, "o_accum");
        const output_rows all = output_rows_of(result.o_accum);
        if (no_rows(all)) return;
        require_row_values(result, "", all);
        require_apart(result.o_accum);
        launch_on_output_rows(where, step_of(result), all, output_in_chunks(result.o_accum), stream);
    }

    static clear_outputs_step step_of(const attention_aux_outputs& result) {
        const bool divided = result.lse2.pointer != nullptr;
        return {result.o_accum, divided ? result.lse2 : result.row_max, result.row_sum};
    }
};

template <class Out>
class downconvert_output {
  public:
    using problem = downconvert_output_problem<Out>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, void* stream = nullptr) {
        using namespace detail;
        require_output_rows(p.o_accum, "o_accum");
        require_output_rows(p.out, "out");
        require_same_extents(p.out, "out", p.o_accum, "o_accum");
        const output_rows all = output_rows_of(p.out);
        if (no_rows(all)) return;
        require_apart(p.out);
        launch_on_output_rows(where, step_of(p), all, output_in_chunks(p.o_accum) && output_in_chunks(p.out), stream);
    }

    static downconvert_step<Out> step_of(const problem& p) { return {p.o_accum, p.out}; }
};

template <class Out = float>
class merge_lse {
  public:
    using problem = merge_lse_problem<Out>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, void* stream = nullptr) {
        using namespace detail;
        require_merge_lse(p);
        const output_rows all = output_rows_of(p.out);
        if (no_rows(all)) return;
        const bool vectorised = output_in_chunks(p.first.o_accum) && output_in_chunks(p.out) &&
                                (!p.has_second() || output_in_chunks(p.second.o_accum));
        launch_on_output_rows(where, step_of(p), all, vectorised, stream);
    }

    static merge_lse_step<Out> step_of(const problem& p) {
        const auto operand = [](const attention_aux_outputs& one) {
            const bool divided = one.lse2.pointer != nullptr;
            return merge_lse_operand{one.o_accum, divided ? one.lse2 : one.row_max, one.row_sum};
        };
        return {operand(p.first), operand(p.second), p.out,       p.finished() ? p.lse2 : p.row_max,
                p.row_sum,        p.sinks,           p.finished()};
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
