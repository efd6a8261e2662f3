// Rotary position embedding: pairs of columns of a query or key, turned by an angle that grows with its position.
//
//     const rotary_frequencies frequencies{.base = 500000, .columns = 128, .scaling = rotary_llama3{.factor = 8}};
//     const std::vector<std::uint64_t> turns = frequencies.turns();          // on the host: to be copied to the device
//     const rotary_embedding rotary = frequencies.embedding(turns_on_the_device, rotary_style::half_split);
//
// A kernel takes `rotary` as an argument and asks it for the rotation of a pair at a position (rotary/embedding.hpp), which is as
// accurate at the millionth token as at the first. What it applies it with is in ops/register/rotate.hpp.
#pragma once

#include <imbrex/kernels/rotary/embedding.hpp>
#include <imbrex/kernels/rotary/frequencies.hpp>
