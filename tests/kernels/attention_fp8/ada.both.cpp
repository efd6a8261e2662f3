// Ada-class 8-bit attention against attention in double on the dequantised inputs: head dims, both layouts of V, both
// accumulations, scales, any alignment and any lengths, masks, a score_mod, sinks, varlen and padded batches with NaN
// around them; the launcher's choice of it; no hazard in any schedule, and every mutation of its synchronisation
// detected.
#include <imbrex/kernels/attention_fp8.hpp>

#include "kernels/attention_fp8/trial.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr auto promoted = fp8_accumulation::promoted, fast = fp8_accumulation::fast;
constexpr auto row_major = fp8_v_layout::row_major, k_major = fp8_v_layout::k_major;

const auto unchanged = [](const attention_extents&, int, int, double x) { return x; };
const auto as_it_is = [](auto&) {};

// The smallest shapes that exercise all parts of the kernel.
constexpr attention_fp8_ada_shape one_stage{.warps = 2, .block_n = 32, .stages = 1};
constexpr attention_fp8_ada_shape two_stages{.warps = 2, .block_n = 32, .stages = 2, .product_columns = 64};

// One kernel: a type of attention_fp8_ada with the trial that belongs to it.
template <class Out, int HeadDim, class Mask = full_mask, class Scaling = fp8_scaling::per_tensor,
          fp8_accumulation Sum = promoted, fp8_v_layout Layout = row_major,
          attention_fp8_ada_shape Shape = attention_fp8_ada_shape_for(HeadDim), class Score = score_mod::identity>
struct ada_kernel {
    using kernel = attention_fp8_ada<Out, HeadDim, Mask, Score, Scaling, Sum, Layout, Shape>;
    using trial = fp8_trial<Out, Scaling, Layout>;

    template <class ScoreInDouble = decltype(unchanged), class Prepare = decltype(as_it_is)>
    static void check(const fp8_case& given, const Mask& mask = {}, const Score& score = {},
                      const ScoreInDouble& in_double = unchanged, int blocks = 3, const Prepare& prepare = as_it_is) {
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            CAPTURE(given.seqlen_q);
            CAPTURE(given.seqlen_k);
            CAPTURE(given.head_dim);
            trial there(where, given, 1);
            there.poison_keys();
            prepare(there);
            run<kernel>(where, {blocks}, attention_fp8_arguments<kernel>(there.upload(), mask, score, 1), 2);
            const auto worst = there.compare(
                [&](const attention_extents& s, int query, int key) { return mask.keep(s, query, key); }, in_double);
            CHECK(worst.out <= 1);
            CHECK(worst.lse2 <= (where == world::device ? 0.01 : 1e-4));
        }
    }
};

struct every_third : mask_base {
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        return (query + key + s.head) % 3 == 0;
    }
};

using small_rows = ada_kernel<bf16, 64, causal_mask, fp8_scaling::per_head, promoted, row_major, one_stage>;
using small_fast = ada_kernel<fp16, 64, full_mask, fp8_scaling::per_tensor, fast, row_major, two_stages>;
using small_k_major = ada_kernel<bf16, 64, causal_mask, fp8_scaling::per_block<64, 32>, promoted, k_major, two_stages>;

using per_head = fp8_scaling::per_head;
constexpr attention_fp8_options row_major_options{.head_dims = {64}};
constexpr attention_fp8_options k_major_options{.head_dims = {64}, .v_layout = k_major};
constexpr attention_fp8_options hopper_options{.head_dims = {64}, .targets = kernel_targets::hopper};
constexpr attention_fp8_options wide_options{.head_dims = {256}, .accumulation = fast};
using with_row_major_v = attention_fp8<bf16, row_major_options, full_mask, per_head>;
using with_k_major_v = attention_fp8<bf16, k_major_options, full_mask, per_head>;
using on_hopper_alone = attention_fp8<bf16, hopper_options, full_mask, per_head>;
using with_head_dim_256 = attention_fp8<bf16, wide_options, full_mask, per_head>;

// The launcher takes the Ada-class kernel, and the result is right.
template <class Attention, class Trial>
void check_launcher(world where, Trial& there, const typename Attention::problem& problem) {
    CHECK(std::string(name_of(Attention::choice(where, problem))) == "ada_class");
    Attention::launch(where, problem);
    const auto worst = there.compare([](const attention_extents&, int, int) { return true; }, unchanged);
    CHECK(worst.out <= 1);
    CHECK(worst.lse2 <= 0.01);
}

}  // namespace

TEST_CASE("attention_fp8/ada: full attention for all head dims, GQA, head dims below the compiled one") {
    const fp8_case few{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 130, .seqlen_k = 150};
    const auto of = [&](int head_dim) {
        fp8_case one = few;
        one.head_dim = head_dim;
        return one;
    };
    ada_kernel<bf16, 64>::check(of(64));
    ada_kernel<fp16, 128>::check(of(128));
    ada_kernel<bf16, 128, full_mask, fp8_scaling::per_head, fast, k_major>::check(of(80));
}

TEST_CASE("attention_fp8/ada: rows that are aligned to neither 16 nor 4 bytes") {
    for (const int head_dim : {60, 51}) {
        const fp8_case odd{.heads = 3, .kv_heads = 3, .seqlen_q = 40, .seqlen_k = 70, .head_dim = head_dim};
        small_rows::check(odd);
        small_k_major::check(odd);
    }
    for (const int excess : {4, 5}) small_k_major::check({.seqlen_q = 40, .seqlen_k = 70, .v_row_excess = excess});
}

