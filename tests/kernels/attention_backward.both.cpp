// attention_backward against gradients in double: head dims, masks, score_mods, GQA, lengths, varlen and padded batches,
// what lies behind the end of a sequence, argument checks, and schedules of the checker.
#include <imbrex/hw/host/mutate.hpp>
#include <imbrex/kernels/attention_backward.hpp>

#include "kernels/attention/kinds.hpp"
#include "kernels/attention_backward/reference.hpp"
#include "schedules.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

struct backward_case {
    int batches = 1, heads = 1, kv_heads = 1;
    int seqlen_q = 1, seqlen_k = 1;
    int head_dim = 64;
    std::vector<int> starts_q = {}, starts_k = {};  // varlen
    std::vector<int> used_k = {};                   // seqused_k
};

// Tensors [batch, sequence, head, head_dim] with random values, and NaN behind the end of every sequence.
template <class In>
struct backward_trial {
    backward_case given;
    buffer<In> q, k, v, out, d_out, d_q, d_k, d_v;
    buffer<float> lse2;
    buffer<int> starts_q, starts_k, used_k;
    std::optional<buffer<unsigned char>> workspace;
    float scale = 0.125f;

    backward_trial(world where, const backward_case& given, std::uint32_t seed)
        : given(given),
          q(where, queries()),
          k(where, keys()),
          v(where, keys()),
          out(where, queries()),
          d_out(where, queries()),
          d_q(where, queries(), In(NAN)),
          d_k(where, keys(), In(NAN)),
          d_v(where, keys(), In(NAN)),
          lse2(where, std::size_t(given.batches) * given.heads * given.seqlen_q, NAN),
          starts_q(where, std::max<std::size_t>(1, given.starts_q.size())),
          starts_k(where, std::max<std::size_t>(1, given.starts_k.size())),
          used_k(where, std::max<std::size_t>(1, given.used_k.size())) {
        fill_random(q.values, seed, -2, 2);
        fill_random(k.values, seed + 1, -2, 2);
        fill_random(v.values, seed + 2);
        fill_random(d_out.values, seed + 3);
        std::copy(given.starts_q.begin(), given.starts_q.end(), starts_q.values.begin());
        std::copy(given.starts_k.begin(), given.starts_k.end(), starts_k.values.begin());
        std::copy(given.used_k.begin(), given.used_k.end(), used_k.values.begin());
    }
    std::size_t queries() const { return std::size_t(given.batches) * given.seqlen_q * given.heads * given.head_dim; }
    std::size_t keys() const { return std::size_t(given.batches) * given.seqlen_k * given.kv_heads * given.head_dim; }
    bool varlen() const { return !given.starts_q.empty(); }

    // The sequences: batch entry of the tensors, first row and number of rows.
    struct sequence {
        int batch, member, first_q, first_k;
        reference_sizes sizes;
    };
    std::vector<sequence> sequences() const {
        std::vector<sequence> made;
        const int count = varlen() ? static_cast<int>(given.starts_q.size()) - 1 : given.batches;
        for (int i = 0; i < count; ++i) {
            sequence one{i, varlen() ? 0 : i, 0, 0, {}};
            one.sizes = {
                i, given.heads, given.kv_heads, given.seqlen_q, given.seqlen_k, given.head_dim, given.head_dim, scale};
            if (varlen()) {
                one.first_q = given.starts_q[i];
                one.first_k = given.starts_k[i];
                one.sizes.seqlen_q = given.starts_q[i + 1] - given.starts_q[i];
                one.sizes.seqlen_k = given.starts_k[i + 1] - given.starts_k[i];
            }
            if (!given.used_k.empty()) one.sizes.seqlen_k = given.used_k[i];
            made.push_back(one);
        }
        return made;
    }
    std::size_t at(int member, int row, int rows, int head, int heads) const {
        return ((std::size_t(member) * rows + row) * heads + head) * given.head_dim;
    }
    // The rows of a sequence, [head, row, column].
    tensor_values rows_of(const buffer<In>& from, int member, int first, int count, int rows, int heads) const {
        tensor_values made;
        for (int head = 0; head < heads; ++head) {
            for (int row = 0; row < count; ++row) {
                for (int i = 0; i < given.head_dim; ++i) {
                    made.push_back(float(from.values[at(member, first + row, rows, head, heads) + i]));
                }
            }
        }
        return made;
    }
    tensor_values query_rows(const buffer<In>& from, const sequence& one) const {
        return rows_of(from, one.member, one.first_q, one.sizes.seqlen_q, given.seqlen_q, given.heads);
    }
    tensor_values key_rows(const buffer<In>& from, const sequence& one) const {
        return rows_of(from, one.member, one.first_k, one.sizes.seqlen_k, given.seqlen_k, given.kv_heads);
    }

