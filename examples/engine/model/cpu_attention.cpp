#include "engine/model/cpu_attention.hpp"

#include <imbrex/kernels/simt_paged_attention.hpp>

namespace imbrex::engine {

namespace {

template <class Score>
void with_score(world where, const attention_problem<float>& p, int window, const Score& score, void* stream) {
    if (window == 0) {
        simt_paged_attention<float, all_simt_head_dims, causal_mask, Score>::launch(where, p, {}, score, stream);
    } else {
        simt_paged_attention<float, all_simt_head_dims, window_mask, Score>::launch(where, p, {window - 1, 0}, score,
                                                                                    stream);
    }
}

}  // namespace

void cpu_paged_attention(world where, const attention_problem<float>& p, int window, float softcap, void* stream) {
    if (softcap == 0) {
        with_score(where, p, window, score_mod::identity{}, stream);
    } else {
        with_score(where, p, window, score_mod::softcap{softcap}, stream);
    }
}

}  // namespace imbrex::engine
