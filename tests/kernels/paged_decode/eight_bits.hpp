// Decode over an 8-bit paged KV cache with any scales, against a reference in double. Keys and values of the case are
// rounded to stored values times scales, which the input type holds exactly because the scales have few mantissa bits.
#pragma once

#include "kernels/paged_decode/trial.hpp"

#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <utility>

namespace imbrex_test {

enum class scales_of { nothing, all, heads, pages };

template <class In, class Cache>
class eight_bit_trial {
  public:
    eight_bit_trial(world where, const attention_test_case& given, unsigned seed, scales_of of_keys,
                    scales_of of_values)
        : there(where, given, seed),
          cache(where, there.inputs.values.size()),
          k_scales(where, std::size_t(there.at.table.pages + 1) * given.kv_heads, NAN),
          v_scales(where, k_scales.values.size(), NAN),
          of_keys_(of_keys),
          of_values_(of_values) {
        std::mt19937 random(seed + 7);
        // Unused memory is NaN or the largest value, and so are the scales of unused pages. Every head has a scale,
        // with keys or without.
        const unsigned char poison = std::is_same_v<Cache, imbrex::e4m3> ? 0x7f : 0x80;
        std::memset(cache.values.data(), poison, cache.values.size());
        for (const attention_member& one : there.members) {
            for (int head = 0; head < given.kv_heads; ++head) {
                for (int key = 0; key < one.seqlen_k; ++key) {
                    round_row(one, head, key, there.at.k, given.head_dim_qk, given.spread, k_scales, of_keys, random);
                    round_row(one, head, key, there.at.v, given.head_dim_v, 1.0f, v_scales, of_values, random);
                }
            }
        }
        for (auto [scales, kind] : {std::pair{&k_scales, of_keys}, std::pair{&v_scales, of_values}}) {
            if (kind == scales_of::pages) continue;
            for (float& one : scales->values) one = std::isnan(one) ? 1.0f : one;
        }
    }

    auto upload() {
        const auto whole = there.upload();
        imbrex::attention_problem<In, attention_output_mode::normalised, Cache> p;
        p.q = whole.q, p.out = whole.out;
        const Cache* const from = cache.upload();
        p.k = there.at.k.view(from);
        p.v = there.at.v.view(from);
        p.lse2 = whole.lse2;
        p.scale = whole.scale;
        p.sinks = whole.sinks;
        p.seqused_k = whole.seqused_k;
        p.varlen = whole.varlen;
        p.paged_kv = whole.paged_kv;
        p.k_scales = view_of(k_scales, of_keys_);
        p.v_scales = view_of(v_scales, of_values_);
        return p;
    }

    attention_trial<In> there;
    buffer<Cache> cache;
    buffer<float> k_scales, v_scales;

  private:
    imbrex::kv_cache_scales view_of(buffer<float>& scales, scales_of kind) const {
        const float* const from = scales.upload();
        return kind == scales_of::nothing ? imbrex::kv_cache_scales{}
               : kind == scales_of::all   ? imbrex::kv_cache_scales{from, 0, 0}
               : kind == scales_of::heads ? imbrex::kv_scales_per_head(from)
                                          : imbrex::kv_scales_per_page(from, there.c.kv_heads);
    }

    // Few enough mantissa bits that stored * scale is exact.
    static float random_scale(float spread, std::mt19937& random) {
        const bool wide = std::is_same_v<In, imbrex::bf16> && std::is_same_v<Cache, std::int8_t>;
        const float digits = wide ? 1.0f : 1.0f + 0.125f * float(random() % 8);
        const float largest = std::is_same_v<Cache, std::int8_t> ? 64.0f : 256.0f;
        return std::ldexp(digits, std::ilogb(spread / largest) + int(random() % 3));
    }

