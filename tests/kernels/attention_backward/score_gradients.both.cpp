// Gradients of score_mod parameters, with both kernels: an additive bias that scores share or not, ALiBi slopes, both
// together; no hazard under schedules.
#include <imbrex/kernels/attention_backward.hpp>

#include "kernels/attention_backward/trial.hpp"
#include "schedules.hpp"

#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr attention_backward_options atomic_64{.head_dims = {64}};
constexpr attention_backward_options ordered_64{.head_dims = {64}, .deterministic = true};
using bias_and_alibi =
    decltype(score_mod::compose(score_mod::additive_bias_with_gradient{}, score_mod::alibi_with_gradient{}));

struct parameters {
    std::int64_t batch_stride, head_stride, query_stride;
    buffer<float> bias, d_bias, slopes, d_slopes;

    parameters(world where, const backward_case& given, bool shared_by_batch, bool shared_by_queries)
        : query_stride(shared_by_queries ? 0 : given.seqlen_k),
          bias(where, std::size_t(given.batches) * given.heads * given.seqlen_q * given.seqlen_k),
          d_bias(where, bias.values.size(), 0.0f),
          slopes(where, given.heads),
          d_slopes(where, given.heads, 0.0f) {
        head_stride = std::int64_t{given.seqlen_q} * given.seqlen_k;
        batch_stride = shared_by_batch ? 0 : given.heads * head_stride;
        fill_random(bias.values, 11, -1, 1);
        fill_random(slopes.values, 12, 0, 0.1f);
    }
    bias_and_alibi score() {
        return {{{bias.upload(), batch_stride, head_stride, query_stride}, d_bias.upload()},
                {{slopes.upload()}, d_slopes.upload()}};
    }
    std::size_t at(const attention_extents& s, int query, int key) const {
        return s.batch * batch_stride + s.head * head_stride + query * query_stride + key;
    }
    static double distance(const attention_extents& s, int query, int key) {
        return std::abs(query + s.offset() - key);
    }
    auto in_double() const {
        return [this](const attention_extents& s, int query, int key, double x) {
            return x + bias.values[at(s, query, key)] - slopes.values[s.head] * distance(s, query, key);
        };
    }

    // Compares the gradients with those in double.
    template <class Trial, class Keep>
    void compare(const Trial& there, const Keep& keep) {
        d_bias.download();
        d_slopes.download();
        tensor_values wanted_bias(bias.values.size()), wanted_slopes(slopes.values.size());
        for (const auto& one : there.sequences()) {
            const auto& n = one.sizes;
            const reference_gradients made =
                gradients_in_double(n, there.query_rows(there.q, one, 64), there.key_rows(there.k, one, 64),
                                    there.key_rows(there.v, one, 64), there.query_rows(there.d_out, one, 64), keep,
                                    in_double(), unit_slope);
            for (int head = 0; head < n.heads; ++head) {
                const attention_extents s{one.batch, head, n.seqlen_q, n.seqlen_k};
                for (int query = 0; query < n.seqlen_q; ++query) {
                    for (int key = 0; key < n.seqlen_k; ++key) {
                        const double d_score = made.d_scores[n.query_at(head, query, n.seqlen_k) + key];
                        wanted_bias[at(s, query, key)] += d_score;
                        wanted_slopes[head] -= d_score * distance(s, query, key);
                    }
                }
            }
        }
        const auto found = [](const buffer<float>& values) {
            return tensor_values(values.values.begin(), values.values.end());
        };
        CHECK(Trial::error_of(found(d_bias), wanted_bias) <= 0.01);
        CHECK(Trial::error_of(found(d_slopes), wanted_slopes) <= 0.01);
    }
};

template <attention_backward_options Options>
void check(backward_case given, bool shared_by_batch, bool shared_by_queries) {
    using backward = attention_backward<bf16, Options, causal_mask, bias_and_alibi>;
    const auto keep = [](const attention_extents& s, int query, int key) { return key <= query + s.offset(); };
    for (const world where : worlds()) {
        for (const int gap : {0, 1}) {  // the Hopper kernel, and that for rows that are not aligned
            CAPTURE(name_of(where));
            CAPTURE(gap);
            CAPTURE(shared_by_batch);
            CAPTURE(shared_by_queries);
            given.gap = gap;
            parameters with(where, given, shared_by_batch, shared_by_queries);
            backward_trial<bf16> there(where, given, 1);
            there.run_forward(keep, with.in_double(), unit_slope);
            auto problem = there.upload();
            there.add_workspace(where, problem, backward::workspace_bytes(problem));
            backward::launch(where, problem, causal_mask{}, with.score());
            const auto worst = there.compare(keep, with.in_double(), unit_slope);
            CHECK(worst.d_q <= 0.01);
            CHECK(worst.d_k <= 0.01);
            with.compare(there, keep);
        }
    }
}

}  // namespace

TEST_CASE("attention_backward: gradients of an additive bias and of ALiBi slopes") {
    // With delta: that of a rounded O would be most of the error of the slopes, in whose sums much cancels.
    const backward_case given{
        .batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 70, .seqlen_k = 90, .give_delta = true};
    check<atomic_64>(given, false, false);
    check<atomic_64>(given, true, true);
    check<ordered_64>(given, false, false);
    backward_case padded = given;
    padded.used_k = {90, 20};
    check<atomic_64>(padded, false, false);
}

#if !defined(__CUDACC__)
TEST_CASE("attention_backward: gradients of score_mod parameters are silent under schedules") {
    using backward = attention_backward<bf16, atomic_64, causal_mask, bias_and_alibi>;
    for (const int gap : {0, 1}) {
        const backward_case given{.heads = 2, .seqlen_q = 70, .seqlen_k = 70, .gap = gap};
        parameters with(world::host_checked, given, true, true);
        backward_trial<bf16> there(world::host_checked, given, 1);
        there.run_forward([](const attention_extents&, int, int) { return true; }, with.in_double(), unit_slope);
        auto problem = there.upload();
        there.add_workspace(world::host_checked, problem, backward::workspace_bytes(problem));
        const auto found =
            backward::check(problem, {.schedules = schedules_to_run(1000) / 20}, causal_mask{}, with.score());
        INFO((found ? found->text() : std::string()));
        CHECK(!found);
    }
}
#endif
