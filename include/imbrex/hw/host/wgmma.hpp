// wgmma in the host world: operands in shared memory (A may be in registers), the accumulator in registers, which must
// not be accessed until the group of instructions has been waited for.
#pragma once

#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/host/host_gemm.hpp>

namespace imbrex::hw {

// An operand in shared memory as rows of the product's outer dimension.
template <bool OuterIsColumn, class Shared>
auto shared_operand(const Shared& shared) {
    using element = std::remove_const_t<typename Shared::element>;
    const std::ptrdiff_t stride = shared.address(1, 0) - shared.address(0, 0);
    return OuterIsColumn ? operand_view<element>{shared.address(0, 0), 1, stride}
                         : operand_view<element>{shared.address(0, 0), stride, 1};
}

// The hardware steps through a subtile from panel to panel of the swizzle: one that spans panels must begin with one. Its
// rows must begin with a repetition of the swizzle.
template <class Shared>
void check_panels(const context& c, const Shared& shared, source here) {
    if constexpr (requires { shared.first_column; }) {
        constexpr int panel = Shared::layout::panel_columns;
        const int inside = shared.first_column % panel;
        if (shared.first_row % 8 == 0 && (inside == 0 || inside + Shared::columns <= panel)) return;
        c.on->report(hazard_kind::beyond_limits, *c.by->block,
                     str_cat("an operand of mma from row ", shared.first_row, ", column ", shared.first_column,
                             " on; rows must begin at a multiple of 8, columns at a multiple of ", panel,
                             " (the swizzle) unless they end before the next one"),
                     {{c.by->name(), "mma", here.file, here.line}});
    }
}

// Checks that a register tile may be used by an mma, and marks it as in use until the mma's group is waited for.
template <class Fragment>
void lend_to_mma(const context& c, const Fragment& one, bool accumulates, bool reads, source here) {
    fragment_state& state = one.state;
    const hazard_location now{c.by->name(), "mma", here.file, here.line};
    if (reads && !state.written) {
        c.on->report(hazard_kind::uninitialised_read, *c.by->block, "the register tile was never written", {now});
    }
    // mmas in flight may share an accumulator, since they add to it in order. No other sharing with a write is allowed.
    if (accumulates ? state.mma_reads > 0 : state.mma_writes > 0) {
        c.on->report(hazard_kind::accumulator_in_flight, *c.by->block,
                     "the accumulator of an asynchronous mma is an operand of another",
                     {now, {c.by->name(), "mma", state.mma_at.file, state.mma_at.line}});
    }
    state.mma_at = here;
    if (accumulates) {
        state.written = true;
        ++state.mma_writes;
    } else {
        ++state.mma_reads;
    }
    c.by->lent.push_back({c.by->mmas.open_tick(), accumulates ? &state.mma_writes : &state.mma_reads});
}

// accumulator (+)= A B. `a` is M x K, or K x M when TransposeA; `b` is K x N, or N x K when TransposeB.
template <bool TransposeA, bool TransposeB, class C, int M, int N, class A, class B>
void wgmma(const warpgroup& scope, fragment<C, M, N, 4>& accumulator, const A& a, const B& b, bool accumulate,
           source here = source::current()) {
    const context c = enter(scope, "mma", here);
    if (!c) return;
    c.on->pause(*c.by);
    constexpr bool in_registers = requires {
        a.state;
    };
    constexpr int K = TransposeA ? A::rows : A::columns;
    group_queue& queue = c.by->mmas;
    if (c.checked()) {
        const access made{c.by, queue.actor, queue.open_tick(), true, true, -1, 0, "mma", here};
        const auto read = [&](const void* address, int bytes) { touch(*c.on, *c.by, address, bytes, made, false); };
        if constexpr (in_registers) {
            lend_to_mma(c, a, false, true, here);
        } else {
            check_inside(*c.on, *c.by, a, "mma", here);
            check_panels(c, a, here);
            for_each_run(a, read);
        }
        check_inside(*c.on, *c.by, b, "mma", here);
        check_panels(c, b, here);
        for_each_run(b, read);
        lend_to_mma(c, accumulator, true, accumulate, here);
        ++queue.open;
        queue.last_issue = here;
    }
    if (c.on->trace.enabled()) {
        double begin = 0;
        const double asked = c.by->time += nominal_rates::issue;
        queue.done_at =
            c.by->block->tensor_cores.serve(asked, 2.0 * M * N * K / nominal_rates::tensor_operations, begin);
        c.on->trace.record(c.by->block->number, "tensor cores", "mma of " + c.by->name(), begin, queue.done_at);
    }
    auto b_operand = shared_operand<!TransposeB>(b);
    if constexpr (in_registers) {
        static_assert(!TransposeA, "imbrex: wgmma takes A from registers only as it stands, not transposed");
        using element = typename A::element;
        const operand_view<element> a_operand{a.values, A::columns, 1};
        c.on->ask(&queue, queue.open_tick(), [&accumulator, a_operand, b_operand, accumulate] {
            multiply(accumulator.values, N, a_operand, b_operand, M, N, K, accumulate);
        });
    } else {
        const auto a_operand = shared_operand<TransposeA>(a);
        c.on->ask(&queue, queue.open_tick(), [&accumulator, a_operand, b_operand, accumulate] {
            multiply(accumulator.values, N, a_operand, b_operand, M, N, K, accumulate);
        });
    }
}

inline void wgmma_commit(const warpgroup& scope, source here = source::current()) {
    const context c = enter(scope, "commit of mmas", here);
    if (c) commit_group(c, c.by->mmas, synchronisation::mma_commit, here);
}

// On the device, keeps the compiler from accessing these registers too early. The checker does not need it.
template <class Fragment>
void wgmma_guard(Fragment&) {}

// Waits until all but the newest Left groups are complete: their operands and accumulators are free again.
template <int Left>
void wgmma_wait(const warpgroup& scope, source here = source::current()) {
    const context c = enter(scope, "wait for mmas", here);
    if (!c) return;
    wait_group(c, c.by->mmas, synchronisation::mma_wait, Left, here);
    auto& lent = c.by->lent;
    for (std::size_t i = 0; i < lent.size();) {
        if (lent[i].tick <= c.by->mmas.waited) {
            --*lent[i].uses;
            lent.erase(lent.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
            ++i;
        }
    }
}

}  // namespace imbrex::hw
