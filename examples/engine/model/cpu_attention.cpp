#include "engine/model/cpu_attention.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace imbrex::engine {

namespace {

// The largest finite magnitude.
float magnitude_of(const attention_view<const float>& view) {
    float most = 0;
    for (std::int64_t row = 0; row < view.extents[2]; ++row) {
        for (int head = 0; head < static_cast<int>(view.extents[1]); ++head) {
            const float* const from = view.at(0, head, static_cast<int>(row), 0).pointer;
            for (int i = 0; i < view.columns(); ++i) {
                const float value = std::fabs(from[i]);
                most = value <= std::numeric_limits<float>::max() && value > most ? value : most;
            }
        }
    }
    return most;
}

// RoPE may turn a pair of equal values into one that is sqrt(2) times as large, and scales it.
template <class Cache>
void require_in_range(const paged_attention<float>& p, kv_cache_format format) {
    const float growth = p.rope.given() ? std::numbers::sqrt2_v<float> * std::max(p.rope.attention_factor, 1.0f) : 1.0f;
    const float most = std::max(magnitude_of(p.k) * growth, magnitude_of(p.v));
    const auto highest = static_cast<float>(highest_of<Cache>());
    require(most <= highest, "KV cache: layer ", p.layer, " has keys or values of up to ", most, "; ", name_of(format),
            " ends at ", highest, ", and the formats bf16 and f32 (--kv-cache) at ", highest_of<float>());
}

}  // namespace

void cpu_paged_attention(world where, const paged_attention<float>& p, kv_cache_format format, float softcap,
                         void* stream) {
    switch (kv_cache_format_on(where, format)) {
        case kv_cache_format::f32:
            return cpu_paged_attention_in<float>(where, p, softcap, stream);
        case kv_cache_format::bf16:
            return cpu_paged_attention_in<bf16>(where, p, softcap, stream);
        case kv_cache_format::e4m3:
            require_in_range<e4m3>(p, kv_cache_format::e4m3);
            return cpu_paged_attention_in<e4m3>(where, p, softcap, stream);
        default:
            require_in_range<fp16>(p, kv_cache_format::f16);
            return cpu_paged_attention_in<fp16>(where, p, softcap, stream);
    }
}

}  // namespace imbrex::engine
