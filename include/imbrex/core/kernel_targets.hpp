// Which GPUs a launcher compiles kernels for.
#pragma once

namespace imbrex {

// all: Hopper kernels and the sm_80-class fallback (sm_89-class for 8-bit attention), which also takes strides that TMA cannot read.
// hopper: only the kernels for sm_90a. Other GPUs, and strides that are not multiples of 16 bytes, throw. Less to compile.
enum class kernel_targets { all, hopper };

}  // namespace imbrex
