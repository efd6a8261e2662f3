// Attention to keys and values in pages: the same bits as with the same keys in rows, and right by loops in double, for pages
// of any size in any order; what is refused; checked over many schedules, and every mutant of the synchronisation reported.
#include <imbrex/kernels/attention_forward.hpp>

#include "kernels/attention/trial.hpp"
#include "synchronisation.hpp"

#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr attention_result normalised = attention_result::normalised;

// One tile of depths for all that is tested here, in rows and in pages.
using in_rows = attention_forward<bf16, any_mask, plain_score, normalised, attention_tiles<64>>;
using in_pages =
    attention_forward<bf16, any_mask, plain_score, normalised, attention_tiles<64>, attention_keys::in_pages>;
using trial = attention_trial<bf16>;

template <class Attention>
std::vector<std::uint32_t> run_trial(world where, trial& there, attention_kernel expected) {
    const auto problem = there.send();
    CHECK(Attention::choice(where, problem) == expected);
    Attention::launch(where, problem, there.mask());
    return there.fetch();
}

// The same numbers, drawn from the same seed, in rows and in pages. In the layout that the copy engine cannot read, the kernel for
// any distances takes them.
void check(attention_test_case given, const std::vector<int>& page_sizes) {
    for (const layout lie : {layout::batch_sequence_head, layout::batch_head_sequence, layout::unaligned}) {
        given.lie = lie;
        const attention_kernel kernel =
            lie == layout::unaligned ? attention_kernel::ampere_class : attention_kernel::hopper;
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            CAPTURE(static_cast<int>(lie));
            given.page_rows = 0;
            trial rows(where, given, 1);
            const auto bits = run_trial<in_rows>(where, rows, kernel);
            for (const int page_rows : page_sizes) {
                CAPTURE(page_rows);
                given.page_rows = page_rows;
                trial pages(where, given, 1);
                CHECK(run_trial<in_pages>(where, pages, kernel) == bits);
                const auto worst = pages.worst();
                CHECK(worst.out <= 1);
                CHECK(worst.log2_sum <= 1);
            }
        }
    }
}

const std::vector<int> all_sizes{16, 48, 64, 128, 256};

}  // namespace

TEST_CASE("pages of any size, in any order, among pages that are not numbers") {
    check({.batches = 2, .heads = 4, .key_heads = 2, .queries = 70, .keys = 512}, all_sizes);
    check({.heads = 2, .queries = 40, .keys = 333, .key_depth = 48, .value_depth = 32, .sinks = true}, {16, 80});
}

TEST_CASE(
    "chunks of queries over a cache: causal, the last query with the last key, sequences of all lengths and none") {
    attention_test_case packed{.heads = 4, .key_heads = 2, .queries = 300, .keys = 800};
    packed.packed = {{130, 200}, {0, 30}, {1, 1}, {100, 64}, {33, 0}, {5, 470}};
    packed.right = 0;
    check(packed, all_sizes);
    attention_test_case padded{.batches = 4, .heads = 3, .key_heads = 1, .queries = 70, .keys = 300};
    padded.key_lengths = {300, 0, 1, 130};
    padded.right = 0;
    check(padded, {16, 64, 128});
}

TEST_CASE("windows over pages, and masks with holes") {
    attention_test_case given{.batches = 2, .heads = 2, .queries = 200, .keys = 500, .left = 60, .right = 0};
    check(given, {16, 48, 128});
    given.left = 20, given.right = 30, given.holes = true, given.bounded = true;
    check(given, {32, 512});
}

TEST_CASE("no page at all") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        trial there(where, {.batches = 2, .heads = 2, .queries = 70, .keys = 0, .page_rows = 16}, 1);
        auto problem = there.send();
        problem.k.extents.given[0] = problem.v.extents.given[0] = 0;
        problem.k.pointer = problem.v.pointer = nullptr;
        problem.pages = {};
        in_pages::launch(where, problem, there.mask());
        CHECK(there.worst().out == 0);
        CHECK(there.log2_sums.values == std::vector<float>(there.log2_sums.values.size(), -INFINITY));
        // Room for some, and none there.
        there.send();
        buffer<int> lengths(where, 2, 0), table(where, 6, 1 << 29);
        problem.pages = {table.send(), 3};
        problem.key_lengths = lengths.send();
        in_pages::launch(where, problem, there.mask());
        CHECK(there.worst().out == 0);
    }
}