    void round_row(const attention_member& one, int head, int key, const tensor_layout& in, int columns, float spread,
                   buffer<float>& scales, scales_of kind, std::mt19937& random) {
        const std::size_t place = there.at.key_at(in, one, head, key);
        const int page =
            there.at.table.entries[std::size_t(one.number) * there.at.table.per_sequence + key / there.c.page_size];
        const std::size_t number = kind == scales_of::pages   ? std::size_t(page) * there.c.kv_heads + head
                                   : kind == scales_of::heads ? std::size_t(head)
                                                              : 0;
        float& scale = scales.values[number];
        if (std::isnan(scale)) scale = kind == scales_of::nothing ? 1.0f : random_scale(spread, random);
        for (int i = 0; i < columns; ++i) {
            In& value = there.inputs.values[place + i];
            // Masked keys stay as they are.
            if (!std::isfinite(float(value))) continue;
            Cache& stored = cache.values[place + i];
            stored = imbrex::convert<Cache>(float(value) / scale);
            // No value is zero: if the value of the key with nearly all of the probability were, the result would
            // consist of probabilities that are too small for fp16.
            if (&scales == &v_scales && imbrex::convert<float>(stored) == 0) stored = imbrex::convert<Cache>(1.0f);
            value = In(imbrex::convert<float>(stored) * scale);
        }
    }

    scales_of of_keys_, of_values_;
};

// Launches twice in one workspace, the second time with pdl_prefetch, in grids of the given sizes, with the chosen
// kernel and with the multi-KV-head kernels where they apply.
template <class In, class Cache, class Decode, bool Scored = false>
void check_eight_bits(const attention_test_case& given, const std::vector<int>& grids, scales_of of_keys,
                      scales_of of_values, unsigned seed = 1) {
    for (const world where : worlds()) {
        const auto check = [&](int blocks, std::optional<imbrex::decode_kernel_kind> kernel) {
            CAPTURE(name_of(where));
            CAPTURE(blocks);
            CAPTURE((kernel ? imbrex::name_of(*kernel) : "chosen"));
            CAPTURE(int(of_keys));
            CAPTURE(int(of_values));
            eight_bit_trial<In, Cache> trial(where, given, seed, of_keys, of_values);
            auto problem = trial.upload();
            buffer<int> workspace(where, Decode::workspace_bytes(where, problem, blocks) / sizeof(int), 0);
            imbrex::decode_options options;
            options.workspace = workspace.upload();
            options.blocks = blocks;
            options.kernel = kernel;
            const auto launch = [&] {
                if constexpr (Scored) {
                    Decode::launch(where, problem, options, trial.there.mask(), trial.there.score());
                } else {
                    Decode::launch(where, problem, options, trial.there.mask());
                }
            };
            launch();
            const auto bits = trial.there.download();
            const auto worst = trial.there.worst();
            CHECK(worst.out <= 1);
            CHECK(worst.lse2 <= 1);
            problem = trial.upload();
            options.pdl_prefetch = true;
            launch();
            CHECK(trial.there.download() == bits);
        };
        eight_bit_trial<In, Cache> trial(where, given, seed, of_keys, of_values);
        for (const int blocks : grids) check(blocks, {});
        for_multi_kv_head_kernels<Decode>(where, trial.upload(), 0, [&](imbrex::decode_kernel_kind kernel) {
            for (const int blocks : grids) check(blocks, kernel);
        });
    }
}

template <class In, class Cache, class Decode, bool Scored = false>
void check_random_eight_bits(unsigned seed, int cases, int head_dim) {
    for_random_decodes(seed, cases, 6, head_dim, Scored,
                       [](attention_test_case& c, int blocks, unsigned case_seed, std::mt19937& random) {
                           if (c.lie == layout::unaligned) c.lie = layout::slices;
                           const auto of_keys = static_cast<scales_of>(random() % 4),
                                      of_values = static_cast<scales_of>(random() % 4);
                           check_eight_bits<In, Cache, Decode, Scored>(c, {blocks}, of_keys, of_values, case_seed);
                       });
}

}  // namespace imbrex_test