    // O and LSE of the forward pass, in double and rounded.
    template <class Keep, class Score, class Slope>
    void run_forward(const Keep& keep, const Score& score, const Slope& slope) {
        for (const sequence& one : sequences()) {
            const reference_forward made = attention_in_double(one.sizes, query_rows(q, one), key_rows(k, one),
                                                               key_rows(v, one), keep, score, slope);
            std::size_t next = 0;
            for (int head = 0; head < given.heads; ++head) {
                for (int row = 0; row < one.sizes.seqlen_q; ++row) {
                    const std::size_t place = at(one.member, one.first_q + row, given.seqlen_q, head, given.heads);
                    for (int i = 0; i < given.head_dim; ++i) out.values[place + i] = In(float(made.out[next++]));
                    lse2.values[(std::size_t(one.member) * given.heads + head) * given.seqlen_q + one.first_q + row] =
                        float(made.lse[one.sizes.query_at(head, row, 1)] * 1.4426950408889634);
                }
            }
        }
    }

    attention_backward_problem<In> upload() {
        const auto view = [&](auto* pointer, int rows, int heads) {
            return batch_sequence_head(pointer, given.batches, rows, heads, given.head_dim);
        };
        attention_backward_problem<In> p{};
        p.q = view(static_cast<const In*>(q.upload()), given.seqlen_q, given.heads);
        p.k = view(static_cast<const In*>(k.upload()), given.seqlen_k, given.kv_heads);
        p.v = view(static_cast<const In*>(v.upload()), given.seqlen_k, given.kv_heads);
        p.out = view(static_cast<const In*>(out.upload()), given.seqlen_q, given.heads);
        p.d_out = view(static_cast<const In*>(d_out.upload()), given.seqlen_q, given.heads);
        p.lse2 = batch_head_rows(lse2.upload(), given.heads, given.seqlen_q);
        p.d_q = view(d_q.upload(), given.seqlen_q, given.heads);
        p.d_k = view(d_k.upload(), given.seqlen_k, given.kv_heads);
        p.d_v = view(d_v.upload(), given.seqlen_k, given.kv_heads);
        p.scale = scale;
        if (varlen()) p.varlen = {static_cast<int>(given.starts_q.size()) - 1, starts_q.upload(), starts_k.upload()};
        if (!given.used_k.empty()) p.seqused_k = used_k.upload();
        return p;
    }
    // Gives the problem a poisoned workspace.
    void add_workspace(world where, attention_backward_problem<In>& p, std::size_t bytes) {
        workspace.emplace(where, bytes + 128, static_cast<unsigned char>(0xff));
        const auto address = reinterpret_cast<std::uintptr_t>(workspace->upload());
        p.workspace = reinterpret_cast<void*>((address + 127) / 128 * 128);
        p.workspace_bytes = bytes;
    }

