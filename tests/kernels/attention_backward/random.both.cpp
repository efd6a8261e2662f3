// Random combinations of what attention_backward takes, against gradients in double: masks and score_mods whose parameters
// are drawn at run time, lengths, GQA, varlen and padded batches, strides, sinks, delta. All that belongs to no sequence is
// NaN in the inputs and stays as it was in the outputs. More than 400 cases on the device, a few small ones on the host.
#include <imbrex/kernels/attention_backward.hpp>

#include "kernels/attention/kinds.hpp"
#include "kernels/attention_backward/trial.hpp"
#include "random_below.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

using window_with_holes = decltype(and_masks(window_mask{}, two_of_three_mask{}));
using score_with_gradients = decltype(score_mod::compose(score_mod::alibi_with_gradient{}, softcap_or_not{},
                                                         score_mod::additive_bias_with_gradient{}));

struct random_backward {
    backward_case sizes;
    float scale = 0.125f;
    int left = unbounded, right = unbounded, chunk = 1;
    bool holes = false, capped = false, sloped = false, biased = false, bias_of_batches = false,
         bias_of_queries = false;
    float cap = 1;
};

random_backward random_case(std::mt19937& random, attention_head_dims head_dims, bool large) {
    const random_below below(random);
    const auto one_in = [&](int n) { return below(n) == 0; };
    const auto length = [&] { return one_in(8) ? below(3) : 1 + below(one_in(2) ? 40 : large ? 300 : 140); };
    const auto head_dim = [&](int most) { return one_in(2) ? most : 16 * (1 + below(most / 16)); };
    random_backward c;
    backward_case& sizes = c.sizes;
    sizes.kv_heads = 1 + below(2);
    sizes.heads = sizes.kv_heads * (1 + below(large ? 4 : 2));
    sizes.batches = 1 + below(large ? 3 : 2);
    sizes.seqlen_q = length();
    sizes.seqlen_k = one_in(3) ? sizes.seqlen_q : length();
    sizes.head_dim = head_dim(head_dims.qk);
    sizes.head_dim_v = one_in(2) && head_dims.qk == head_dims.v ? sizes.head_dim : head_dim(head_dims.v);
    const int gaps[] = {0, 0, 8, 40, 1, 3};
    sizes.gap = gaps[below(6)];
    for (int head = 0; one_in(3) || head > 0; ++head) {
        if (head == sizes.heads) break;
        sizes.sinks.push_back(0.25f * static_cast<float>(below(13) - 4));
    }
    const int kind = below(4);
    if (kind == 1) {
        for (int i = 0; i < sizes.batches; ++i) sizes.used_k.push_back(below(sizes.seqlen_k + 1));
    } else if (kind == 2) {
        sizes.batches = 1;
        sizes.starts_q = sizes.starts_k = {0};
        for (int i = 1 + below(large ? 5 : 3); i > 0; --i) {
            const int seqlen_q = length();
            sizes.starts_q.push_back(sizes.starts_q.back() + seqlen_q);
            sizes.starts_k.push_back(sizes.starts_k.back() + (one_in(2) ? seqlen_q : length()));
        }
        sizes.seqlen_q = sizes.starts_q.back() + below(30);
        sizes.seqlen_k = sizes.starts_k.back() + below(30);
    }
    sizes.give_delta = sizes.seqlen_q > 0 && one_in(3);
    const float scales[] = {0.02f, 0.125f, 0.125f, 0.3f};
    c.scale = scales[below(4)];
    c.left = one_in(2) ? unbounded : below(100);
    c.right = one_in(3) ? unbounded : one_in(2) ? 0 : below(60);
    c.chunk = 1 + below(150);
    c.holes = one_in(4);
    c.capped = one_in(2);
    c.sloped = one_in(2);
    c.biased = one_in(2);
    c.bias_of_batches = one_in(2);
    c.bias_of_queries = !one_in(3);
    c.cap = 0.5f + 0.5f * static_cast<float>(below(4));
    return c;
}