TEST_CASE("pages that cannot be are refused with a sentence, and nothing is written") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case given{.batches = 2, .heads = 4, .key_heads = 2, .queries = 30, .keys = 40, .page_rows = 32};
        given.key_lengths = {40, 20};
        trial there(where, given, 1);
        const attention_problem<bf16> good = there.send();
        const auto refused = [&](auto change) {
            attention_problem<bf16> bad = good;
            change(bad);
            return refusal_of([&] { in_pages::launch(where, bad); });
        };
        const auto rows = [](auto& p, int count) { p.k.extents.given[2] = p.v.extents.given[2] = count; };
        CHECK(refused([&](auto& p) { rows(p, 24); }) == "k.extents[2]: 24; the rows of a page are a multiple of 16");
        CHECK(refused([&](auto& p) { rows(p, 0); }) == "k.extents[2]: 0; the rows of a page are a multiple of 16");
        CHECK(refused([](auto& p) { p.pages.table = nullptr; }) == "pages.table: null; 2 x 2 numbers are needed");
        CHECK(refused([](auto& p) { p.pages.pages_per_sequence = -1; }) ==
              "pages.pages_per_sequence: -1; it must not be negative");
        CHECK(
            refused([](auto& p) { p.pages.pages_per_sequence = 1 << 26; }) ==
            "pages.pages_per_sequence: 67108864; with pages of 32 rows a sequence has room for 2147483648 keys, and at "
            "most 2147483647 are allowed");
        CHECK(refused([](auto& p) { --p.v.extents.given[0]; }) ==
              "v.extents[0]: 5; k has 6 pages, and it must have as many");
        CHECK(refused([&](auto& p) {
                  p.q.extents.given[0] = p.out.extents.given[0] = 1;
                  p.packed = {1, there.query_starts.send(), there.key_starts.send()};
              }).ends_with("; keys in pages have their lengths in key_lengths, it must be null"));
        CHECK(refusal_of([&] { in_rows::launch(where, good); }) ==
              "pages.pages_per_sequence: 2; this attention has its keys in rows, and pages are for "
              "attention_keys::in_pages");
        if (where != world::device) {
            const std::vector<int> too_long{40, 65}, negative{-1, 2};
            CHECK(refused([&](auto& p) { p.key_lengths = too_long.data(); }) ==
                  "key_lengths[1]: 65; the pages of a sequence have room for 64 keys, and none may be negative");
            CHECK(refused([&](auto& p) { p.key_lengths = negative.data(); }) ==
                  "key_lengths[0]: -1; the pages of a sequence have room for 64 keys, and none may be negative");
            std::vector<int> wrong = there.table.values;
            wrong[2] = 6;
            CHECK(refused([&](auto& p) { p.pages.table = wrong.data(); }) == "pages.table[2]: 6; there are 6 pages");
            wrong[2] = -1;
            CHECK(refused([&](auto& p) { p.pages.table = wrong.data(); }) == "pages.table[2]: -1; there are 6 pages");
        }
        there.fetch();
        for (const bf16 value : there.out.values) REQUIRE(std::isnan(float(value)));
    }
}

#if !defined(__CUDACC__)
namespace {

// A few packed sequences of four heads that share their keys, in pages of 16.
struct small_cache {
    static constexpr int depth = 32, heads = 4, query_rows = 110, page_rows = 16, pages = 12, per_sequence = 5;
    std::vector<bf16> q = std::vector<bf16>(query_rows * heads * depth),
                      k = std::vector<bf16>(pages * page_rows * depth), v = k, out = q;
    std::vector<int> query_starts{0, 70, 100, 110}, key_lengths{75, 45, 15},
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
        args.factor = factor_after(args.score, args.scale);
        args.heads_per_key_head = heads;
        args.order = {3, heads, attention_order::packed_blocks(query_rows, 3, Kernel::rows), 0};
        args.lengths = {{0, 0, key_lengths.data(), query_starts.data()}, table.data(), per_sequence, page_rows};
        return args;
    }

    template <class Kernel>
    void check_kernel(const typename Kernel::arguments& given, const std::string& name) const {
        const auto args = complete<Kernel>(given);
        check_synchronisation<Kernel>(name, {2}, args);
    }
};

}  // namespace

TEST_CASE("attention to pages is silent over 1,000 schedules, and each of its mutants is told") {
    small_cache there;
    const auto q = batch_sequence_head(there.q.data(), 1, there.query_rows, there.heads, there.depth);
    const auto out = batch_sequence_head(there.out.data(), 1, there.query_rows, there.heads, there.depth);
    const auto k = batch_sequence_head(there.k.data(), there.pages, there.page_rows, 1, there.depth);
    const auto v = batch_sequence_head(there.v.data(), there.pages, there.page_rows, 1, there.depth);

    using hopper = attention_hopper<bf16, 32, 32, causal_mask, plain_score, attention_shape{.columns = 32}, normalised,
                                    paged_lengths>;
    hopper::arguments by_engine{};
    by_engine.q = tensor_of<hopper::q_tile>(q);
    by_engine.k = tensor_of<hopper::k_tile>(k, tensor_use::load, 16);
    by_engine.v = tensor_of<hopper::v_tile>(v, tensor_use::load, 16);
    by_engine.out = tensor_of<hopper::out_tile>(out, tensor_use::store);
    by_engine.out_view = out;
    there.check_kernel<hopper>(by_engine, "attention to pages");
    // A table that names no page is not taken for one that ends.
    small_cache wrong = there;
    wrong.table[6] = small_cache::pages;
    const auto found = host::check<hopper>({2}, wrong.complete<hopper>(by_engine), 1);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::beyond_limits);

    constexpr attention_ampere_shape two_stages{.warps = 2, .columns = 32, .stages = 2};
    using ampere = attention_ampere<bf16, 32, 32, causal_mask, plain_score, two_stages, normalised, paged_lengths>;
    ampere::arguments by_warps{};
    by_warps.q = q;
    by_warps.k = k;
    by_warps.v = v;
    by_warps.out = out;
    there.check_kernel<ampere>(by_warps, "attention to pages on sm_80");
}
#endif
