// A problem of attention_backward with random tensors, its launch in a world, and the comparison with gradients in double.
#pragma once

#include <imbrex/kernels/attention_backward.hpp>

#include "kernels/attention/kinds.hpp"
#include "kernels/attention_backward/reference.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace imbrex_test {

using namespace imbrex;

struct backward_case {
    int batches = 1, heads = 1, kv_heads = 1;
    int seqlen_q = 1, seqlen_k = 1;
    int head_dim = 64;
    int head_dim_v = 0;                             // 0: as head_dim
    std::vector<int> starts_q = {}, starts_k = {};  // varlen
    std::vector<int> used_k = {};                   // seqused_k
    int gap = 0;                                    // elements behind each row of the tensors; 1: rows are not aligned
    bool give_delta = false;                        // instead of O
    std::vector<float> sinks = {};                  // attention sinks, one per head, with their gradient

    int columns_v() const { return head_dim_v > 0 ? head_dim_v : head_dim; }
};

// Tensors [batch, sequence, head, head_dim] with random values. Gradients begin as NaN, or as `before` if they are
// accumulated.
template <class In, attention_gradients Gradients = attention_gradients::rounded>
struct backward_trial {
    using gradient = attention_gradient<In, Gradients>;
    static constexpr bool rounded = Gradients == attention_gradients::rounded;
    static constexpr float before = rounded ? 0.0f : 0.25f;
    static inline const gradient initial = gradient(rounded ? NAN : before);

    backward_case given;
    buffer<In> q, k, v, out, d_out;
    buffer<gradient> d_q, d_k, d_v;
    buffer<float> lse2, delta, sinks, d_sinks;
    buffer<int> starts_q, starts_k, used_k;
    std::optional<buffer<unsigned char>> workspace;
    float scale = 0.125f;

