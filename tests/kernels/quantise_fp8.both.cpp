// quantise_fp8 against a reference in double: every granularity of scales, RoPE, rotation, lengths, varlen and padded
// batches, strides, special values, argument checks; and attention_fp8 of its results against attention in double.
#include <imbrex/kernels/attention_fp8.hpp>
#include <imbrex/kernels/quantise_fp8.hpp>

#include "kernels/quantise_fp8/trial.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class In>
void check_case(const quantise_case& given) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.rows);
        CAPTURE(given.heads);
        CAPTURE(given.head_dim);
        CAPTURE(given.block_rows);
        CAPTURE(given.rotary_dim);
        CAPTURE(static_cast<int>(given.kind));
        CAPTURE(static_cast<int>(given.style));
        quantise_trial<In> there(where, given);
        const auto p = there.upload();
        REQUIRE(quantise_fp8<In>::workspace_bytes(p) <= there.workspace.values.size() * sizeof(unsigned));
        for (int i = 0; i < (there.c.kind == scale_kind::block ? 1 : 2); ++i) {  // a workspace can be used again
            quantise_fp8<In>::launch(where, p);
            there.download();
            const auto found = there.compare();
            CHECK(found.scales == 0);
            CHECK(found.elements == 0);
            CHECK(found.gaps == 0);
        }
    }
}

// The launches for head_dim up to 64 with RoPE and this many heads per block, which the launcher chooses for large grids.
void launch_heads(world where, const quantise_fp8_problem<bf16>& p, int heads_per_block) {
    using quantise = quantise_fp8<bf16>;
    using rounding = quantise::kernel<32, 64, true>;
    using maxima = quantise::kernel<32, 64, true, quantise_fp8_pass::maxima>;
    const auto launch_one = [&]<class Kernel>(Kernel, bool reads_scales) {
        auto args = quantise::arguments_of<Kernel>(where, p, reads_scales);
        args.heads_per_block = heads_per_block;
        launch<Kernel>(where, Kernel::grid_of(args), args);
    };
    const bool two_passes = quantise::workspace_bytes(p) > 0;
    if (two_passes) launch_one(maxima{}, false);
    launch_one(rounding{}, two_passes);
}

constexpr auto interleaved = rope_style::interleaved;
constexpr auto tensor = scale_kind::tensor;
constexpr auto head = scale_kind::head;
constexpr auto block = scale_kind::block;

}  // namespace

TEST_CASE("quantise_fp8: exact without rotation, every granularity, ragged rows") {
    for (const int rows : {1, 64, 130}) {
        check_case<bf16>({.heads = 3, .rows = rows, .head_dim = 128});
        check_case<fp16>({.heads = 2, .rows = rows, .head_dim = 64, .block_rows = 128});
    }
    check_case<bf16>({.batches = 2, .heads = 3, .rows = 150, .head_dim = 128, .block_rows = 128});
    check_case<bf16>({.batches = 2, .heads = 5, .rows = 130, .head_dim = 64, .kind = tensor});
    check_case<fp16>({.batches = 2, .heads = 4, .rows = 130, .head_dim = 80, .kind = head});
    check_case<bf16>({.batches = 2, .heads = 4, .rows = 70, .head_dim = 48, .kind = head, .heads_per_scale = 2});
    check_case<bf16>({.batches = 2, .heads = 2, .rows = 400, .head_dim = 16, .block_rows = 192});
    check_case<bf16>({.heads = 2, .rows = 100, .head_dim = 256});
    check_case<fp16>({.heads = 1, .rows = 200, .head_dim = 256, .block_rows = 128});
}

TEST_CASE("quantise_fp8: given scales, strides, head-major storage, extreme values") {
    check_case<bf16>({.heads = 2, .rows = 130, .head_dim = 64, .given = true});
    check_case<fp16>({.batches = 2, .heads = 2, .rows = 66, .head_dim = 64, .kind = head, .given = true});
    check_case<bf16>({.heads = 6, .rows = 70, .head_dim = 96, .kind = tensor, .given = true, .gap = 16});
    check_case<bf16>({.batches = 2, .heads = 3, .rows = 70, .head_dim = 64, .gap = 32, .head_major = true});
    check_case<bf16>({.heads = 2, .rows = 70, .head_dim = 64, .spread = 1e-30f});  // smaller than the smallest scale
    check_case<bf16>({.heads = 2, .rows = 70, .head_dim = 64, .kind = tensor, .spread = 0});
    check_case<bf16>({.heads = 2, .rows = 70, .head_dim = 64, .spread = 1e37f});
}

