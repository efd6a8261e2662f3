// Attention of the GPU runner. The kernels take most of the compile time of a model, so cuda_prefill*.cu and
// cuda_decode*.cu instantiate them (cuda_attention_kernels.hpp) and compile in parallel. A head_dim that is not in the
// list uses the next larger one, padded with zeros.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>

#include <cstddef>

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

// Visible keys of a query, its own included (0: all before it), and the softcap of the scores (0: none).
struct attention_kind {
    int window = 0;
    float softcap = 0;
};

// Calls call(mask, score) with those of a kind.
template <class Call>
auto visit_attention_kind(const attention_kind& kind, const Call& call) {
    const window_mask window{kind.window > 0 ? kind.window - 1 : unbounded, 0};
    if (kind.softcap > 0) return call(window, score_mod::softcap{kind.softcap});
    return kind.window > 0 ? call(window, score_mod::identity{}) : call(causal_mask{}, score_mod::identity{});
}

template <class Mask, class Score, int... HeadDims>
struct cuda_prefill {
    static void launch(world where, const attention_problem<bf16>& p, const Mask& mask, const Score& score,
                       void* stream);
};

// Without tensor cores, for any head_dim.
template <class Element>
struct cuda_simt_attention {
    static void launch(world where, const attention_problem<Element>& p, const attention_kind& kind, void* stream);
};

template <class Mask, class Score, int... HeadDims>
struct cuda_decode {
    static std::size_t workspace_bytes(world where, const attention_problem<bf16>& p, int split_size);
    static void launch(world where, const attention_problem<bf16>& p, const Mask& mask, const Score& score,
                       void* workspace, int split_size, void* stream);
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