// The score_mod of a case, in the types of the kernel and in double, and the gradients of its parameters.
struct random_scores {
    const random_backward& c;
    int sequences, heads, rows, columns;
    buffer<float> slopes, bias, d_slopes, d_bias;

    random_scores(world where, const random_backward& c, unsigned seed)
        : c(c),
          sequences(c.sizes.starts_q.empty() ? c.sizes.batches : static_cast<int>(c.sizes.starts_q.size()) - 1),
          heads(c.sizes.heads),
          rows(std::max(1, c.sizes.seqlen_q)),
          columns(std::max(1, c.sizes.seqlen_k)),
          slopes(where, heads),
          bias(where, std::size_t(sequences) * heads * rows * columns),
          d_slopes(where, heads, 0.0f),
          d_bias(where, bias.values.size(), 0.0f) {
        if (c.sloped) fill_random(slopes.values, seed + 20, 0, 0.1f);
        if (c.biased) fill_random(bias.values, seed + 21);
    }
    std::int64_t batch_stride() const { return c.bias_of_batches ? std::int64_t{heads} * rows * columns : 0; }
    std::int64_t query_stride() const { return c.bias_of_queries ? columns : 0; }
    std::size_t at(const attention_extents& s, int query, int key) const {
        return s.batch * batch_stride() + std::int64_t{s.head} * rows * columns + query * query_stride() + key;
    }
    static double distance(const attention_extents& s, int query, int key) {
        return std::abs(query + s.offset() - key);
    }

    template <class Score>
    Score score() {
        if constexpr (std::is_same_v<Score, score_with_gradients>) {
            const score_mod::additive_bias values{bias.upload(), batch_stride(), std::int64_t{rows} * columns,
                                                  query_stride()};
            return score_mod::compose(score_mod::alibi_with_gradient{{slopes.upload()}, d_slopes.upload()},
                                      softcap_or_not{{c.cap}, c.capped},
                                      score_mod::additive_bias_with_gradient{values, d_bias.upload()});
        } else if constexpr (std::is_same_v<Score, softcap_or_not>) {
            return softcap_or_not{{c.cap}, c.capped};
        } else {
            return {};
        }
    }
    template <class Score>
    auto in_double() const {
        return [this](const attention_extents& s, int query, int key, double x) {
            if constexpr (std::is_same_v<Score, score_mod::identity>) return x;
            if constexpr (std::is_same_v<Score, softcap_or_not>) return capped(x);
            return capped(x - slopes.values[s.head] * distance(s, query, key)) + bias.values[at(s, query, key)];
        };
    }
    template <class Score>
    auto slope() const {
        return [this](const attention_extents& s, int query, int key, double x) {
            if (std::is_same_v<Score, score_mod::identity> || !c.capped) return 1.0;
            if (std::is_same_v<Score, score_with_gradients>) x -= slopes.values[s.head] * distance(s, query, key);
            return 1 - std::pow(std::tanh(x / c.cap), 2);
        };
    }
    double capped(double x) const { return c.capped ? c.cap * std::tanh(x / c.cap) : x; }
};

// The errors of all gradients, relative to their norms. Where the hardware's tanh (11 bits) takes part, a part of the error
// is proportional to the cap.
struct random_errors {
    std::map<std::string, double> most;
    double limit;

    void add(const std::string& name, double error) {
        INFO(name);
        CHECK(error <= limit);
        most[name] = std::max(most[name], error);
    }
};

