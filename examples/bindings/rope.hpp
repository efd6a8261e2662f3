// RoPE parameters as callers pass them.
#pragma once

#include "tensor.hpp"

#include <imbrex/kernels/rope/embedding.hpp>

#include <cstdint>

namespace imbrex::bindings {

// inv_freq: int64, fixed point (rope/frequencies.hpp), one per pair of columns; not given: no RoPE.
inline rope_embedding rope_of(const tensor& inv_freq, rope_style style, float attention_factor) {
    if (!inv_freq.given()) return {};
    const auto* const turns = elements_of<const std::int64_t>(inv_freq, "inv_freq");
    return {reinterpret_cast<const std::uint64_t*>(turns), static_cast<int>(2 * inv_freq.count()), style,
            attention_factor};
}

}  // namespace imbrex::bindings
