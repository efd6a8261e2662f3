// Kernel selection for 8-bit attention.
//
//   condition                                                    kernel
//   the device is not Hopper; a pointer or stride is not a
//   multiple of 16 bytes, so that TMA cannot copy; or there
//   are no keys                                                  ada_class
//   otherwise                                                    hopper
#pragma once

#include <imbrex/kernels/attention/heuristics.hpp>

namespace imbrex {

enum class attention_fp8_kernel_kind { ada_class, hopper };

constexpr attention_fp8_kernel_kind choose_attention_fp8_kernel(const attention_dispatch& s) {
    return choose_attention_kernel(s) == attention_kernel_kind::hopper ? attention_fp8_kernel_kind::hopper
                                                                       : attention_fp8_kernel_kind::ada_class;
}

constexpr const char* name_of(attention_fp8_kernel_kind one) {
    return one == attention_fp8_kernel_kind::hopper ? "hopper" : "ada_class";
}

}  // namespace imbrex
