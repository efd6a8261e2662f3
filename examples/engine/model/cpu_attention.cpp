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
void require_in_fp16(const paged_attention<float>& p) {
    const float growth = p.rope.given() ? std::numbers::sqrt2_v<float> * std::max(p.rope.attention_factor, 1.0f) : 1.0f;
    const float most = std::max(magnitude_of(p.k) * growth, magnitude_of(p.v));
    require(most <= static_cast<float>(highest_of<fp16>()), "KV cache: layer ", p.layer,
            " has keys or values of up to ", most, "; f16 ends at 65504, and the formats bf16 and f32 (--kv-cache) at ",
            highest_of<float>());
}

}  // namespace

void cpu_paged_attention(world where, const paged_attention<float>& p, kv_cache_format format, float softcap,
                         void* stream) {
    switch (kv_cache_format_on(where, format)) {
        case kv_cache_format::f32:
            return cpu_paged_attention_in<float>(where, p, softcap, stream);
        case kv_cache_format::bf16:
            return cpu_paged_attention_in<bf16>(where, p, softcap, stream);
        default:
            require_in_fp16(p);
            return cpu_paged_attention_in<fp16>(where, p, softcap, stream);
    }
}

}  // namespace imbrex::engine
