// Checks what users plug into a GEMM, so that an epilogue or mainloop with a wrong signature fails with one message that shows the right
// one.
#pragma once

#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/mainloop.hpp>

namespace imbrex::detail {

template <class Epilogue>
constexpr bool check_gemm_epilogue() {
    static_assert(gemm_epilogue<Epilogue>,
                  "imbrex: Epilogue must have template <class Scope, class Tile> IMBREX_KERNEL void operator()(const "
                  "Scope& self, Tile& values, gemm_coord at) const; a GLU has (const Scope& self, Tile& gate, const "
                  "Tile& up, gemm_coord at) const");
    return gemm_epilogue<Epilogue>;
}

template <class Mainloop>
constexpr bool check_gemm_mainloop() {
    static_assert(
        gemm_mainloop<Mainloop>,
        "imbrex: Mainloop must have template <operand_transpose A, operand_transpose B, int Parts, class "
        "Cursor, class Sum, class OverlappedWork> IMBREX_KERNEL void run(const warpgroup& self, Cursor& full, "
        "Sum& sum, int steps, gemm_coord at, const OverlappedWork& overlapped_work) const");
    return gemm_mainloop<Mainloop>;
}

}  // namespace imbrex::detail