TEST_CASE("quantise_fp8: RoPE in both styles, full and partial") {
    check_case<bf16>({.heads = 5, .rows = 70, .head_dim = 128, .rotary_dim = 128, .first_position = 1000});
    check_case<fp16>({.heads = 2, .rows = 70, .head_dim = 96, .rotary_dim = 96, .positions = true});
    check_case<bf16>({.heads = 2, .rows = 70, .head_dim = 128, .rotary_dim = 32, .attention_factor = 1.25f});
    check_case<bf16>(
        {.heads = 2, .rows = 70, .head_dim = 64, .block_rows = 128, .rotary_dim = 32, .style = interleaved});
    check_case<bf16>({.batches = 2,
                      .heads = 2,
                      .rows = 70,
                      .head_dim = 80,
                      .kind = head,
                      .rotary_dim = 78,
                      .style = interleaved,
                      .positions = true});
    check_case<fp16>({.heads = 2, .rows = 5, .head_dim = 256, .rotary_dim = 64, .positions = true});
}

TEST_CASE("quantise_fp8: rotation of every kind of head_dim, with RoPE before it") {
    for (const int head_dim : {16, 64, 80, 96, 112, 128, 192, 256}) {
        check_case<bf16>({.heads = 2, .rows = 67, .head_dim = head_dim, .seed = 7});
    }
    check_case<fp16>({.batches = 2, .heads = 2, .rows = 130, .head_dim = 128, .kind = tensor, .seed = 1});
    check_case<bf16>({.heads = 5, .rows = 130, .head_dim = 128, .block_rows = 128, .rotary_dim = 128, .seed = 2});
    check_case<bf16>({.heads = 2, .rows = 40, .head_dim = 128, .rotary_dim = 64, .positions = true, .seed = 3});
    check_case<fp16>(
        {.heads = 2, .rows = 40, .head_dim = 64, .kind = head, .rotary_dim = 40, .style = interleaved, .seed = 4});
    check_case<bf16>({.heads = 2, .rows = 40, .head_dim = 96, .rotary_dim = 96, .positions = true, .seed = 5});
}

TEST_CASE("quantise_fp8: varlen and padded batches; blocks begin at the first row of a sequence") {
    for (const scale_kind kind : {tensor, head, block}) {
        check_case<bf16>({.heads = 3, .rows = 330, .head_dim = 64, .kind = kind, .starts = {0, 70, 70, 71, 200, 330}});
        check_case<bf16>({.heads = 2, .rows = 300, .head_dim = 64, .kind = kind, .starts = {65, 65, 140, 290}});
        check_case<fp16>(
            {.batches = 4, .heads = 2, .rows = 150, .head_dim = 64, .kind = kind, .used = {150, 0, 1, 70}});
    }
    check_case<bf16>({.heads = 2,
                      .rows = 330,
                      .head_dim = 128,
                      .block_rows = 128,
                      .starts = {0, 130, 130, 300},
                      .rotary_dim = 128,
                      .first_position = 5,
                      .seed = 1});
    check_case<bf16>({.heads = 2,
                      .rows = 700,
                      .head_dim = 64,
                      .block_rows = 192,
                      .starts = {3, 203, 203, 600},
                      .rotary_dim = 64,
                      .positions = true});
}

TEST_CASE("quantise_fp8: several heads per block") {
    for (const world where : worlds()) {
        for (const scale_kind kind : {tensor, head, block}) {
            CAPTURE(name_of(where));
            CAPTURE(static_cast<int>(kind));
            const int sharing = kind == head ? 2 : 1;
            quantise_trial<bf16> there(where, {.batches = 2,
                                               .heads = 6,
                                               .rows = 70,
                                               .head_dim = 64,
                                               .kind = kind,
                                               .heads_per_scale = sharing,
                                               .rotary_dim = 64,
                                               .seed = 3});
            for (const int heads_per_block : {1, 2, 3, 4, 6}) {
                CAPTURE(heads_per_block);
                launch_heads(where, there.upload(), heads_per_block);
                there.download();
                CHECK(there.compare() == decltype(there.compare()){});
            }
        }
    }
}

TEST_CASE("quantise_fp8: NaN becomes NaN and does not count, infinity saturates") {
    for (const world where : worlds()) {
        for (const scale_kind kind : {tensor, block}) {
            CAPTURE(name_of(where));
            quantise_trial<bf16> there(where, {.rows = 70, .head_dim = 64, .kind = kind});
            there.x.values[3] = bf16(NAN);
            quantise_fp8<bf16>::launch(where, there.upload());
            there.download();
            CHECK(there.compare() == decltype(there.compare()){});
            there.x.values[5] = bf16(-INFINITY);
            quantise_fp8<bf16>::launch(where, there.upload());
            there.download();
            CHECK(there.compare() == decltype(there.compare()){});
            CHECK(float(there.out.values[5]) == -448.0f);
            CHECK(std::isfinite(there.scales.values[0]));
        }
    }
}

