// Attention with paged KV: the same bits as with contiguous keys, and correct against loops in double, for pages of any
// size in any order; argument checks; no hazard in any schedule, and every mutation of the synchronisation detected.
#include <imbrex/kernels/attention_forward.hpp>

#include "kernels/attention/trial.hpp"
#include "synchronisation.hpp"

#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr attention_output_mode normalised = attention_output_mode::normalised;

// One set of head dims for all tests here, contiguous and paged.
using contiguous = attention_forward<bf16, attention_options{.head_dims = {64}}, any_mask>;
using paged = attention_forward<bf16, attention_options{.head_dims = {64}, .kv = kv_layout::paged}, any_mask>;
using trial = attention_trial<bf16>;

template <class Attention>
std::vector<std::uint32_t> run_trial(world where, trial& there, attention_kernel_kind expected) {
    const auto problem = there.upload();
    CHECK(Attention::choice(where, problem) == expected);
    Attention::launch(where, problem, there.mask());
    return there.download();
}

// The same random numbers, contiguous and paged. A layout that TMA cannot load goes to the Ampere-class kernel.
void check(attention_test_case given, const std::vector<int>& page_sizes) {
    for (const layout lie : {layout::batch_sequence_head, layout::batch_head_sequence, layout::unaligned}) {
        given.lie = lie;
        const attention_kernel_kind kernel =
            lie == layout::unaligned ? attention_kernel_kind::ampere_class : attention_kernel_kind::hopper;
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            CAPTURE(static_cast<int>(lie));
            given.page_size = 0;
            trial rows(where, given, 1);
            const auto bits = run_trial<contiguous>(where, rows, kernel);
            for (const int page_size : page_sizes) {
                CAPTURE(page_size);
                given.page_size = page_size;
                trial pages(where, given, 1);
                CHECK(run_trial<paged>(where, pages, kernel) == bits);
                const auto worst = pages.worst();
                CHECK(worst.out <= 1);
                CHECK(worst.lse2 <= 1);
            }
        }
    }
}

const std::vector<int> all_sizes{16, 48, 64, 128, 256};

}  // namespace

TEST_CASE("accepts pages of any size, in any order, among pages of NaN") {
    check({.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 70, .seqlen_k = 512}, all_sizes);
    check({.heads = 2, .seqlen_q = 40, .seqlen_k = 333, .head_dim_qk = 48, .head_dim_v = 32, .sinks = true}, {16, 80});
}

TEST_CASE(
    "chunked prefill: causal, the last query aligned with the last key, sequences of all lengths and empty ones") {
    attention_test_case packed{.heads = 4, .kv_heads = 2, .seqlen_q = 300, .seqlen_k = 800};
    packed.packed = {{130, 200}, {0, 30}, {1, 1}, {100, 64}, {33, 0}, {5, 470}};
    packed.right = 0;
    check(packed, all_sizes);
    attention_test_case padded{.batches = 4, .heads = 3, .kv_heads = 1, .seqlen_q = 70, .seqlen_k = 300};
    padded.seqused_k = {300, 0, 1, 130};
    padded.right = 0;
    check(padded, {16, 64, 128});
}

TEST_CASE("applies windows and masks with holes to paged KV") {
    attention_test_case given{.batches = 2, .heads = 2, .seqlen_q = 200, .seqlen_k = 500, .left = 60, .right = 0};
    check(given, {16, 48, 128});
    given.left = 20, given.right = 30, given.holes = true, given.bounded = true;
    check(given, {32, 512});
}

TEST_CASE("accepts a cache without pages") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        trial there(where, {.batches = 2, .heads = 2, .seqlen_q = 70, .seqlen_k = 0, .page_size = 16}, 1);
        auto problem = there.upload();
        problem.k.extents.given[0] = problem.v.extents.given[0] = 0;
        problem.k.pointer = problem.v.pointer = nullptr;
        problem.paged_kv = {};
        paged::launch(where, problem, there.mask());
        CHECK(there.worst().out == 0);
        CHECK(there.lse2.values == std::vector<float>(there.lse2.values.size(), -INFINITY));
        // Capacity for some keys, but none used.
        there.upload();
        buffer<int> lengths(where, 2, 0), table(where, 6, 1 << 29);
        problem.paged_kv = {table.upload(), 3};
        problem.seqused_k = lengths.upload();
        paged::launch(where, problem, there.mask());
        CHECK(there.worst().out == 0);
    }
}