    backward_trial(world where, const backward_case& given, std::uint32_t seed)
        : given(given),
          q(where, queries()),
          k(where, keys()),
          v(where, values()),
          out(where, outputs()),
          d_out(where, outputs()),
          d_q(where, queries(), initial),
          d_k(where, keys(), initial),
          d_v(where, values(), initial),
          lse2(where, std::size_t(given.batches) * given.heads * given.seqlen_q, NAN),
          delta(where, lse2.values.size(), NAN),
          sinks(where, given.heads),
          d_sinks(where, given.heads, float(initial)),
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
        std::copy(given.sinks.begin(), given.sinks.end(), sinks.values.begin());
    }
    std::size_t all_of(int rows, int heads, int columns) const {
        return std::size_t(given.batches) * rows * (heads * columns + given.gap);
    }
    std::size_t queries() const { return all_of(given.seqlen_q, given.heads, given.head_dim); }
    std::size_t outputs() const { return all_of(given.seqlen_q, given.heads, given.columns_v()); }
    std::size_t keys() const { return all_of(given.seqlen_k, given.kv_heads, given.head_dim); }
    std::size_t values() const { return all_of(given.seqlen_k, given.kv_heads, given.columns_v()); }
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
                i,    given.heads, given.kv_heads, given.seqlen_q, given.seqlen_k, given.head_dim, given.columns_v(),
                scale};
            one.sizes.sinks.assign(given.sinks.begin(), given.sinks.end());
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
    std::size_t at(int member, int row, int rows, int head, int heads, int columns) const {
        return (std::size_t(member) * rows + row) * (heads * columns + given.gap) + head * columns;
    }
    // The rows of a sequence, [head, row, column].
    template <class T>
    tensor_values rows_of(const buffer<T>& from, int member, int first, int count, int rows, int heads,
                          int columns) const {
        tensor_values made;
        for (int head = 0; head < heads; ++head) {
            for (int row = 0; row < count; ++row) {
                const T* const values = &from.values[at(member, first + row, rows, head, heads, columns)];
                for (int i = 0; i < columns; ++i) made.push_back(float(values[i]));
            }
        }
        return made;
    }
    template <class T>
    tensor_values query_rows(const buffer<T>& from, const sequence& one, int columns) const {
        return rows_of(from, one.member, one.first_q, one.sizes.seqlen_q, given.seqlen_q, given.heads, columns);
    }
    template <class T>
    tensor_values key_rows(const buffer<T>& from, const sequence& one, int columns) const {
        return rows_of(from, one.member, one.first_k, one.sizes.seqlen_k, given.seqlen_k, given.kv_heads, columns);
    }

    // O and LSE of the forward pass, in double and rounded.
    template <class Keep, class Score, class Slope>
    void run_forward(const Keep& keep, const Score& score, const Slope& slope) {
        for (const sequence& one : sequences()) {
            const reference_forward made =
                attention_in_double(one.sizes, query_rows(q, one, given.head_dim), key_rows(k, one, given.head_dim),
                                    key_rows(v, one, given.columns_v()), keep, score, slope);
            std::size_t next = 0;
            for (int head = 0; head < given.heads; ++head) {
                for (int row = 0; row < one.sizes.seqlen_q; ++row) {
                    const std::size_t place =
                        at(one.member, one.first_q + row, given.seqlen_q, head, given.heads, given.columns_v());
                    double sum = 0;
                    for (int i = 0; i < given.columns_v(); ++i, ++next) {
                        out.values[place + i] = In(float(made.out[next]));
                        sum += made.out[next] * double(float(d_out.values[place + i]));
                    }
                    const std::size_t number =
                        (std::size_t(one.member) * given.heads + head) * given.seqlen_q + one.first_q + row;
                    lse2.values[number] = float(made.lse[one.sizes.query_at(head, row, 1)] * 1.4426950408889634);
                    delta.values[number] = float(sum);
                }
            }
        }
    }

    // Inputs that belong to no sequence become NaN.
    void poison_rest() {
        const auto keep = [&](auto& from, bool of_keys, int columns) {
            auto kept = from.values;
            std::fill(kept.begin(), kept.end(), In(NAN));
            each_element(of_keys, columns, [&](std::size_t place) { kept[place] = from.values[place]; });
            from.values = kept;
        };
        keep(q, false, given.head_dim);
        keep(k, true, given.head_dim);
        keep(v, true, given.columns_v());
        keep(out, false, given.columns_v());
        keep(d_out, false, given.columns_v());
    }
    // Calls each(place) for the elements of all sequences.
    template <class Each>
    void each_element(bool of_keys, int columns, const Each& each) const {
        const int heads = of_keys ? given.kv_heads : given.heads, rows = of_keys ? given.seqlen_k : given.seqlen_q;
        for (const sequence& one : sequences()) {
            const int first = of_keys ? one.first_k : one.first_q;
            for (int row = 0; row < (of_keys ? one.sizes.seqlen_k : one.sizes.seqlen_q); ++row) {
                for (int i = 0; i < heads * columns; ++i)
                    each(at(one.member, first + row, rows, 0, heads, columns) + i);
            }
        }
    }
    // Whether gradients that belong to no sequence are as before; in a padded batch they are 0 behind seqused_k.
    bool rest_is_untouched() {
        const auto untouched = [&](buffer<gradient>& found, bool of_keys, int columns) {
            std::vector<bool> written(found.values.size());
            each_element(of_keys, columns, [&](std::size_t place) { written[place] = true; });
            const int row = (of_keys ? given.kv_heads : given.heads) * columns;
            bool all = true;
            for (std::size_t i = 0; i < written.size(); ++i) {
                const float x = float(found.values[i]);
                const bool zero =
                    rounded && x == 0 && of_keys && !given.used_k.empty() && int(i % (row + given.gap)) < row;
                all = all && (written[i] || zero || (rounded ? std::isnan(x) : x == before));
            }
            return all;
        };
        return untouched(d_q, false, given.head_dim) && untouched(d_k, true, given.head_dim) &&
               untouched(d_v, true, given.columns_v());
    }

    using problem = attention_backward_problem<In, Gradients>;
    problem upload() {
        const auto view = [&](auto* pointer, int rows, int heads, int columns) {
            auto made = batch_sequence_head(pointer, given.batches, rows, heads, columns);
            made.strides.given[2] += given.gap;
            made.strides.given[0] = rows * made.strides.given[2];
            return made;
        };
        problem p{};
        p.q = view(static_cast<const In*>(q.upload()), given.seqlen_q, given.heads, given.head_dim);
        p.k = view(static_cast<const In*>(k.upload()), given.seqlen_k, given.kv_heads, given.head_dim);
        p.v = view(static_cast<const In*>(v.upload()), given.seqlen_k, given.kv_heads, given.columns_v());
        p.d_out = view(static_cast<const In*>(d_out.upload()), given.seqlen_q, given.heads, given.columns_v());
        if (given.give_delta) {
            p.delta = batch_head_rows(delta.upload(), given.heads, given.seqlen_q);
        } else {
            p.out = view(static_cast<const In*>(out.upload()), given.seqlen_q, given.heads, given.columns_v());
        }
        p.lse2 = batch_head_rows(lse2.upload(), given.heads, given.seqlen_q);
        p.d_q = view(d_q.upload(), given.seqlen_q, given.heads, given.head_dim);
        p.d_k = view(d_k.upload(), given.seqlen_k, given.kv_heads, given.head_dim);
        p.d_v = view(d_v.upload(), given.seqlen_k, given.kv_heads, given.columns_v());
        p.scale = scale;
        if (varlen()) p.varlen = {static_cast<int>(given.starts_q.size()) - 1, starts_q.upload(), starts_k.upload()};
        if (!given.used_k.empty()) p.seqused_k = used_k.upload();
        if (!given.sinks.empty()) {
            p.sinks = sinks.upload();
            p.d_sinks = d_sinks.upload();
        }
        return p;
    }
    // Gives the problem a poisoned workspace.
    void add_workspace(world where, problem& p, std::size_t bytes) {
        workspace.emplace(where, bytes + 128, static_cast<unsigned char>(0xff));
        const auto address = reinterpret_cast<std::uintptr_t>(workspace->upload());
        p.workspace = reinterpret_cast<void*>((address + 127) / 128 * 128);
        p.workspace_bytes = bytes;
    }

    // The largest errors, relative to the largest gradient of the tensor.
    struct errors {
        double d_q = 0, d_k = 0, d_v = 0, d_sinks = 0;
    };
    static double error_of(const tensor_values& found, const tensor_values& wanted) {
        double most = 1e-30, worst = 0;
        for (const double x : wanted) most = std::fmax(most, std::abs(x));
        for (std::size_t i = 0; i < found.size(); ++i) {
            const double error = std::abs(found[i] - before - wanted[i]) / std::fmax(most, 0.01);
            worst = std::isnan(error) ? INFINITY : std::fmax(worst, error);
        }
        return worst;
    }
    template <class Keep, class Score, class Slope>
    errors compare(const Keep& keep, const Score& score, const Slope& slope) {
        d_q.download();
        d_k.download();
        d_v.download();
        d_sinks.download();
        errors worst;
        tensor_values wanted_sinks(given.sinks.size());
        for (const sequence& one : sequences()) {
            const reference_gradients wanted = gradients_in_double(
                one.sizes, query_rows(q, one, given.head_dim), key_rows(k, one, given.head_dim),
                key_rows(v, one, given.columns_v()), query_rows(d_out, one, given.columns_v()), keep, score, slope);
            worst.d_q = std::fmax(worst.d_q, error_of(query_rows(d_q, one, given.head_dim), wanted.d_q));
            worst.d_k = std::fmax(worst.d_k, error_of(key_rows(d_k, one, given.head_dim), wanted.d_k));
            worst.d_v = std::fmax(worst.d_v, error_of(key_rows(d_v, one, given.columns_v()), wanted.d_v));
            for (std::size_t i = 0; i < wanted_sinks.size(); ++i) wanted_sinks[i] += wanted.d_sinks[i];
        }
        tensor_values found_sinks(d_sinks.values.begin(), d_sinks.values.begin() + wanted_sinks.size());
        worst.d_sinks = error_of(found_sinks, wanted_sinks);
        return worst;
    }
};