TEST_CASE("quantise_fp8: a rotation of Q and K preserves Q K^T") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const int head_dim : {64, 96, 256}) {
            const quantise_case same{.rows = 64, .head_dim = head_dim, .seed = 5, .spread = 1};
            quantise_trial<bf16> q(where, same, 1), k(where, same, 50);
            quantise_fp8<bf16>::launch(where, q.upload());
            quantise_fp8<bf16>::launch(where, k.upload());
            q.download();
            k.download();
            double error = 0, sum = 0;
            for (int i = 0; i < 64; ++i) {
                for (int j = 0; j < 64; ++j) {
                    double wanted = 0, found = 0;
                    for (int c = 0; c < head_dim; ++c) {
                        const std::size_t a = q.at(0, 0, i, c), b = k.at(0, 0, j, c);
                        wanted += double(float(q.x.values[a])) * float(k.x.values[b]);
                        found += double(float(q.out.values[a])) * float(k.out.values[b]);
                    }
                    found *= double(q.scales.values[0]) * k.scales.values[0];
                    error += (found - wanted) * (found - wanted);
                    sum += wanted * wanted;
                }
            }
            CHECK(std::sqrt(error / sum) < 0.05);  // two roundings to 4 bits
        }
    }
}

TEST_CASE("quantise_fp8: attention_fp8 of quantised Q, K and V is close to attention of the originals") {
    using scaling = fp8_scaling::per_block<64, 128>;
    using attention = attention_fp8<fp16, attention_fp8_options{.head_dims = {64}}, causal_mask, scaling>;
    const int heads = 4, kv_heads = 2, rows = 200, head_dim = 64;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        quantise_trial<fp16> q(where, {.heads = heads, .rows = rows, .head_dim = head_dim, .seed = 9, .spread = 1}, 1);
        const quantise_case keys{.heads = kv_heads, .rows = rows, .head_dim = head_dim, .block_rows = 128, .spread = 1};
        quantise_case rotated_keys = keys;
        rotated_keys.seed = 9;
        quantise_trial<fp16> k(where, rotated_keys, 20), v(where, keys, 40);
        const auto q8 = q.upload(), k8 = k.upload(), v8 = v.upload();
        for (const auto& p : {q8, k8, v8}) quantise_fp8<fp16>::launch(where, p);
        buffer<fp16> out(where, q.x.values.size());
        attention::launch(where, {.q = q8.out,
                                  .k = k8.out,
                                  .v = v8.out,
                                  .out = batch_sequence_head(out.upload(), 1, rows, heads, head_dim),
                                  .q_descale = q8.scales.view(),
                                  .k_descale = k8.scales.view(),
                                  .v_descale = v8.scales.view()});
        out.download();
        double error = 0, sum = 0;
        for (int head = 0; head < heads; ++head) {
            for (int row = 0; row < rows; ++row) {
                std::vector<double> o(head_dim);
                double total = 0;
                for (int key = 0; key <= row; ++key) {
                    double score = 0;
                    for (int c = 0; c < head_dim; ++c) {
                        score += double(float(q.x.values[q.at(0, head, row, c)])) *
                                 float(k.x.values[k.at(0, head / 2, key, c)]);
                    }
                    const double weight = std::exp(score / std::sqrt(double(head_dim)));
                    total += weight;
                    for (int c = 0; c < head_dim; ++c) o[c] += weight * float(v.x.values[v.at(0, head / 2, key, c)]);
                }
                for (int c = 0; c < head_dim; ++c) {
                    const double wanted = o[c] / total, found = float(out.values[q.at(0, head, row, c)]);
                    error += (found - wanted) * (found - wanted);
                    sum += wanted * wanted;
                }
            }
        }
        MESSAGE("relative RMS error of attention: " << std::sqrt(error / sum));
        CHECK(std::sqrt(error / sum) < 0.08);
    }
}

