// Tests of paged_decode through its launcher: lengths at every boundary, grids of any size, reproducible bits, a
// workspace that is left ready, merged results, random problems, invalid arguments.
#include "kernels/paged_decode/trial.hpp"

#include <optional>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

using decode = paged_decode<bf16, decode_config{.head_dims = {64}}, any_mask>;

}  // namespace

TEST_CASE("lengths at every boundary, shuffled pages among NaN pages, grids of any size") {
    attention_test_case c{.batches = 12, .heads = 4, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 200};
    c.seqused_k = {200, 0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65};
    c.right = 0;
    for (const int page_size : {16, 32, 48, 64, 256}) {
        CAPTURE(page_size);
        c.page_size = page_size;
        check_decode<decode, bf16>(c, {1, 4, 50});
    }
}

TEST_CASE("one long sequence beside short ones; several causal tokens; MQA") {
    attention_test_case c{.batches = 5, .heads = 4, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 2300, .page_size = 16};
    c.seqused_k = {20, 2300, 3, 40, 0};
    c.right = 0;
    check_decode<decode, bf16>(c, {9});
    for (const int tokens : {2, 3, 9}) {
        CAPTURE(tokens);
        attention_test_case several{.batches = 3, .heads = 6, .kv_heads = 1, .seqlen_q = tokens, .seqlen_k = 130};
        several.seqused_k = {130, tokens, 2};
        several.page_size = 32;
        several.right = 0;
        check_decode<decode, bf16>(several, {1, 5});
    }
    attention_test_case packed{.heads = 4, .kv_heads = 1, .seqlen_q = 12, .seqlen_k = 0, .page_size = 16};
    packed.packed = {{1, 100}, {0, 50}, {4, 4}, {6, 33}};
    packed.seqlen_k = 187;
    packed.right = 0;
    check_decode<decode, bf16>(packed, {3});
}

TEST_CASE("window masks, custom masks, sinks") {
    attention_test_case c{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 2, .seqlen_k = 300, .page_size = 16};
    c.seqused_k = {300, 90};
    c.left = 40, c.right = 0, c.sinks = true;
    check_decode<decode, bf16>(c, {1, 6});
    c.holes = c.bounded = true;
    check_decode<decode, bf16>(c, {6});
}

TEST_CASE("random problems in bf16") {
    check_random_decode<decode, bf16>(1, 200, 64);
}

TEST_CASE("merges with a partial result over other keys") {
    // One launch for each half of the keys.
    using partial =
        paged_decode<bf16, decode_config{.head_dims = {64}, .output = attention_output_mode::partial}, any_mask>;
    const auto check = [](world where, layout lie, std::optional<decode_kernel_kind> kernel) {
        attention_test_case c{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 2, .seqlen_k = 192, .page_size = 32};
        c.lie = lie;
        attention_trial<bf16> there(where, c, 1);
        const auto problem = there.upload();
        buffer<float> sums(where, there.out.values.size()), largest(where, there.lse2.values.size()),
            total(where, largest.values.size());
        buffer<int> first(where, 2, 64), others(where, 2, 128), table(where, 8);
        // The first two pages of a sequence, and the rest.
        for (int i = 0; i < 8; ++i) table.values[i] = there.at.table.entries[i / 4 * 6 + 2 + i % 4];
        attention_problem<bf16, attention_output_mode::partial> before;
        before.q = problem.q, before.k = problem.k, before.v = problem.v;
        before.out = there.at.out.view(sums.upload());
        before.row_max = batch_head_rows(largest.upload(), c.heads, c.seqlen_q);
        before.row_sum = batch_head_rows(total.upload(), c.heads, c.seqlen_q);
        before.seqused_k = first.upload();
        before.paged_kv = problem.paged_kv;
        auto after = problem;
        after.seqused_k = others.upload();
        after.paged_kv = {table.upload(), 4};
        decode_options options;
        buffer<int> workspace(where, partial::workspace_bytes(where, before, 3) / sizeof(int), 0);
        options.workspace = workspace.upload();
        options.blocks = 3;
        options.kernel = kernel;
        partial::launch(where, before, options, there.mask());
        options.merge_with.o_accum = before.out, options.merge_with.row_max = before.row_max,
        options.merge_with.row_sum = before.row_sum;
        decode::launch(where, after, options, there.mask());
        const auto worst = there.worst();
        CHECK(worst.out <= 1);
        CHECK(worst.lse2 <= 1);
    };
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        check(where, layout{}, {});
        check(where, layout{}, decode_kernel_kind::ampere_class);
        check(where, layout::unaligned, {});
    }
}

