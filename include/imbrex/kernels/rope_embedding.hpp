// RoPE parameters: inv_freq, rotary_dim, pairing style and frequency scaling (linear, Llama 3, YaRN).
//
//     const rope_frequencies frequencies{.theta = 500000, .rotary_dim = 128, .scaling = rope_llama3{.factor = 8}};
//     const std::vector<std::uint64_t> inv_freq = frequencies.fixed_point_inv_freq();  // to be copied to the device
//     const rope_embedding rope = frequencies.embedding(inv_freq_on_device, rope_style::half_split);
//
// A kernel takes the rope_embedding as an argument, which computes cos and sin of a pair at a position
// (rope/embedding.hpp), as accurately at the millionth token as at the first. ops/register/rope.hpp applies them to
// register tiles.
#pragma once

#include <imbrex/kernels/rope/embedding.hpp>
#include <imbrex/kernels/rope/frequencies.hpp>
