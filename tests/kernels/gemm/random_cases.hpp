// GEMMs of random sizes, strides, batches and alignments through the launcher, compared with float64: many on the
// device, a few in the slower host worlds.
#pragma once

#include <imbrex/kernels/gemm.hpp>

#include "kernels/gemm/reference.hpp"
#include "random_below.hpp"

#include <map>
#include <memory>
#include <random>
#include <string>

namespace imbrex_test {

// A random problem: sizes that are multiples of 16 bytes or not, small M, batches, gaps and misaligned pointers.
inline gemm_case random_case(std::mt19937& random, int chunk, int largest) {
    const random_below below(random);
    const auto size = [&](bool whole) {
        const int kind = below(4), limit = kind == 0 ? 9 : kind == 1 ? 70 : largest;
        const int value = 1 + below(limit);
        return whole ? (value + chunk - 1) / chunk * chunk : value;
    };
    const bool whole = below(3) != 0;
    gemm_case one{size(whole), size(whole), size(whole)};
    if (whole && below(2) == 0) one.m = 1 + below(largest);
    if (below(4) == 0) {
        one.batches = 1 + below(4);
        one.share_b = below(2) == 0;
    }
    const auto gap = [&] { return below(2) == 0 ? 0 : whole ? chunk * below(4) : below(12); };
    one.a_gap = gap();
    one.b_gap = gap();
    one.out_gap = below(3) == 0 ? below(7) : 0;
    one.offset = below(6) == 0 ? 1 + below(9) : 0;
    return one;
}

// Runs `cases` products on the device, fewer elsewhere. `epilogue_of(where, case)` makes the epilogue (its captures may
// keep arrays alive); `expected` applies it to the exact product.
template <class In, class Out, matrix_layout A, matrix_layout B, class Epilogue, class MakeEpilogue>
void check_random_cases(unsigned seed, int cases, float spread, double tolerance, MakeEpilogue epilogue_of,
                        const std::function<double(double, double, int, int, int)>& expected) {
    using product = imbrex::gemm<In, Out, imbrex::gemm_options{.a = A, .b = B}, Epilogue>;
    std::map<std::string, int> used;
    for (const world where : worlds()) {
        std::mt19937 random(seed);
        const bool many = where == world::device;
        const int count = many ? cases : where == world::host ? 10 : 3;
        for (int i = 0; i < count; ++i) {
            const gemm_case sizes = random_case(random, 16 / static_cast<int>(sizeof(In)), many ? 420 : 150);
            CAPTURE(name_of(where));
            CAPTURE(i);
            CAPTURE(sizes.m);
            CAPTURE(sizes.n);
            CAPTURE(sizes.k);
            CAPTURE(sizes.batches);
            CAPTURE(sizes.a_gap);
            CAPTURE(sizes.b_gap);
            CAPTURE(sizes.out_gap);
            CAPTURE(sizes.offset);
            gemm_matrices<In, Out, A, B, imbrex::epilogue::is_glu<Epilogue>> matrices(where, sizes, seed + 10 * i,
                                                                                      spread);
            const auto problem = matrices.upload();
            const Epilogue epilogue = epilogue_of(where, sizes);
            product::launch(where, problem, epilogue);
            const std::string kernel = imbrex::name_of(product::choice(where, problem));
            CAPTURE(kernel);
            ++used[kernel];
            CHECK(matrices.worst(expected) <= tolerance);
        }
    }
    std::string text;
    for (const auto& [kernel, times] : used) text += kernel + " " + std::to_string(times) + "  ";
    MESSAGE("kernels used: " << text);
}

}  // namespace imbrex_test
