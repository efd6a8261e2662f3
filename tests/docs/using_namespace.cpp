// A user's names beside `using namespace imbrex`: generic names of the library are in sub-namespaces (epilogue, score_mod, activation,
// functional), so that none of these is ambiguous. Every public header is included.
#include <imbrex/comm/bootstrap.hpp>
#include <imbrex/comm/cost_model.hpp>
#include <imbrex/comm/loopback.hpp>
#include <imbrex/comm/rank_consistency.hpp>
#include <imbrex/comm/ring_plan.hpp>
#include <imbrex/comm/schedule.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/context_parallel_decode.hpp>
#include <imbrex/kernels/decode_session.hpp>
#include <imbrex/kernels/embedding.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm_quantised.hpp>
#include <imbrex/kernels/layer_norm.hpp>
#include <imbrex/kernels/linear.hpp>
#include <imbrex/kernels/merge_lse.hpp>
#include <imbrex/kernels/moe_combine.hpp>
#include <imbrex/kernels/moe_gemm.hpp>
#include <imbrex/kernels/moe_gemm_quantised.hpp>
#include <imbrex/kernels/moe_gemv.hpp>
#include <imbrex/kernels/moe_router.hpp>
#include <imbrex/kernels/paged_append.hpp>
#include <imbrex/kernels/paged_cascade.hpp>
#include <imbrex/kernels/paged_decode.hpp>
#include <imbrex/kernels/ring_attention.hpp>
#include <imbrex/kernels/rms_norm.hpp>
#include <imbrex/kernels/rms_norm_gemm.hpp>
#include <imbrex/kernels/rope.hpp>
#include <imbrex/kernels/rope_embedding.hpp>
#include <imbrex/kernels/sample.hpp>
#include <imbrex/kernels/simt_paged_attention.hpp>
#include <imbrex/kernels/swiglu.hpp>
#include <imbrex/kernels/ulysses_attention.hpp>
#include <imbrex/kernels/ulysses_attention_backward.hpp>

#include <doctest/doctest.h>

using namespace imbrex;

int plus(int x) {
    return x;
}
int then(int x) {
    return x;
}
int to(int x) {
    return x;
}
int silu(int x) {
    return x;
}
int common(int x) {
    return x;
}
int add(int x) {
    return x;
}
int maximum(int x) {
    return x;
}
int scale(int x) {
    return x;
}
int bias(int x) {
    return x;
}
int residual(int x) {
    return x;
}
int compose(int x) {
    return x;
}
int identity(int x) {
    return x;
}
int softcap(int x) {
    return x;
}
int relu(int x) {
    return x;
}

TEST_CASE("generic names of a user are not ambiguous with the library's") {
    const int sum = plus(1) + then(1) + to(1) + silu(1) + common(1) + add(1) + maximum(1) + scale(1) + bias(1) +
                    residual(1) + compose(1) + identity(1) + softcap(1) + relu(1);
    CHECK(sum == 14);
}
