// The pairing style of RoPE: which two columns of a head form a pair.
#pragma once

namespace imbrex {

// The two columns of pair i, with n = rotary_dim.
enum class rope_style {
    half_split,   // i and i + n / 2, as in Llama and GPT-NeoX
    interleaved,  // 2 i and 2 i + 1, as in GPT-J
};

}  // namespace imbrex