template <class Score, class Trial, class Keep>
void compare(Trial& there, random_scores& scores, const Keep& keep, random_errors& errors) {
    for (auto* one : {&there.d_q, &there.d_k, &there.d_v}) one->download();
    there.d_sinks.download();
    scores.d_bias.download();
    scores.d_slopes.download();
    const backward_case& given = there.given;
    const auto in_double = scores.template in_double<Score>();
    const auto slope = scores.template slope<Score>();
    tensor_values d_bias(scores.bias.values.size()), d_slopes(given.heads), d_sinks(given.sinks.size());
    double bias_terms = 0, slope_terms = 0, sink_terms = 0;
    for (const auto& one : there.sequences()) {
        const reference_sizes& n = one.sizes;
        const reference_gradients wanted = gradients_in_double(
            n, there.query_rows(there.q, one, given.head_dim), there.key_rows(there.k, one, given.head_dim),
            there.key_rows(there.v, one, given.columns_v()), there.query_rows(there.d_out, one, given.columns_v()),
            keep, in_double, slope);
        const auto error = [&](const tensor_values& found, const tensor_values& gradient, double terms) {
            return norm_of_error(found, gradient, there.before, terms);
        };
        errors.add("d_q", error(there.query_rows(there.d_q, one, given.head_dim), wanted.d_q, wanted.terms.d_q));
        errors.add("d_k", error(there.key_rows(there.d_k, one, given.head_dim), wanted.d_k, wanted.terms.d_k));
        errors.add("d_v", error(there.key_rows(there.d_v, one, given.columns_v()), wanted.d_v, 0));
        for (std::size_t i = 0; i < d_sinks.size(); ++i) d_sinks[i] += wanted.d_sinks[i];
        sink_terms += wanted.terms.d_sinks;
        if constexpr (!score_has_gradients<Score>) continue;
        const double longest = n.seqlen_q + n.seqlen_k;
        bias_terms += wanted.terms.d_scores;
        slope_terms += wanted.terms.d_scores * longest * longest / 4;
        for (int head = 0; head < n.heads; ++head) {
            const attention_extents s{one.batch, head, n.seqlen_q, n.seqlen_k};
            for (int query = 0; query < n.seqlen_q; ++query) {
                for (int key = 0; key < n.seqlen_k; ++key) {
                    const std::size_t place = n.query_at(head, query, n.seqlen_k) + key;
                    const double d_score = wanted.d_scores[place];
                    d_bias[scores.at(s, query, key)] += d_score;
                    d_slopes[head] -=
                        d_score * slope(s, query, key, wanted.products[place]) * scores.distance(s, query, key);
                }
            }
        }
    }
    const auto values = [](const buffer<float>& from) { return tensor_values(from.values.begin(), from.values.end()); };
    errors.add("d_sinks", norm_of_error(values(there.d_sinks), d_sinks, there.before, sink_terms));
    if constexpr (score_has_gradients<Score>) {
        errors.add("d_bias", norm_of_error(values(scores.d_bias), d_bias, 0, bias_terms));
        errors.add("d_slopes", norm_of_error(values(scores.d_slopes), d_slopes, 0, slope_terms));
    }
}

