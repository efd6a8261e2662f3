// Runs any case of attention through the launcher and compares it with loops in double; shared by the launcher's tests.
//
// Errors are relative to the largest possible rounding error: of the probabilities and of O in the type of the inputs,
// and of scores that are summed in fp32 and capped by the hardware's tanh. Everything that must not matter is poisoned:
// memory that belongs to no query or key, and keys that no query sees. Memory outside the outputs must be unchanged.
#pragma once

#include <imbrex/kernels/attention_forward.hpp>

#include "kernels/attention/kinds.hpp"
#include "kernels/attention/placement.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

namespace imbrex_test {

using imbrex::attention_forward;
using imbrex::attention_output_mode;
using imbrex::attention_problem;

template <class In, attention_output_mode Result = attention_output_mode::normalised>
class attention_trial {
  public:
    using out_type = imbrex::attention_out<In, Result>;
    static constexpr float nothing = std::numeric_limits<float>::quiet_NaN();
    static constexpr float cap = 5;

    attention_trial(world where, const attention_test_case& given, unsigned seed)
        : c(given),
          members(members_of(given)),
          at(given),
          inputs(where, at.inputs, In(nothing)),
          out(where, at.outputs),
          lse2(where, std::size_t(c.batches) * c.heads * c.seqlen_q),
          row_max(where, lse2.values.size()),
          row_sum(where, lse2.values.size()),
          sinks(where, c.heads),
          slopes(where, c.heads),
          bias(where, std::size_t(c.members()) * c.heads * c.seqlen_q * c.seqlen_k),
          seqused_k(where, members.size()),
          bounds(where, c.members()),
          cu_seqlens_q(where, members.size() + 1),
          cu_seqlens_k(where, members.size() + 1),
          table(where, at.table.entries.size()) {
        std::mt19937 random(seed);
        fill_random(sinks.values, seed + 1, -3, 3);
        if (c.sloped) fill_random(slopes.values, seed + 2, 0, 0.2f);
        if (c.biased) fill_random(bias.values, seed + 3, -2, 2);
        table.values = at.table.entries;
        for (std::size_t i = 0; i < members.size(); ++i) {
            bounds.values[i] = c.bounded ? int(random() % unsigned(members[i].seqlen_k + 1)) : members[i].seqlen_k;
            seqused_k.values[i] = members[i].seqlen_k;
            cu_seqlens_q.values[i + 1] = members[i].first_query + members[i].seqlen_q;
            cu_seqlens_k.values[i + 1] = members[i].first_key + members[i].seqlen_k;
        }
        fill_inputs(random);
    }

    // The problem for the launcher. Everything is sent again, and outputs are poisoned.
    attention_problem<In, Result> upload() {
        const float before = Result == attention_output_mode::merged ? -INFINITY : nothing;
        out.values.assign(out.values.size(), out_type(nothing));
        for (auto* one : {&lse2, &row_max, &row_sum}) one->values.assign(one->values.size(), before);
        attention_problem<In, Result> p;
        const In* const from = inputs.upload();
        p.q = at.q.view(from);
        p.k = at.k.view(from);
        p.v = at.v.view(from);
        p.out = at.out.view(out.upload());
        const auto rows_of = [&](buffer<float>& one) {
            return imbrex::batch_head_rows(one.upload(), c.heads, c.seqlen_q);
        };
        p.lse2 = rows_of(lse2);
        p.row_max = rows_of(row_max);
        p.row_sum = rows_of(row_sum);
        if (c.scale != 0) p.scale = c.scale;
        if (c.sinks) p.sinks = sinks.upload();
        if (!c.seqused_k.empty()) p.seqused_k = seqused_k.upload();
        if (!c.packed.empty()) p.varlen = {c.members(), cu_seqlens_q.upload(), cu_seqlens_k.upload()};
        if (c.page_size > 0) {
            p.varlen.cu_seqlens_k = nullptr;
            p.paged_kv = {table.upload(), at.table.per_sequence};
            if (c.seqlen_k != p.seqlen_k(imbrex::kv_layout::paged) || p.varlen.given())
                p.seqused_k = seqused_k.upload();
        }
        return p;
    }
    any_mask mask() {
        return imbrex::and_masks(imbrex::window_mask{c.left, c.right}, imbrex::length_mask{bounds.upload()},
                                 two_of_three_mask{c.holes});
    }
    chunks_mask mask_of_chunks() {
        return imbrex::and_masks(imbrex::chunked_mask{c.chunk}, imbrex::length_mask{bounds.upload()});
    }
    any_score score() {
        const std::int64_t head = std::int64_t(c.seqlen_q) * c.seqlen_k;
        return imbrex::score_mod::compose(
            softcap_or_not{{cap}, c.capped}, imbrex::score_mod::alibi{slopes.upload()},
            imbrex::score_mod::additive_bias{bias.upload(), c.heads * head, head, c.seqlen_k},
            imbrex_test::own_score{own_weight()});
    }

