// Which kernel does a product: the table of choices, in one place.
//
//   what                                                         kernel
//   the device is not a Hopper, the copy engine cannot read the
//   operands (rows not a multiple of 16 bytes apart), or K = 0   ampere_class    192 or 128 x 256 by warps, any stride
//   at most 8 rows, and B are constant weights [n, k]            weight_stream   in shapes of their own (plain_stream.hpp)
//   at most 16 or 64 rows                                        few_rows_*      weights once through, K shared out
//   at most 128 rows                                             shared_depth    the same in tiles of 128 x 128
//   otherwise, by the estimate below                             wide            128 x 256
//                                                                narrow          128 x 128
//
// Wide tiles read less and are the faster ones; narrow ones leave fewer multiprocessors without work at the end. The estimate
// counts the rounds that the whole machine goes through, and what a round of each kind costs.
#pragma once

#include <imbrex/core/config.hpp>

#include <cstdint>

namespace imbrex {

enum class gemm_kernel { ampere_class, weight_stream, few_rows_16, few_rows_64, shared_depth, narrow, wide };

struct gemm_situation {
    int m;
    int n;  // columns of B
    int k;
    int batches;
    int processors;
    bool hopper;                      // the device, and the program has code for it
    bool engine_can_read;             // A and B
    bool few_rows_can_do;             // 16-bit operands, A by rows
    bool narrow_can_do;               // no gate
    bool weights_can_stream = false;  // B, up to 8 rows
};

constexpr std::int64_t gemm_rounds(const gemm_situation& s, int tile_columns, int tile_rows = 128) {
    const auto up = [](std::int64_t total, std::int64_t part) { return (total + part - 1) / part; };
    return up(up(s.m, tile_rows) * up(s.n, tile_columns) * s.batches, s.processors);
}

// In the sm_80 class a tile of 192 rows takes 1.4 times as long as one of 128.
constexpr bool gemm_wants_low_tiles(const gemm_situation& s) {
    return gemm_rounds(s, 256, 192) * 14 > gemm_rounds(s, 256, 128) * 10;
}

constexpr gemm_kernel choose_gemm(const gemm_situation& s) {
    if (!s.hopper || !s.engine_can_read || s.k == 0) return gemm_kernel::ampere_class;
    if (s.weights_can_stream) return gemm_kernel::weight_stream;
    if (s.few_rows_can_do && s.batches == 1 && s.m <= 128) {
        return s.m <= 16 ? gemm_kernel::few_rows_16 : s.m <= 64 ? gemm_kernel::few_rows_64 : gemm_kernel::shared_depth;
    }
    if (!s.narrow_can_do) return gemm_kernel::wide;
    // A wide tile is twice the work of a narrow one and takes 1.9 times as long.
    return gemm_rounds(s, 256) * 19 <= gemm_rounds(s, 128) * 10 ? gemm_kernel::wide : gemm_kernel::narrow;
}

constexpr const char* name_of(gemm_kernel one) {
    switch (one) {
        case gemm_kernel::ampere_class:
            return "ampere_class";
        case gemm_kernel::weight_stream:
            return "weight_stream";
        case gemm_kernel::few_rows_16:
            return "few_rows_16";
        case gemm_kernel::few_rows_64:
            return "few_rows_64";
        case gemm_kernel::shared_depth:
            return "shared_depth";
        case gemm_kernel::narrow:
            return "narrow";
        case gemm_kernel::wide:
            return "wide";
    }
    return "";
}

}  // namespace imbrex