// The norm of the error, relative to that of the gradient and of the terms that it is the sum of.
inline double norm_of_error(const tensor_values& found, const tensor_values& wanted, double before = 0,
                            double squared_terms = 0) {
    double errors = 0, norm = squared_terms;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        errors += (found[i] - before - wanted[i]) * (found[i] - before - wanted[i]);
        norm += wanted[i] * wanted[i];
    }
    return errors == 0 ? 0 : std::isnan(errors) ? INFINITY : std::sqrt(errors / norm);
}

inline constexpr auto unchanged_score = [](const attention_extents&, int, int, double x) { return x; };
inline constexpr auto unit_slope = [](const attention_extents&, int, int, double) { return 1.0; };

template <class Backward, class In, attention_gradients Gradients = attention_gradients::rounded, class Mask,
          class Score, class ScoreInDouble, class Slope>
void check_backward(const backward_case& given, const Mask& mask, const Score& score, const ScoreInDouble& in_double,
                    const Slope& slope, std::optional<attention_kernel_kind> kernel = {}, std::uint32_t seed = 1) {
    const auto keep = [&](const attention_extents& s, int query, int key) { return mask.keep(s, query, key); };
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.seqlen_q);
        CAPTURE(given.seqlen_k);
        CAPTURE(given.head_dim);
        CAPTURE(given.columns_v());
        backward_trial<In, Gradients> there(where, given, seed);
        there.run_forward(keep, in_double, slope);
        auto problem = there.upload();
        there.add_workspace(where, problem, Backward::workspace_bytes(problem));
        if (kernel) CHECK(name_of(Backward::choice(where, problem)) == name_of(*kernel));
        Backward::launch(where, problem, mask, score);
        const auto worst = there.compare(keep, in_double, slope);
        CHECK(worst.d_q <= 0.01);
        CHECK(worst.d_k <= 0.01);
        CHECK(worst.d_v <= 0.01);
        CHECK(worst.d_sinks <= 0.01);
    }
}

}  // namespace imbrex_test