TEST_CASE("multi-KV-head kernels: window masks, several tokens, varlen") {
    attention_test_case c{.batches = 9, .heads = 32, .kv_heads = 8, .seqlen_q = 1, .seqlen_k = 150, .page_size = 16};
    c.seqused_k = {150, 16, 0, 1, 33, 149, 17, 64, 31};
    c.right = 0;
    check_decode<decode, bf16>(c, {1, 4, 50});
    c.page_size = 48;
    c.left = 40;
    c.seqlen_q = 2;
    c.sinks = true;
    check_decode<decode, bf16>(c, {3});
    attention_test_case packed{.heads = 32, .kv_heads = 16, .page_size = 32};
    packed.packed = {{1, 70}, {9, 100}, {0, 5}, {2, 2}};
    packed.seqlen_q = 13;
    packed.seqlen_k = 200;
    packed.right = 0;
    check_decode<decode, bf16>(packed, {2, 7});
}

TEST_CASE("fixed splits are correct at every boundary") {
    attention_test_case c{.batches = 12, .heads = 4, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 1200, .page_size = 32};
    c.seqused_k = {1200, 0, 1, 63, 64, 65, 127, 128, 129, 500, 511, 513};
    c.right = 0;
    check_decode<decode, bf16>(c, {1, 4, 50}, 1, 64);
    check_decode<decode, bf16>(c, {7}, 1, 512);
    c.sinks = true, c.left = 100;
    check_decode<decode, bf16>(c, {7}, 1, 128);
    attention_test_case packed{.heads = 8, .kv_heads = 2, .seqlen_q = 40, .seqlen_k = 0, .page_size = 16};
    packed.packed = {{1, 100}, {0, 50}, {21, 400}, {6, 333}, {5, 5}, {4, 64}};
    packed.seqlen_k = 952;
    packed.right = 0;
    check_decode<decode, bf16>(packed, {3, 90}, 1, 64);
}

TEST_CASE("different problems and kernels share one workspace") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case few{
            .batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 300, .page_size = 16};
        attention_test_case more = few;
        more.seqlen_q = 9;
        attention_trial<bf16> of_few(where, few, 1), of_more(where, more, 2);
        const auto one = of_few.upload(), other = of_more.upload();
        buffer<int> workspace(where, decode::workspace_bytes(where, other) / sizeof(int), 0);
        decode_options options;
        options.workspace = workspace.upload();
        for (int i = 0; i < 2; ++i) {
            for (const auto kernel : {decode::choice(where, one), decode_kernel_kind::ampere_class}) {
                options.kernel = kernel;
                of_few.upload();
                decode::launch(where, one, options, of_few.mask());
                CHECK(of_few.worst().out <= 1);
                of_more.upload();
                decode::launch(where, other, options, of_more.mask());
                CHECK(of_more.worst().out <= 1);
            }
        }
    }
}

