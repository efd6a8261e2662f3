// Rotary position embedding: pairs of columns of a query or key, turned by an angle that grows with its position.
//
//     const rope_frequencies frequencies{.theta = 500000, .rotary_dim = 128, .scaling = rope_llama3{.factor = 8}};
//     const std::vector<std::uint64_t> inv_freq = frequencies.fixed_point_inv_freq();          // on the host: to be copied to the device
//     const rope_embedding rope = frequencies.embedding(inv_freq_on_the_device, rope_style::half_split);
//
// A kernel takes `rotary` as an argument and asks it for the rotation of a pair at a position (rotary/embedding.hpp), which is as
// accurate at the millionth token as at the first. What it applies it with is in ops/register/rotate.hpp.
#pragma once

#include <imbrex/kernels/rope/embedding.hpp>
#include <imbrex/kernels/rope/frequencies.hpp>
