// imbrex_c.h as C++, and the layout of its structures on a 64-bit machine, which no later version changes.
#include <imbrex_c.h>

#include <cstddef>

static_assert(sizeof(imbrex_tensor) == 96 && offsetof(imbrex_tensor, sizes) == 16 &&
              offsetof(imbrex_tensor, strides) == 56);
static_assert(offsetof(imbrex_execution, first_seed) == 16 && offsetof(imbrex_execution, allocate_context) == 40);
static_assert(offsetof(imbrex_attention_arguments, cu_seqlens_k) == 8 + 8 * 96 &&
              offsetof(imbrex_attention_arguments, window_right) == 8 + 9 * 96 + 16);
static_assert(offsetof(imbrex_attention_backward_arguments, deterministic) == 8 + 9 * 96 + 20 &&
              offsetof(imbrex_attention_backward_arguments, d_sinks) == 8 + 9 * 96 + 24 + 5 * 96);
static_assert(offsetof(imbrex_gemm_arguments, bias) == 8 + 3 * 96);
static_assert(offsetof(imbrex_session_configuration, scale) == 40 &&
              offsetof(imbrex_session_configuration, sinks) == 64);