TEST_CASE("rejects invalid block tables and page sizes, and writes nothing") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case given{
            .batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 30, .seqlen_k = 40, .page_size = 32};
        given.seqused_k = {40, 20};
        trial there(where, given, 1);
        const attention_problem<bf16> good = there.upload();
        const auto refused = [&](auto change) {
            attention_problem<bf16> bad = good;
            change(bad);
            return error_message_of([&] { paged::launch(where, bad); });
        };
        const auto rows = [](auto& p, int count) { p.k.extents.given[2] = p.v.extents.given[2] = count; };
        CHECK(refused([&](auto& p) { rows(p, 24); }) == "k.extents[2]: 24; the rows of a page are a multiple of 16");
        CHECK(refused([&](auto& p) { rows(p, 0); }) == "k.extents[2]: 0; the rows of a page are a multiple of 16");
        CHECK(refused([](auto& p) { p.paged_kv.block_table = nullptr; }) ==
              "paged_kv.block_table: null; 2 x 2 numbers are needed");
        CHECK(refused([](auto& p) { p.paged_kv.max_blocks_per_seq = -1; }) ==
              "paged_kv.max_blocks_per_seq: -1; it must not be negative");
        CHECK(refused([](auto& p) { p.paged_kv.max_blocks_per_seq = 1 << 26; }) ==
              "paged_kv.max_blocks_per_seq: 67108864; with pages of 32 rows a sequence has room for 2147483648 keys, "
              "and at "
              "most 2147483647 are allowed");
        CHECK(refused([](auto& p) { --p.v.extents.given[0]; }) ==
              "v.extents[0]: 5; k has 6 pages, and it must have as many");
        CHECK(refused([&](auto& p) {
                  p.q.extents.given[0] = p.out.extents.given[0] = 1;
                  p.varlen = {1, there.cu_seqlens_q.upload(), there.cu_seqlens_k.upload()};
              }).ends_with("; must be null for paged KV: seqused_k has the lengths"));
        CHECK(error_message_of([&] { contiguous::launch(where, good); }) ==
              "paged_kv.max_blocks_per_seq: 2; must be 0 unless the layout is kv_layout::paged");
        if (where != world::device) {
            const std::vector<int> too_long{40, 65}, negative{-1, 2};
            CHECK(refused([&](auto& p) { p.seqused_k = too_long.data(); }) ==
                  "seqused_k[1]: 65; the pages of a sequence have room for 64 keys, and none may be negative");
            CHECK(refused([&](auto& p) { p.seqused_k = negative.data(); }) ==
                  "seqused_k[0]: -1; the pages of a sequence have room for 64 keys, and none may be negative");
            std::vector<int> wrong = there.table.values;
            wrong[2] = 6;
            CHECK(refused([&](auto& p) { p.paged_kv.block_table = wrong.data(); }) ==
                  "paged_kv.block_table[2]: 6; there are 6 pages");
            wrong[2] = -1;
            CHECK(refused([&](auto& p) { p.paged_kv.block_table = wrong.data(); }) ==
                  "paged_kv.block_table[2]: -1; there are 6 pages");
        }
        there.download();
        for (const bf16 value : there.out.values) REQUIRE(std::isnan(float(value)));
    }
}

#if !defined(__CUDACC__)
namespace {

// A few varlen sequences of four heads that share a KV head, in pages of 16.
struct small_cache {
    static constexpr int head_dim = 32, heads = 4, query_rows = 110, page_size = 16, pages = 12, per_sequence = 5;
    std::vector<bf16> q = std::vector<bf16>(query_rows * heads * head_dim),
                      k = std::vector<bf16>(pages * page_size * head_dim), v = k, out = q;
    std::vector<int> cu_seqlens_q{0, 70, 100, 110}, seqused_k{75, 45, 15},
        table{3, 7, 1, 0, 9, 10, 11, 4, -1, -1, 5, -1, -1, -1, -1};

    small_cache() {
        fill_random(q, 1);
        fill_random(k, 2);
        fill_random(v, 3);
    }

    template <class Kernel>
    typename Kernel::arguments complete(const typename Kernel::arguments& given) const {
        auto args = given;
        args.scale = 0.25f;
        args.scale_log2 = scale_log2_after(args.score, args.scale);
        args.q_heads_per_kv_head = heads;
        args.scheduler = {3, heads, attention_tile_scheduler::varlen_blocks(query_rows, 3, Kernel::block_m), 0};
        args.lengths = {{0, 0, seqused_k.data(), cu_seqlens_q.data()}, table.data(), per_sequence, page_size};
        return args;
    }

    template <class Kernel>
    void check_kernel(const typename Kernel::arguments& given, const std::string& name) const {
        const auto args = complete<Kernel>(given);
        check_synchronisation<Kernel>(name, {2}, args);
    }
};

}  // namespace

TEST_CASE("paged attention has no hazard in any schedule, and the checker detects every mutation") {
    small_cache there;
    const auto q = batch_sequence_head(there.q.data(), 1, there.query_rows, there.heads, there.head_dim);
    const auto out = batch_sequence_head(there.out.data(), 1, there.query_rows, there.heads, there.head_dim);
    const auto k = batch_sequence_head(there.k.data(), there.pages, there.page_size, 1, there.head_dim);
    const auto v = batch_sequence_head(there.v.data(), there.pages, there.page_size, 1, there.head_dim);

    using hopper = attention_hopper<bf16, 32, 32, causal_mask, score_mod::identity, attention_shape{.block_n = 32},
                                    normalised, paged_seqlens>;
    hopper::arguments by_tma{};
    by_tma.q = make_tma_tensor<hopper::q_tile>(q);
    by_tma.k = make_tma_tensor<hopper::k_tile>(k, tma_use::load, 16);
    by_tma.v = make_tma_tensor<hopper::v_tile>(v, tma_use::load, 16);
    by_tma.out = make_tma_tensor<hopper::out_tile>(out, tma_use::store);
    by_tma.out_view = out;
    there.check_kernel<hopper>(by_tma, "attention to pages");
    // A block table entry that is no page is distinguished from the end of the sequence.
    small_cache wrong = there;
    wrong.table[6] = small_cache::pages;
    const auto found = host::check<hopper>({2}, wrong.complete<hopper>(by_tma), 1);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::beyond_limits);

    constexpr attention_ampere_shape two_stages{.warps = 2, .block_n = 32, .stages = 2};
    using ampere =
        attention_ampere<bf16, 32, 32, causal_mask, score_mod::identity, two_stages, normalised, paged_seqlens>;
    ampere::arguments by_warps{};
    by_warps.q = q;
    by_warps.k = k;
    by_warps.v = v;
    by_warps.out = out;
    there.check_kernel<ampere>(by_warps, "attention to pages on sm_80");
}
#endif
