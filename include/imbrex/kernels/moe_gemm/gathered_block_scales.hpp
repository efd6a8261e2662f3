// The mainloop of a grouped GEMM of e4m3 rows that are gathered: promoted_with_block_scales (gemm/mainloop.hpp) with the
// scales of the tokens' rows gathered too. Sorted rows take promoted_with_block_scales itself: a_scales has the sorted
// rows and batch stride 0, b_scales a matrix per expert.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/gemm/mainloop.hpp>
#include <imbrex/kernels/moe_gemm/problem.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/read_element.hpp>

namespace imbrex {

struct promoted_with_gathered_block_scales {
    gemm_view<const float>
        a_scales;  // [1, tokens, ceil(k / 128)]; eight are read at a time: rows must have room for them
    gemm_view<const float> b_scales;    // [experts, ceil(n / 128), ceil(k / 128)]
    const int* token_of_row = nullptr;  // of the routing

    template <class In, class Out>
    void require_valid(const moe_gemm_problem<In, Out>& p) const {
        const int groups = ceil_div(p.k, 128), room = ceil_div(groups, 8) * 8;
        require(token_of_row != nullptr, "mainloop.token_of_row: null; it is the routing's");
        require(a_scales.columns() == groups, "mainloop.a_scales: ", a_scales.columns(), " columns; k of ", p.k,
                " has ", groups, " groups");
        require(a_scales.strides[1] >= room && a_scales.strides[1] % 2 == 0, "mainloop.a_scales: rows ",
                a_scales.strides[1], " elements apart; must be even and at least ", room);
    }

    template <operand_transpose A, operand_transpose B, int Parts, class Cursor, class Sum, class OverlappedWork>
    IMBREX_KERNEL void run(const warpgroup& self, Cursor& full, Sum& sum, int steps, gemm_coord at,
                           const OverlappedWork& overlapped_work) const {
        detail::run_with_block_scales<A, B, Parts>(self, full, sum, steps, at, *this, overlapped_work);
    }

    template <class Tile>
    IMBREX_KERNEL void load_a_scales(const warpgroup& self, Tile& to, gemm_coord at, int k) const {
        load_rows_from(self, to, [&](int row) -> const float* {
            const int token = read_element(token_of_row, at.row + row);
            const bool exists = token != moe_routing::no_token && k < a_scales.columns();
            return exists ? a_scales.at(0, token, k).pointer : nullptr;
        });
    }
};

}  // namespace imbrex