    // All bits of the outputs.
    std::vector<std::uint32_t> download() {
        out.download();
        std::vector<std::uint32_t> bits;
        for (const out_type& one : out.values) {
            if constexpr (sizeof(out_type) == 4) {
                bits.push_back(__builtin_bit_cast(std::uint32_t, one));
            } else {
                bits.push_back(one.bits);
            }
        }
        for (auto* rows : {&lse2, &row_max, &row_sum}) {
            rows->download();
            for (const float one : rows->values) bits.push_back(__builtin_bit_cast(std::uint32_t, one));
        }
        return bits;
    }

    // The maximum error relative to the largest possible rounding error: at most 1. Infinite if other memory was
    // written.
    struct errors {
        double out = 0;
        double lse2 = 0;
    };
    errors worst() {
        download();
        const std::vector<float> values(out.values.begin(), out.values.end());
        const std::vector<double> found(values.begin(), values.end());
        const std::vector<double> logarithms(lse2.values.begin(), lse2.values.end());
        errors most = compare(found, logarithms);
        each_row([&](std::size_t place, std::size_t) {
            std::fill_n(out.values.begin() + place, c.head_dim_v, out_type(nothing));
        });
        for (const out_type& one : out.values) {
            if (!std::isnan(float(one))) most.out = INFINITY;
        }
        return most;
    }

    // The same for results in double, in arrays like those of O and the LSE.
    errors compare(const std::vector<double>& found, const std::vector<double>& logarithms) const {
        const std::vector<float> numbers(inputs.values.begin(), inputs.values.end());
        const unsigned workers = std::max(1u, std::thread::hardware_concurrency());
        std::vector<errors> each(workers);
        const auto work = [&](unsigned worker) {
            unsigned number = 0;
            for (int member = 0; member < int(members.size()); ++member) {
                for (int query = 0; query < members[member].seqlen_q; ++query) {
                    for (int head = 0; head < c.heads; ++head) {
                        if (number++ % workers != worker) continue;
                        compare_row(member, query, head, numbers, found, logarithms, each[worker]);
                    }
                }
            }
        };
        std::vector<std::thread> threads;
        for (unsigned i = 1; i < workers; ++i) threads.emplace_back(work, i);
        work(0);
        for (std::thread& one : threads) one.join();
        errors most;
        for (const errors& one : each) {
            most.out = std::max(most.out, one.out);
            most.lse2 = std::max(most.lse2, one.lse2);
        }
        return most;
    }

    // Calls call(offset of the row of O, index of its LSE) for each row.
    template <class Call>
    void each_row(Call call) const {
        for (const attention_member& one : members) {
            for (int query = 0; query < one.seqlen_q; ++query) {
                for (int head = 0; head < c.heads; ++head) {
                    call(at.out.at(one.batch, head, one.first_query + query), number_of(one, head, query));
                }
            }
        }
    }

    const attention_test_case c;
    const std::vector<attention_member> members;
    const attention_placement at;
    buffer<In> inputs;
    buffer<out_type> out;
    buffer<float> lse2, row_max, row_sum, sinks, slopes, bias;
    buffer<int> seqused_k, bounds, cu_seqlens_q, cu_seqlens_k, table;

  private:
    std::size_t number_of(const attention_member& one, int head, int query) const {
        return (std::size_t(one.batch) * c.heads + head) * c.seqlen_q + one.first_query + query;
    }

    // Masks and score_mods again, written plainly.
    bool keep(int member, int head, int query, int key) const {
        const std::int64_t own = query + members[member].seqlen_k - members[member].seqlen_q;
        const bool in_window = own - key <= c.left && key - own <= c.right;
        const bool in_chunk = c.chunk == 0 || (own >= 0 && key <= own && key / c.chunk == own / c.chunk);
        const bool in_hole = c.holes && (query + 2 * key + head + member) % 3 == 1;
        return in_window && in_chunk && key < bounds.values[member] && !in_hole;
    }
    double score_of(int member, int head, int query, int key, double x) const {
        const int distance = std::abs(query + members[member].seqlen_k - members[member].seqlen_q - key);
        const std::size_t place = ((std::size_t(member) * c.heads + head) * c.seqlen_q + query) * c.seqlen_k + key;
        if (c.capped) x = cap * std::tanh(x / cap);
        return x - double(slopes.values[head]) * distance + bias.values[place] - own_weight() * ((key + head) % 5);
    }
    float own_weight() const { return c.own_score ? 0.5f : 0; }