TEST_CASE("falls back where TMA cannot read; an empty cache gives zero") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case c{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 2, .seqlen_k = 100, .page_size = 16};
        c.seqused_k = {100, 30};
        c.lie = layout::unaligned;
        attention_trial<bf16> there(where, c, 1);
        const auto problem = there.upload();
        CHECK(decode::choice(where, problem) == decode_kernel_kind::ampere_class);
        buffer<int> workspace(where, decode::workspace_bytes(where, problem) / sizeof(int), 0);
        decode_options options;
        options.workspace = workspace.upload();
        decode::launch(where, problem, options, there.mask());
        CHECK(there.worst().out <= 1);
        CHECK(there.worst().lse2 <= 1);

        attention_trial<bf16> none(where, {.batches = 2, .heads = 2, .seqlen_q = 3, .seqlen_k = 0, .page_size = 16}, 1);
        auto empty = none.upload();
        empty.k.extents.given[0] = empty.v.extents.given[0] = 0;
        empty.k.pointer = empty.v.pointer = nullptr;
        empty.paged_kv = {};
        decode::launch(where, empty, options, none.mask());
        CHECK(none.worst().out == 0);
        CHECK(none.lse2.values == std::vector<float>(none.lse2.values.size(), -INFINITY));
    }
}

TEST_CASE("rejects invalid arguments and writes nothing") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case c{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 40, .page_size = 32};
        c.seqused_k = {40, 20};
        attention_trial<bf16> there(where, c, 1);
        const attention_problem<bf16> good = there.upload();
        buffer<int> workspace(where, decode::workspace_bytes(where, good, 2) / sizeof(int) + 32, 0);
        decode_options options;
        options.workspace = workspace.upload();
        options.blocks = 2;
        const auto refused = [&](auto change) {
            attention_problem<bf16> bad = good;
            decode_options others = options;
            change(bad, others);
            return error_message_of([&] { decode::launch(where, bad, others, there.mask()); });
        };
        const std::string needed =
            "; " + std::to_string(decode::workspace_bytes(where, good, 2)) + " bytes at a multiple of 16 are needed";
        CHECK(refused([](auto&, auto& o) { o.workspace = nullptr; }).ends_with(needed));
        CHECK(refused([](auto&, auto& o) { o.workspace = static_cast<char*>(o.workspace) + 8; }).ends_with(needed));
        CHECK(refused([](auto& p, auto& o) {
                  o.kernel = decode_kernel_kind::hopper;
                  p.q.strides.given[1] += 1;
              }) == "options.kernel: hopper; this problem needs ampere_class");
        CHECK(
            refused([](auto&, auto& o) { o.kernel = decode_kernel_kind::kv_heads_8; }) ==
            "options.kernel: kv_heads_8; needs a multiple of 8 KV heads, a head_dim up to 128 and at most 8 query rows "
            "per KV head");
        CHECK(refused([](auto&, auto& o) {
                  o.kernel = decode_kernel_kind::kv_heads_8;
                  o.split_size = 64;
              }) == "options.kernel: kv_heads_8; must be hopper or ampere_class with options.split_size");
        CHECK(refused([](auto& p, auto&) { p.k.extents.given[2] = p.v.extents.given[2] = 24; }) ==
              "k.extents[2]: 24; the rows of a page are a multiple of 16");
        CHECK(refused([](auto& p, auto&) { p.paged_kv.block_table = nullptr; }) ==
              "paged_kv.block_table: null; 2 x 2 numbers are needed");
        CHECK(refused([&](auto& p, auto&) {
                  p.k_scales = {there.sinks.upload(), 0, 0};
              }).ends_with("; only 8-bit keys and values have scales"));
        CHECK(refused([](auto& p, auto&) { p.q.extents.given[3] = p.k.extents.given[3] = 80; }) ==
              "q.extents[3], v.extents[3]: 80, 64; instantiated head dims: 64");
        if (where != world::device) {
            const std::vector<int> too_long{40, 65};
            CHECK(refused([&](auto& p, auto&) { p.seqused_k = too_long.data(); }) ==
                  "seqused_k[1]: 65; the pages of a sequence have room for 64 keys, and none may be negative");
            std::vector<int> wrong = there.table.values;
            wrong[2] = 6;
            CHECK(refused([&](auto& p, auto&) { p.paged_kv.block_table = wrong.data(); }) ==
                  "paged_kv.block_table[2]: 6; there are 6 pages");
        }
        there.download();
        for (const bf16 value : there.out.values) REQUIRE(std::isnan(float(value)));
    }
}
