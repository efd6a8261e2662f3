// imbrex::paged_decode: attention of new tokens over a paged KV cache.
//
// The kernel's workspace begins with counters that must be zero and that each launch leaves at zero. Without `workspace`
// each call allocates one and clears the counters in the stream: correct on any stream and in any CUDA graph. A caller
// who keeps one, from paged_decode_workspace_bytes on and zero at first, saves that: one for launches that follow each other,
// also for those in a CUDA graph.
#include "attention_arguments.hpp"
#include "paged_kv.hpp"

#include "../../bindings/calls/paged_decode.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>

namespace imbrex_torch {

namespace {

struct decode_arguments {
    Tensor q;
    paged_kv_tensors cache;
    attention_arguments more;  // its seqused_k and cu_seqlens_q are those of the cache
    std::int64_t total_seqlen_k, split_size;
};

// The call without outputs and workspace, and the name of its variant.
std::string prepare(imbrex::bindings::paged_decode_call& call, const decode_arguments& all) {
    const paged_kv_tensors& cache = all.cache;
    require_16_bit(all.q, "q");
    require_paged_kv(all.q, "q", cache);
    require_same_device(all.q, all.more);
    TORCH_CHECK_VALUE(all.split_size >= 0 && all.split_size <= std::numeric_limits<int>::max(),
                      "split_size: ", all.split_size, "; must be 0 or a multiple of 64");
    TORCH_CHECK_VALUE(all.total_seqlen_k >= 0, "total_seqlen_k: ", all.total_seqlen_k, "; it must not be negative");
    const attention_functor mask = mask_of(all.more), score = score_of(all.more);
    give_inputs(call, all.q, cache.k_cache, cache.v_cache, all.more, mask, score);
    call.block_table = described(cache.block_table, "block_table");
    call.k_scales = described(cache.k_scales, "k_scales");
    call.v_scales = described(cache.v_scales, "v_scales");
    call.total_seqlen_k = all.total_seqlen_k;
    call.split_size = static_cast<int>(all.split_size);
    return paged_decode_variant(call, mask.type, score.type);
}

std::tuple<Tensor, Tensor> decode(const decode_arguments& all, const optional_tensor& workspace) {
    imbrex::bindings::paged_decode_call call;
    const std::string variant = prepare(call, all);
    require_same_device(all.q, {{"workspace", workspace}});
    const Tensor out = empty_output(all.q, all.cache.v_cache, all.q.scalar_type()), lse2 = empty_rows(all.q);
    call.out = described(out, "out");
    call.lse2 = described(lse2, "lse2");
    call.workspace = described(workspace, "workspace");
    execution_on(all.q).run(variant, call);
    return {out, lse2};
}

std::int64_t workspace_bytes(const decode_arguments& all) {
    imbrex::bindings::paged_decode_call call;
    const std::string variant = prepare(call, all);
    call.out = call.q;  // of the same extents, if not of the same columns
    call.out.sizes[call.out.rank - 1] = call.v.sizes[3];
    std::size_t bytes = 0;
    call.workspace_bytes_needed = &bytes;
    execution_on(all.q).run(variant, call);
    return static_cast<std::int64_t>(bytes);
}

#define IMBREX_DECODE_SCHEMA                                                                   \
    "Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor? k_scales, Tensor? " \
    "v_scales, " IMBREX_ATTENTION_SCHEMA ", int total_seqlen_k, int split_size"
#define IMBREX_DECODE_PARAMETERS                                                                       \
    const Tensor &q, const Tensor &k_cache, const Tensor &v_cache, const Tensor &block_table,          \
        const optional_tensor &k_scales, const optional_tensor &v_scales, IMBREX_ATTENTION_PARAMETERS, \
        std::int64_t total_seqlen_k, std::int64_t split_size
#define IMBREX_DECODE_ARGUMENTS                                                                              \
    decode_arguments {                                                                                       \
        with_contiguous_rows(q),                                                                             \
            {k_cache, v_cache, block_table, seqused_k.value_or(Tensor()), cu_seqlens_q, k_scales, v_scales}, \
            IMBREX_ATTENTION_ARGUMENTS, total_seqlen_k, split_size                                           \
    }

std::tuple<Tensor, Tensor> decode_operator(IMBREX_DECODE_PARAMETERS, const optional_tensor& workspace) {
    return decode(IMBREX_DECODE_ARGUMENTS, workspace);
}
std::int64_t workspace_bytes_operator(IMBREX_DECODE_PARAMETERS) {
    return workspace_bytes(IMBREX_DECODE_ARGUMENTS);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def("paged_decode(" IMBREX_DECODE_SCHEMA ", Tensor(a!)? workspace) -> (Tensor out, Tensor lse2)");
    m.def("paged_decode_workspace_bytes(" IMBREX_DECODE_SCHEMA ") -> int");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("paged_decode", decode_operator);
    m.impl("paged_decode_workspace_bytes", workspace_bytes_operator);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("paged_decode", decode_operator);
    m.impl("paged_decode_workspace_bytes", workspace_bytes_operator);
}

}  // namespace imbrex_torch