TEST_CASE("quantise_fp8: empty problems do nothing; rejects invalid arguments") {
    using quantise = quantise_fp8<bf16>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        quantise::launch(where, {.x = batch_sequence_head<const bf16>(nullptr, 2, 0, 3, 64),
                                 .out = batch_sequence_head<e4m3>(nullptr, 2, 0, 3, 64),
                                 .scales = fp8_scales_per_block(nullptr, 3, 1, 64)});
        quantise_trial<bf16> there(where, {.batches = 2, .heads = 4, .rows = 70, .head_dim = 64, .rotary_dim = 64});
        const auto good = there.upload();
        const auto refused = [&](auto change) {
            auto bad = good;
            change(bad);
            return error_message_of([&] { quantise::launch(where, bad); });
        };
        CHECK(refused([](auto&) {}) == "no error");
        CHECK(refused([](auto& p) { p.x.pointer = nullptr; }) ==
              "x.pointer: null; a tensor of 2 x 4 x 70 x 64 is needed");
        CHECK(refused([](auto& p) { p.out.extents.given[2] = 71; }) ==
              "out.extents[2]: 71; x has 70 rows, and it must have as many");
        CHECK(refused([](auto& p) { p.x.extents.given[3] = p.out.extents.given[3] = 72; }) ==
              "x.extents[3]: 72; head_dim is a multiple of 16 from 16 to 256");
        CHECK(refused([](auto& p) { p.out.strides.given[1] = 72; }) ==
              "x, out: all pointers and strides must be multiples of 16 bytes");
        CHECK(refused([](auto& p) { p.out.strides.given[1] = 48; }) ==
              "out.strides[1]: 48; must be at least 64: heads must not overlap");
        CHECK(refused([](auto& p) { p.sequences = -1; }) ==
              "sequences: -1; the number of sequences must not be negative");
        CHECK(refused([](auto& p) { p.sequences = 2; }) == "x.extents[0]: 2; must be 1 for varlen");
        CHECK(refused([](auto& p) {
                  p.sequences = 2;
                  p.x.extents.given[0] = p.out.extents.given[0] = 1;
              }) == "cu_seqlens: null; 3 numbers are needed");
        CHECK(refused([](auto& p) { p.rope.rotary_dim = 66; }) ==
              "rope.rotary_dim: 66; must be even and at most head_dim, 64");
        CHECK(refused([](auto& p) { p.rope.rotary_dim = 48; }) ==
              "rope.rotary_dim: 48; with half_split it must equal head_dim, 64, or both must be powers of two from 16; "
              "otherwise call apply_rope before");
        CHECK(refused([](auto& p) { p.rope.inv_freq = nullptr; }) == "rope.inv_freq: null; 32 numbers are needed");
        CHECK(refused([&](auto& p) {
                  p.positions = there.positions.upload();
                  p.first_position = 3;
              }) == "first_position: 3; positions are given, it must be 0");
        CHECK(refused([](auto& p) { p.first_position = 2147483647; }) ==
              "first_position: 2147483647; with 70 rows the last position is beyond 2147483647");
        CHECK(refused([](auto& p) { p.scales.block_rows = 96; }) ==
              "scales.block_rows: 96; must be 0 or a multiple of 64");
        CHECK(refused([](auto& p) { p.scales.heads_per_scale = 3; }) ==
              "scales.heads_per_scale: 3; must be a divisor of the 4 heads of x");
        CHECK(refused([](auto& p) { p.scales.batch_stride = 0; }) ==
              "scales.batch_stride: 0; with scales per block it must not be 0");
        CHECK(refused([](auto& p) { p.scales.pointer = nullptr; }) == "scales.pointer: null; scales are written");
        CHECK(refused([](auto& p) {
                  p.scales = fp8_scales_per_head(p.scales.pointer, 4);
                  p.workspace = nullptr;
              }).find("96 bytes at a multiple of 4 are needed (quantise_fp8::workspace_bytes)") != std::string::npos);
        if (where == world::device) continue;
        const std::vector<int> used{70, 71}, starts{0, 90};
        CHECK(refused([&](auto& p) { p.seqused = used.data(); }) == "seqused[1]: 71; the tensor has 70 rows");
        CHECK(refused([&](auto& p) {
                  p.x.extents.given[0] = p.out.extents.given[0] = p.sequences = 1;
                  p.cu_seqlens = starts.data();
              }) == "cu_seqlens[1]: 90; the tensor has 70 rows");
    }
}

#if !defined(__CUDACC__)
TEST_CASE("quantise_fp8: no hazard in any schedule; every mutation of its synchronisation is detected") {
    for (const scale_kind kind : {tensor, head, block}) {
        CAPTURE(static_cast<int>(kind));
        quantise_trial<bf16> there(
            world::host_checked, {.heads = 3, .rows = 130, .head_dim = 64, .kind = kind, .rotary_dim = 64, .seed = 1});
        const auto p = there.upload();
        const auto work = [&] { launch_heads(world::host_checked, p, 3); };
        CHECK(text_of(host::check_launches(work, {.schedules = schedules_to_run(1000)})) == "");
        CHECK(text_of(quantise_fp8<bf16>::check(p, {.schedules = schedules_to_run(20)})) == "");
        const host::mutation_score score = host::mutate_launches(work);
        MESSAGE("all synchronisations: " << score.killed() << " / " << score.total());
        INFO(score.text());
        CHECK(score.total() > 0);
        CHECK(score.killed() == score.total());
    }
}
#endif