    // The largest errors, relative to the largest gradient of the tensor.
    struct errors {
        double d_q = 0, d_k = 0, d_v = 0;
    };
    static double error_of(const tensor_values& found, const tensor_values& wanted) {
        double most = 1e-30, worst = 0;
        for (const double x : wanted) most = std::fmax(most, std::abs(x));
        for (std::size_t i = 0; i < found.size(); ++i) {
            const double error = std::abs(found[i] - wanted[i]) / std::fmax(most, 0.01);
            worst = std::isnan(error) ? INFINITY : std::fmax(worst, error);
        }
        return worst;
    }
    template <class Keep, class Score, class Slope>
    errors compare(const Keep& keep, const Score& score, const Slope& slope) {
        d_q.download();
        d_k.download();
        d_v.download();
        errors worst;
        for (const sequence& one : sequences()) {
            const reference_gradients wanted =
                gradients_in_double(one.sizes, query_rows(q, one), key_rows(k, one), key_rows(v, one),
                                    query_rows(d_out, one), keep, score, slope);
            worst.d_q = std::fmax(worst.d_q, error_of(query_rows(d_q, one), wanted.d_q));
            worst.d_k = std::fmax(worst.d_k, error_of(key_rows(d_k, one), wanted.d_k));
            worst.d_v = std::fmax(worst.d_v, error_of(key_rows(d_v, one), wanted.d_v));
        }
        return worst;
    }
};

const auto unchanged = [](const attention_extents&, int, int, double x) { return x; };
const auto one = [](const attention_extents&, int, int, double) { return 1.0; };

template <class Backward, class In, class Mask, class Score, class ScoreInDouble, class Slope>
void check_with(const backward_case& given, const Mask& mask, const Score& score, const ScoreInDouble& in_double,
                const Slope& slope, std::uint32_t seed = 1) {
    const auto keep = [&](const attention_extents& s, int query, int key) { return mask.keep(s, query, key); };
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.seqlen_q);
        CAPTURE(given.seqlen_k);
        CAPTURE(given.head_dim);
        backward_trial<In> there(where, given, seed);
        there.run_forward(keep, in_double, slope);
        auto problem = there.upload();
        there.add_workspace(where, problem, Backward::workspace_bytes(problem));
        Backward::launch(where, problem, mask, score);
        const auto worst = there.compare(keep, in_double, slope);
        CHECK(worst.d_q <= 0.01);
        CHECK(worst.d_k <= 0.01);
        CHECK(worst.d_v <= 0.01);
    }
}
template <class Mask>
void check(const backward_case& given, const Mask& mask) {
    check_with<attention_backward<bf16, attention_options{.head_dims = {64, 128}}, Mask>, bf16>(
        given, mask, score_mod::identity{}, unchanged, one);
}

}  // namespace

TEST_CASE("attention_backward: full and causal, lengths that do not fill blocks, GQA") {
    for (const int head_dim : {64, 128}) {
        check({.seqlen_q = 128, .seqlen_k = 128, .head_dim = head_dim}, full_mask{});
        check({.seqlen_q = 1, .seqlen_k = 1, .head_dim = head_dim}, full_mask{});
        check({.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 150, .seqlen_k = 270, .head_dim = head_dim},
              causal_mask{});
    }
    check({.heads = 3, .kv_heads = 1, .seqlen_q = 300, .seqlen_k = 40}, causal_mask{});  // queries without keys
    for (const int head_dim : {16, 48, 80, 96}) {
        check({.seqlen_q = 70, .seqlen_k = 140, .head_dim = head_dim}, causal_mask{});
    }
}

TEST_CASE("attention_backward: window, chunks, and a mask that is only a function of positions") {
    check({.seqlen_q = 300, .seqlen_k = 330}, window_mask{70, 10});
    check({.seqlen_q = 300, .seqlen_k = 330}, chunked_mask{100});
    check({.batches = 2, .heads = 2, .seqlen_q = 200, .seqlen_k = 140}, two_of_three_mask{true});
}