    // Keys that no query sees are NaN or infinite; their values, which are multiplied by zero, are large.
    void fill_inputs(std::mt19937& random) {
        const auto number = [&](float spread) {
            return std::uniform_real_distribution<float>(-spread, spread)(random);
        };
        const int shared_by = c.kv_heads == 0 ? 1 : c.heads / c.kv_heads;
        for (int member = 0; member < int(members.size()); ++member) {
            const attention_member& one = members[member];
            for (int head = 0; head < c.heads; ++head) {
                for (int query = 0; query < one.seqlen_q; ++query) {
                    In* const row = &inputs.values[at.q.at(one.batch, head, one.first_query + query)];
                    for (int i = 0; i < c.head_dim_qk; ++i) row[i] = In(number(c.spread));
                }
            }
            for (int head = 0; head < c.kv_heads; ++head) {
                for (int key = 0; key < one.seqlen_k; ++key) {
                    bool seen = false;
                    for (int i = 0; i < shared_by && !seen; ++i) {
                        for (int query = 0; query < one.seqlen_q && !seen; ++query) {
                            seen = keep(member, head * shared_by + i, query, key);
                        }
                    }
                    In* const k = &inputs.values[at.key_at(at.k, one, head, key)];
                    In* const v = &inputs.values[at.key_at(at.v, one, head, key)];
                    for (int i = 0; i < c.head_dim_qk; ++i) {
                        k[i] = In(seen           ? number(c.spread)
                                  : key % 3 == 0 ? nothing
                                  : key % 3 == 1 ? INFINITY
                                                 : -INFINITY);
                    }
                    for (int i = 0; i < c.head_dim_v; ++i) v[i] = In(seen ? number(1) : 1000.0f);
                }
            }
        }
    }

    void compare_row(int member, int query, int head, const std::vector<float>& numbers,
                     const std::vector<double>& found, const std::vector<double>& logarithms, errors& most) const {
        // Half a unit in the last place of the inputs' type, relative; for fp32 outputs, with a margin for sums.
        constexpr double of_floats = 1.0 / (1 << 20);
        constexpr double rounding = std::is_same_v<In, float>          ? of_floats
                                    : std::is_same_v<In, imbrex::bf16> ? 1.0 / 256
                                                                       : 1.0 / 2048;
        const double written = sizeof(out_type) == 2 ? rounding : of_floats;
        const attention_member& one = members[member];
        const int kv_head = head / (c.heads / c.kv_heads);
        const double scale = c.scale != 0 ? double(c.scale) : 1 / std::sqrt(double(c.head_dim_qk));
        const float* const q = &numbers[at.q.at(one.batch, head, one.first_query + query)];
        std::vector<double> scores(one.seqlen_k, -INFINITY);
        double top = c.sinks ? sinks.values[head] : -INFINITY;
        double largest_sum = 0;  // of the terms of a score, which determines its accuracy
        for (int key = 0; key < one.seqlen_k; ++key) {
            if (!keep(member, head, query, key)) continue;
            const float* const k = &numbers[at.key_at(at.k, one, kv_head, key)];
            double dot = 0, magnitude = 0;
            for (int i = 0; i < c.head_dim_qk; ++i) {
                dot += double(q[i]) * k[i];
                magnitude += std::abs(double(q[i]) * k[i]);
            }
            scores[key] = score_of(member, head, query, key, dot * scale);
            largest_sum = std::max({largest_sum, magnitude * scale, std::abs(scores[key])});
            top = std::max(top, scores[key]);
        }
        // The hardware's tanh has eleven bits.
        const double score_error = of_floats * (largest_sum + cap + 1) + (c.capped ? cap * std::ldexp(1.0, -11) : 0);
        std::vector<double> expected(c.head_dim_v), magnitudes(c.head_dim_v);
        double sum = c.sinks ? std::exp(sinks.values[head] - top) : 0;
        for (int key = 0; key < one.seqlen_k; ++key) {
            if (scores[key] == -INFINITY) continue;
            const float* const v = &numbers[at.key_at(at.v, one, kv_head, key)];
            const double weight = std::exp(scores[key] - top);
            sum += weight;
            for (int i = 0; i < c.head_dim_v; ++i) {
                expected[i] += weight * v[i];
                magnitudes[i] += weight * std::abs(v[i]);
            }
        }
        const auto note = [](double& worst, double error, double allowed) {
            const double share = error <= 0 ? 0 : error / allowed;
            worst = share <= worst ? worst : std::isnan(share) ? INFINITY : share;
        };
        // fp16 probabilities that are subnormal.
        const double small_weights = std::is_same_v<In, imbrex::fp16> ? std::ldexp(1.0, -24) * one.seqlen_k : 0;
        const std::size_t place = at.out.at(one.batch, head, one.first_query + query);
        for (int i = 0; i < c.head_dim_v; ++i) {
            const double right = sum > 0 ? expected[i] / sum : 0;
            const double magnitude = sum > 0 ? magnitudes[i] / sum : 0;
            const double allowed = (rounding + 2 * score_error) * magnitude + written * std::abs(right) + small_weights;
            note(most.out, std::abs(right - found[place + i]), allowed + 1e-30);
        }
        const double right = sum > 0 ? (top + std::log(sum)) / std::log(2.0) : -INFINITY;
        const double logarithm = logarithms[number_of(one, head, query)];
        const double error = right == logarithm ? 0 : std::abs(right - logarithm);
        note(most.lse2, error, 2 * score_error + of_floats * std::abs(right) + 1e-5);
    }
};

}  // namespace imbrex_test