template <class In, attention_backward_options Options, class Mask, class Score = score_mod::identity>
void check_random(unsigned seed, int cases) {
    using backward = attention_backward<In, Options, Mask, Score>;
    random_errors errors;
    std::map<std::string, int> used;
    for (const world where : worlds()) {
        const bool many = where == world::device;
        const int count = many ? cases : where == world::host ? 12 : 3;
        std::mt19937 random(seed);
        for (int i = 0; i < count; ++i) {
            const random_backward c = random_case(random, Options.head_dims.at(0), many);
            CAPTURE(name_of(where));
            CAPTURE(i);
            CAPTURE(c.sizes.batches);
            CAPTURE(c.sizes.heads);
            CAPTURE(c.sizes.kv_heads);
            CAPTURE(c.sizes.seqlen_q);
            CAPTURE(c.sizes.seqlen_k);
            CAPTURE(c.sizes.head_dim);
            CAPTURE(c.sizes.head_dim_v);
            CAPTURE(c.sizes.gap);
            CAPTURE(c.sizes.starts_q.size());
            CAPTURE(c.sizes.used_k.size());
            CAPTURE(c.sizes.sinks.size());
            CAPTURE(c.left);
            CAPTURE(c.right);
            CAPTURE(c.capped);
            errors.limit = (std::is_same_v<In, bf16> ? 0.006 : 0.001) + (c.capped ? 0.001 * c.cap : 0);
            Mask mask{};
            if constexpr (std::is_same_v<Mask, window_with_holes>) {
                mask = and_masks(window_mask{c.left, c.right}, two_of_three_mask{c.holes});
            } else if constexpr (std::is_same_v<Mask, chunked_mask>) {
                mask = {c.chunk};
            }
            const auto keep = [&](const attention_extents& s, int query, int key) { return mask.keep(s, query, key); };
            random_scores scores(where, c, seed + i);
            backward_trial<In, Options.gradients> there(where, c.sizes, seed + 10 * i);
            there.scale = c.scale;
            there.run_forward(keep, scores.template in_double<Score>(), scores.template slope<Score>());
            there.poison_rest();
            auto problem = there.upload();
            there.add_workspace(where, problem, backward::workspace_bytes(problem));
            backward::launch(where, problem, mask, scores.template score<Score>());
            compare<Score>(there, scores, keep, errors);
            CHECK(there.rest_is_untouched());
            ++used[name_of(backward::choice(where, problem))];
            if constexpr (Options.deterministic && Options.gradients == attention_gradients::rounded) {
                const auto first = there.d_q.values;
                backward::launch(where, problem, mask, scores.template score<Score>());
                there.d_q.download();
                bool same = true;
                for (std::size_t at = 0; at < first.size(); ++at)
                    same = same && first[at].bits == there.d_q.values[at].bits;
                CHECK(same);
            }
        }
    }
    for (const auto& [kernel, times] : used) MESSAGE(kernel << " " << times);
    for (const auto& [name, error] : errors.most) MESSAGE(name << ": errors up to " << error);
}

constexpr attention_backward_options of(attention_head_dims head_dims) {
    return {.head_dims = {head_dims}};
}
constexpr attention_backward_options ordered(attention_head_dims head_dims) {
    return {.head_dims = {head_dims}, .deterministic = true};
}

}  // namespace

TEST_CASE("random attention backward: bf16, windows and holes, score_mods with gradients") {
    check_random<bf16, of(64), window_with_holes, score_with_gradients>(1000, 80);
}

TEST_CASE("random attention backward: bf16, deterministic, causal") {
    check_random<bf16, ordered(64), causal_mask>(2000, 50);
}

#if !defined(IMBREX_FEW_SHAPES)
TEST_CASE("random attention backward: bf16, head_dim 128, windows and holes, softcap") {
    check_random<bf16, of(128), window_with_holes, softcap_or_not>(3000, 60);
}

TEST_CASE("random attention backward: fp16, head_dim 96, chunks") {
    check_random<fp16, of(96), chunked_mask>(4000, 60);
}

TEST_CASE("random attention backward: bf16, head_dim_qk 192, head_dim_v 128, windows and holes") {
    check_random<bf16, of({192, 128}), window_with_holes>(5000, 50);
}

TEST_CASE("random attention backward: fp16, head_dim 256, causal, softcap") {
    check_random<fp16, of(256), causal_mask, softcap_or_not>(6000, 50);
}

TEST_CASE("random attention backward: fp16, head_dim 128, deterministic, causal") {
    check_random<fp16, ordered(128), causal_mask>(7000, 50);
}

TEST_CASE("random attention backward: bf16, head_dim 256, deterministic, full") {
    check_random<bf16, ordered(256), full_mask>(8000, 40);
}

TEST_CASE("random attention backward: bf16, head_dim 64, accumulated gradients, causal") {
    check_random<bf16, attention_backward_options{.head_dims = {64}, .gradients = attention_gradients::accumulated},
                 causal_mask>(9000, 50);
}
#endif
