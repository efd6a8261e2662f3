// Gradients of score_mod parameters, with all kernels: an additive bias that scores share or not and ALiBi slopes, alone
// and around a softcap, whose derivative takes part in the chain rule; no hazard under schedules.
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
constexpr attention_backward_options clusters{.head_dims = {192}, .targets = kernel_targets::hopper};

enum class softcap_at { nowhere, first, between };
constexpr float cap = 1.5f;

template <softcap_at Softcap>
auto composition(const score_mod::additive_bias_with_gradient& bias, const score_mod::alibi_with_gradient& alibi) {
    const score_mod::softcap softcap{cap};
    if constexpr (Softcap == softcap_at::first) {
        return score_mod::compose(softcap, bias, alibi);
    } else if constexpr (Softcap == softcap_at::between) {
        return score_mod::compose(alibi, softcap, bias);
    } else {
        return score_mod::compose(bias, alibi);
    }
}
template <softcap_at Softcap>
using score_of = decltype(composition<Softcap>({}, {}));

template <softcap_at Softcap>
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
    score_of<Softcap> score() {
        return composition<Softcap>({{bias.upload(), batch_stride, head_stride, query_stride}, d_bias.upload()},
                                    {{slopes.upload()}, d_slopes.upload()});
    }
    std::size_t at(const attention_extents& s, int query, int key) const {
        return s.batch * batch_stride + s.head * head_stride + query * query_stride + key;
    }
    static double distance(const attention_extents& s, int query, int key) {
        return std::abs(query + s.offset() - key);
    }
    double penalty(const attention_extents& s, int query, int key) const {
        return slopes.values[s.head] * distance(s, query, key);
    }
    auto in_double() const {
        return [this](const attention_extents& s, int query, int key, double x) {
            const double before = Softcap == softcap_at::between ? penalty(s, query, key) : 0;
            const double after = Softcap == softcap_at::between ? 0 : penalty(s, query, key);
            const double capped = Softcap == softcap_at::nowhere ? x : cap * std::tanh((x - before) / cap);
            return capped + bias.values[at(s, query, key)] - after;
        };
    }
    auto slope() const {
        return [this](const attention_extents& s, int query, int key, double x) {
            const double before = Softcap == softcap_at::between ? penalty(s, query, key) : 0;
            return Softcap == softcap_at::nowhere ? 1.0 : 1 - std::pow(std::tanh((x - before) / cap), 2);
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
            const reference_gradients made = gradients_in_double(
                n, there.query_rows(there.q, one, n.head_dim_qk), there.key_rows(there.k, one, n.head_dim_qk),
                there.key_rows(there.v, one, n.head_dim_v), there.query_rows(there.d_out, one, n.head_dim_v), keep,
                in_double(), slope());
            for (int head = 0; head < n.heads; ++head) {
                const attention_extents s{one.batch, head, n.seqlen_q, n.seqlen_k};
                for (int query = 0; query < n.seqlen_q; ++query) {
                    for (int key = 0; key < n.seqlen_k; ++key) {
                        const std::size_t place = n.query_at(head, query, n.seqlen_k) + key;
                        const double before_bias = made.d_scores[place];
                        const double before_softcap = before_bias * slope()(s, query, key, made.products[place]);
                        const double d_penalty = Softcap == softcap_at::between ? before_softcap : before_bias;
                        wanted_bias[at(s, query, key)] += before_bias;
                        wanted_slopes[head] -= d_penalty * distance(s, query, key);
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

template <attention_backward_options Options, softcap_at Softcap = softcap_at::nowhere>
void check(backward_case given, bool shared_by_batch, bool shared_by_queries) {
    using backward = attention_backward<bf16, Options, causal_mask, score_of<Softcap>>;
    const auto keep = [](const attention_extents& s, int query, int key) { return key <= query + s.offset(); };
    for (const world where : worlds()) {
        for (const int gap : {0, 1}) {  // the Hopper kernel, and that for rows that are not aligned
            if (gap == 1 && Options.targets == kernel_targets::hopper) continue;
            CAPTURE(name_of(where));
            CAPTURE(gap);
            CAPTURE(shared_by_batch);
            CAPTURE(shared_by_queries);
            given.gap = gap;
            parameters<Softcap> with(where, given, shared_by_batch, shared_by_queries);
            backward_trial<bf16> there(where, given, 1);
            there.run_forward(keep, with.in_double(), with.slope());
            auto problem = there.upload();
            there.add_workspace(where, problem, backward::workspace_bytes(problem));
            backward::launch(where, problem, causal_mask{}, with.score());
            const auto worst = there.compare(keep, with.in_double(), with.slope());
            CHECK(worst.d_q <= 0.01);
            CHECK(worst.d_k <= 0.01);
            CHECK(worst.d_v <= 0.01);
            with.compare(there, keep);
        }
    }
}

// With delta: that of a rounded O would be most of the error of the slopes, in whose sums much cancels.
const backward_case two_batches{
    .batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 70, .seqlen_k = 90, .give_delta = true};

}  // namespace

TEST_CASE("attention_backward: gradients of an additive bias and of ALiBi slopes") {
    check<atomic_64>(two_batches, false, false);
    check<atomic_64>(two_batches, true, true);
    check<ordered_64>(two_batches, false, false);
    backward_case padded = two_batches;
    padded.used_k = {90, 20};
    check<atomic_64>(padded, false, false);
}

TEST_CASE("attention_backward: gradients of a bias and of slopes after a softcap, and of slopes before it") {
    check<atomic_64, softcap_at::first>(two_batches, false, true);
    check<ordered_64, softcap_at::between>(two_batches, false, false);
    backward_case wide = two_batches;
    wide.head_dim = 144;
    check<clusters, softcap_at::between>(wide, true, false);
}

#if !defined(__CUDACC__)
TEST_CASE("score_mods: the chain rule agrees with finite differences") {
    const attention_extents s{0, 1, 8, 8};
    float slopes[2] = {0.1f, 0.25f}, d_slopes[2] = {}, bias[64] = {}, d_bias[64] = {};
    const auto score =
        score_mod::compose(score_mod::softcap{2.0f}, score_mod::alibi_with_gradient{{slopes}, d_slopes},
                           score_mod::softcap{cap}, score_mod::additive_bias_with_gradient{{bias, 0, 0, 8}, d_bias});
    const int query = 7, key = 2;
    const float x = 0.8f, d_score = 3, step = 1.0f / 64;
    float d_slope = 0;
    const float d_x = backpropagate(score, s, query, key, x, d_score, d_slope);
    const auto difference = [&](float& parameter, const auto& value) {
        const float before = parameter;
        parameter = before + step;
        const float above = value();
        parameter = before - step;
        const float below = value();
        parameter = before;
        return d_score * (above - below) / (2 * step);
    };
    float at = x;
    const auto value = [&] { return score(s, query, key, at); };
    CHECK(d_x == doctest::Approx(difference(at, value)).epsilon(1e-3));
    CHECK(d_slope == doctest::Approx(difference(slopes[1], value)).epsilon(1e-2));
    CHECK(d_bias[query * 8 + key] == doctest::Approx(difference(bias[query * 8 + key], value)).epsilon(1e-3));
    CHECK(score.head_gradients() == d_slopes);
}

template <softcap_at Softcap>
void check_schedules() {
    using backward = attention_backward<bf16, atomic_64, causal_mask, score_of<Softcap>>;
    for (const int gap : {0, 1}) {
        const backward_case given{.heads = 2, .seqlen_q = 70, .seqlen_k = 70, .gap = gap};
        parameters<Softcap> with(world::host_checked, given, true, true);
        backward_trial<bf16> there(world::host_checked, given, 1);
        there.run_forward([](const attention_extents&, int, int) { return true; }, with.in_double(), with.slope());
        auto problem = there.upload();
        there.add_workspace(world::host_checked, problem, backward::workspace_bytes(problem));
        const auto found =
            backward::check(problem, {.schedules = schedules_to_run(1000) / 20}, causal_mask{}, with.score());
        INFO((found ? found->text() : std::string()));
        CHECK(!found);
    }
}
TEST_CASE("attention_backward: gradients of score_mod parameters are silent under schedules") {
    check_schedules<softcap_at::nowhere>();
    check_schedules<softcap_at::first>();
}
#endif
