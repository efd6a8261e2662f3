// The pairing style of RoPE by its name: "neox" (Llama) or "gptj".
#pragma once

#include <ATen/ATen.h>
#include <imbrex/kernels/rope/style.hpp>

#include <string>

namespace imbrex_torch {

inline imbrex::rope_style rope_style_of(const std::string& style) {
    TORCH_CHECK_VALUE(style == "neox" || style == "gptj", "style: ", style, "; must be neox or gptj");
    return style == "neox" ? imbrex::rope_style::half_split : imbrex::rope_style::interleaved;
}

}  // namespace imbrex_torch
