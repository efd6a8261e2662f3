// The kernels behind cpu_attention.hpp.
#pragma once

#include <imbrex/kernels/paged_append.hpp>
#include <imbrex/kernels/simt_paged_attention.hpp>

#include "engine/model/cpu_attention.hpp"

namespace imbrex::engine {

template <class Cache>
void cpu_paged_attention_in(world where, const paged_attention<float>& p, float softcap, void* stream) {
    paged_append<float, Cache>::launch(where, append_problem_of<Cache>(p), stream);
    // Without a window, that of the whole sequence: one kernel less to compile.
    const window_mask mask{p.window == 0 ? unbounded : p.window - 1, 0};
    const auto problem = attention_problem_of<Cache>(p);
    const auto attend = [&]<class Score>(const Score& score) {
        simt_paged_attention<float, all_simt_head_dims, window_mask, Score, Cache>::launch(where, problem, mask, score,
                                                                                           stream);
    };
    if (softcap == 0) {
        attend(score_mod::identity{});
    } else {
        attend(score_mod::softcap{softcap});
    }
}

}  // namespace imbrex::engine
