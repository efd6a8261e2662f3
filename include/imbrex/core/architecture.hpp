// The GPU architecture that a kernel requires: its trait `static constexpr gpu_architecture architecture`. Kernels without the trait run on
// sm_80 and newer.
#pragma once

namespace imbrex {

// sm_80: cp.async, ldmatrix, mma.sync; sm_89: mma.sync and conversions of e4m3 and e5m2; each also on every newer GPU. The others have
// instructions of their own ("a" features) and exclude each other: sm_90a TMA, wgmma and setmaxnreg; sm_100a tcgen05; sm_120a
// block-scaled mma.sync.
enum class gpu_architecture { sm_80, sm_89, sm_90a, sm_100a, sm_120a };

// The compute capability of an architecture, times ten.
constexpr int compute_capability(gpu_architecture one) {
    switch (one) {
        case gpu_architecture::sm_80:
            return 80;
        case gpu_architecture::sm_89:
            return 89;
        case gpu_architecture::sm_90a:
            return 90;
        case gpu_architecture::sm_100a:
            return 100;
        case gpu_architecture::sm_120a:
            return 120;
    }
    return 0;
}

// Whether code of a kernel, as it is in the program (version of its binary and of the PTX that it was made from), has the instructions of
// the architecture. sm_80 and sm_89 code runs on newer GPUs, too.
constexpr bool code_meets(gpu_architecture required, int binary_version, int ptx_version) {
    const int capability = compute_capability(required);
    if (required == gpu_architecture::sm_80 || required == gpu_architecture::sm_89) {
        return binary_version >= capability && ptx_version >= capability;
    }
    return binary_version == capability && ptx_version == capability;
}

}  // namespace imbrex