TEST_CASE("attention_fp8/ada: any lengths, also no keys and one key") {
    for (const int seqlen_k : {0, 1, 31, 32, 33, 100}) {
        fp8_case given{.seqlen_q = 37, .seqlen_k = 100};
        given.used_k = {seqlen_k};
        small_rows::check(given);
        small_fast::check(given);
        small_k_major::check(given);
    }
    small_fast::check({.heads = 2, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 90}, {}, {}, unchanged, 1);
}

TEST_CASE("attention_fp8/ada: masks, a softcap and attention sinks") {
    const fp8_case few{.heads = 2, .seqlen_q = 100, .seqlen_k = 170};
    ada_kernel<bf16, 64, every_third, fp8_scaling::per_tensor, promoted, row_major, one_stage>::check(few);
    const float cap = 3;
    ada_kernel<bf16, 64, window_mask, fp8_scaling::per_block<16, 64>, promoted, row_major, two_stages,
               score_mod::softcap>::check(few, window_mask{40, 10}, score_mod::softcap{cap},
                                          [&](const attention_extents&, int, int, double x) {
                                              return cap * std::tanh(x / cap);
                                          });
    small_rows::check({.heads = 2, .seqlen_q = 100, .seqlen_k = 40, .sinks = true});  // some queries see no key
}

TEST_CASE("attention_fp8/ada: varlen and padded batches, some empty; NaN around the sequences has no effect") {
    fp8_case varlen{.heads = 2, .seqlen_q = 220, .seqlen_k = 290, .sinks = true};
    varlen.starts_q = {3, 73, 73, 74, 174, 200};
    varlen.starts_k = {5, 85, 115, 116, 216, 216};
    small_rows::check(varlen);
    small_fast::check(varlen);
    varlen.starts_k = {16, 96, 128, 144, 250, 250};
    small_k_major::check(varlen);
    fp8_case padded{.batches = 4, .heads = 2, .seqlen_q = 40, .seqlen_k = 70};
    padded.used_k = {70, 0, 1, 50};
    small_rows::check(padded);
    small_k_major::check(padded);
}

TEST_CASE("attention_fp8/ada: large, small and zero scales") {
    small_k_major::check({.seqlen_q = 64, .seqlen_k = 128}, {}, {}, unchanged, 2, [](small_k_major::trial& there) {
        there.k_scales.values = {1e-3f, 1.0f, 0.0f, 0.5f};
        there.v_scales.values = {1e5f, 1e-12f, 0.0f, 1e-3f};
    });
}

TEST_CASE("attention_fp8: takes the Ada-class kernel where TMA cannot copy, and without keys") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        fp8_case given{.batches = 2, .heads = 3, .kv_heads = 3, .seqlen_q = 70, .seqlen_k = 90, .head_dim = 48};
        fp8_trial<bf16, per_head, row_major> there(where, given, 1);
        for (const int offset : {4, 5}) {
            buffer<e4m3> moved(where, there.k.values.size() + offset);
            std::copy(there.k.values.begin(), there.k.values.end(), moved.values.begin() + offset);
            auto problem = there.upload();
            problem.k.pointer = moved.upload() + offset;
            check_launcher<with_row_major_v>(where, there, problem);
            CHECK(error_message_of([&] { on_hopper_alone::launch(where, problem); }) ==
                  str_cat("q, k, v, out, world: ", name_of(where),
                          "; kernel_targets::hopper needs sm_90a, and pointers and strides that are multiples "
                          "of 16 bytes"));
        }
        fp8_trial<bf16, per_head, row_major> wider(where, {.seqlen_q = 20, .seqlen_k = 30, .head_dim = 256}, 1);
        auto unaligned = wider.upload();
        unaligned.k.strides.given[2] = 260;
        CHECK(error_message_of([&] { with_head_dim_256::launch(where, unaligned); }) ==
              str_cat("q, k, v, out, world: ", name_of(where),
                      "; a head_dim above 128 needs sm_90a, and pointers and strides that are multiples of 16 bytes"));
        given.v_row_excess = 5;
        fp8_trial<bf16, per_head, k_major> across(where, given, 1);
        check_launcher<with_k_major_v>(where, across, across.upload());
        auto problem = there.upload();
        problem.k.extents.given[2] = problem.v.extents.given[2] = 0;
        CHECK(with_row_major_v::choice(where, problem) == attention_fp8_kernel_kind::ada_class);
        with_row_major_v::launch(where, problem);
        there.out.download();
        for (const bf16& one : there.out.values) CHECK(float(one) == 0);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("attention_fp8/ada: no hazard in any schedule, and the checker detects every mutation") {
    const auto check = [](auto kernel_to_check, const char* name) {
        using kernel = typename decltype(kernel_to_check)::kernel;
        // The keys end inside a tile, once the only one; blocks have several work tiles.
        fp8_case given{.batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 70, .seqlen_k = 100};
        given.used_k = {20, 100};
        typename decltype(kernel_to_check)::trial there(world::host_checked, given, 1);
        const auto arguments = attention_fp8_arguments<kernel>(there.upload(), decltype(kernel::arguments::mask){},
                                                               score_mod::identity{}, 1);
        check_synchronisation<kernel>(name, {2}, arguments, 100);
    };
    check(small_rows{}, "one stage, row-major V");
    check(small_fast{}, "two stages, row-major V");
    check(small_k_major{}, "two stages, K-major V");
    check(ada_kernel<bf16, 64, full_mask, fp8_scaling::per_head, fast, k_major, one_stage>{}, "one stage, K-major V");
}
#endif