TEST_CASE("attention_backward: softcap with its derivative, and a score_mod that adds a term") {
    const float cap = 1.5f;
    using softcap = attention_backward<bf16, attention_options{.head_dims = {64}}, causal_mask, score_mod::softcap>;
    check_with<softcap, bf16>(
        {.heads = 2, .seqlen_q = 130, .seqlen_k = 140}, causal_mask{}, score_mod::softcap{cap},
        [&](const attention_extents&, int, int, double x) { return cap * std::tanh(x / cap); },
        [&](const attention_extents&, int, int, double x) { return 1 - std::pow(std::tanh(x / cap), 2); });
    using own = attention_backward<bf16, attention_options{.head_dims = {64}}, full_mask, own_score>;
    check_with<own, bf16>(
        {.heads = 2, .seqlen_q = 70, .seqlen_k = 140}, full_mask{}, own_score{0.3f},
        [](const attention_extents& s, int, int key, double x) { return x - 0.3 * ((key + s.head) % 5); }, one);
}

TEST_CASE("attention_backward: fp16") {
    using half = attention_backward<fp16, attention_options{.head_dims = {64}}, causal_mask>;
    check_with<half, fp16>({.seqlen_q = 130, .seqlen_k = 140}, causal_mask{}, score_mod::identity{}, unchanged, one);
}

TEST_CASE("attention_backward: varlen; NaN behind the end of a sequence has no effect") {
    backward_case given{.heads = 2, .seqlen_q = 400, .seqlen_k = 400};
    given.starts_q = {0, 130, 130, 190, 390};
    given.starts_k = {0, 70, 200, 290, 390};
    check(given, causal_mask{});
    using backward = attention_backward<bf16, attention_options{.head_dims = {64}}>;
    const auto all = [](const attention_extents&, int, int) { return true; };
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        backward_trial<bf16> there(where, given, 1);
        there.run_forward(all, unchanged, one);
        // Rows 130 to 189 of Q and dO belong to the third sequence, keys 200 to 289, too: they are NaN.
        const std::size_t row = 2 * 64;
        for (auto* values : {&there.q.values, &there.d_out.values}) {
            std::fill(values->begin() + 130 * row, values->begin() + 190 * row, bf16(NAN));
        }
        for (auto* values : {&there.k.values, &there.v.values}) {
            std::fill(values->begin() + 200 * 64, values->begin() + 290 * 64, bf16(NAN));
        }
        auto problem = there.upload();
        there.add_workspace(where, problem, backward::workspace_bytes(problem));
        backward::launch(where, problem);
        there.d_q.download();
        there.d_k.download();
        const auto first_nan = [](const auto& values, std::size_t begin, std::size_t end) {
            while (begin < end && !std::isnan(float(values[begin]))) ++begin;
            return begin;
        };
        CHECK(first_nan(there.d_q.values, 0, 130 * row) == 130 * row);
        CHECK(first_nan(there.d_q.values, 190 * row, 390 * row) == 390 * row);
        CHECK(first_nan(there.d_k.values, 0, 200 * 64) == 200 * 64);
        CHECK(first_nan(there.d_k.values, 290 * 64, 390 * 64) == 390 * 64);
    }
}

TEST_CASE("attention_backward: a padded batch; keys behind seqused_k get zeros") {
    backward_case given{.batches = 3, .heads = 2, .seqlen_q = 100, .seqlen_k = 300};
    given.used_k = {300, 0, 140};
    check(given, causal_mask{});
    using backward = attention_backward<bf16, attention_options{.head_dims = {64}}>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        backward_trial<bf16> there(where, given, 1);
        there.run_forward([](const attention_extents&, int, int) { return true; }, unchanged, one);
        std::fill(there.v.values.begin() + (2 * 300 + 140) * 64, there.v.values.end(), bf16(NAN));
        std::fill(there.k.values.begin() + (2 * 300 + 140) * 64, there.k.values.end(), bf16(NAN));
        auto problem = there.upload();
        there.add_workspace(where, problem, backward::workspace_bytes(problem));
        backward::launch(where, problem);
        there.d_k.download();
        there.d_v.download();
        for (int i = (2 * 300 + 140) * 64; i < 3 * 300 * 64; ++i) {
            REQUIRE(float(there.d_k.values[i]) == 0);
            REQUIRE(float(there.d_v.values[i]) == 0);
        }
        for (int i = 300 * 64; i < 2 * 300 * 64; ++i) REQUIRE(float(there.d_v.values[i]) == 0);
    }
}

TEST_CASE("attention_backward: no queries, no keys, and invalid arguments") {
    using backward = attention_backward<bf16, attention_options{.head_dims = {64}}>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        backward_trial<bf16> without_queries(where, {.seqlen_q = 0, .seqlen_k = 70}, 1);
        auto problem = without_queries.upload();
        CHECK(backward::workspace_bytes(problem) == 0);
        backward::launch(where, problem);
        without_queries.d_k.download();
        for (const bf16 x : without_queries.d_k.values) REQUIRE(float(x) == 0);

        backward_trial<bf16> without_keys(where, {.seqlen_q = 70, .seqlen_k = 0}, 1);
        std::fill(without_keys.out.values.begin(), without_keys.out.values.end(), bf16(0.0f));
        std::fill(without_keys.lse2.values.begin(), without_keys.lse2.values.end(), -INFINITY);
        problem = without_keys.upload();
        without_keys.add_workspace(where, problem, backward::workspace_bytes(problem));
        backward::launch(where, problem);
        without_keys.d_q.download();
        for (const bf16 x : without_keys.d_q.values) REQUIRE(float(x) == 0);

        backward_trial<bf16> there(where, {.seqlen_q = 70, .seqlen_k = 70}, 1);
        problem = there.upload();
        const auto message = [&](const auto& broken) {
            return error_message_of([&] { backward::launch(where, broken); });
        };
        CHECK(message(problem).find("workspace_bytes: 0; at least ") == 0);
        problem.workspace_bytes = backward::workspace_bytes(problem);
        CHECK(message(problem).find("workspace: null; ") == 0);
        there.add_workspace(where, problem, problem.workspace_bytes);
        auto broken = problem;
        broken.d_k.extents.given[2] = 69;
        CHECK(message(broken) == "d_k.extents[2]: 69; k has 70 rows, and it must have as many");
        broken = problem;
        broken.lse2.pointer = nullptr;
        CHECK(message(broken) == "lse2.pointer: null; 1 x 1 x 70 numbers are needed");
        broken = problem;
        broken.d_out.strides.given[2] = 63;
        CHECK(message(broken) ==
              "q, k, v, out, d_out, d_q, d_k, d_v: all pointers and strides must be multiples of 16 bytes");
        broken = problem;
        broken.workspace = static_cast<char*>(broken.workspace) + 16;
        CHECK(message(broken).find("; must be aligned to 128 bytes") != std::string::npos);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("attention_backward: silent under many schedules, and every mutation is detected") {
    using backward = attention_backward<bf16, attention_options{.head_dims = {64}}, causal_mask>;
    backward_case given{.heads = 2, .kv_heads = 1, .seqlen_q = 400, .seqlen_k = 240};
    given.starts_q = {0, 290, 400};  // the last block of each sequence is not full
    given.starts_k = {0, 100, 240};
    backward_trial<bf16> there(world::host_checked, given, 1);
    there.run_forward([](const attention_extents& s, int query, int key) { return key <= query + s.offset(); },
                      unchanged, one);
    auto problem = there.upload();
    there.add_workspace(world::host_checked, problem, backward::workspace_bytes(problem));
    const auto found = backward::check(problem, {.schedules = schedules_to_run(1000)});
    INFO((found ? found->text() : std::string()));
    CHECK(!found);
    const auto launch = [&] { backward::launch(world::host_checked, problem); };
    const host::mutation_score score = host::mutate_launches(launch, {.schedules = schedules_to_run(100)});
    INFO(score.text());
    CHECK(score.total() > 80);
    CHECK(score.killed() == score.total());
}
#endif
