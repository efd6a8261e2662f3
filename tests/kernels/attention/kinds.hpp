// Masks and score_mods for tests, composed of the library's and custom ones, so that one compiled kernel covers many
// kinds.
#pragma once

#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>

namespace imbrex_test {

using imbrex::attention_extents;

// Two of three keys, or all.
struct two_of_three_mask {
    bool hides = false;

    IMBREX_FN imbrex::key_range visible_keys(const attention_extents& s, imbrex::query_range) const {
        return {0, s.seqlen_k};
    }
    IMBREX_FN bool fully_unmasked(const attention_extents&, imbrex::query_range, imbrex::key_range) const {
        return !hides;
    }
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        return !hides || (query + 2 * key + s.head + s.batch) % 3 != 1;
    }
};

// Full, causal, window, length or with holes, depending on its parameters.
using any_mask = decltype(imbrex::and_masks(imbrex::window_mask{}, imbrex::length_mask{}, two_of_three_mask{}));
using chunks_mask = decltype(imbrex::and_masks(imbrex::chunked_mask{}, imbrex::length_mask{}));

// A part of the keys, from `first` on, of causal attention to `keys_of_all` keys: the mask of ring attention.
struct part_of_causal_mask {
    int first = 0;
    int keys_of_all = 0;

    IMBREX_FN int own(const attention_extents& s, int query) const { return query + keys_of_all - s.seqlen_q - first; }
    IMBREX_FN imbrex::key_range visible_keys(const attention_extents& s, imbrex::query_range q) const {
        return {0, own(s, q.end)};
    }
    IMBREX_FN bool fully_unmasked(const attention_extents& s, imbrex::query_range q, imbrex::key_range k) const {
        return k.end <= own(s, q.first) + 1;
    }
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const { return key <= own(s, query); }
};

struct softcap_or_not {
    imbrex::score_mod::softcap bent{};
    bool applies = false;

    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        return applies ? bent(s, query, key, score) : score;
    }
    IMBREX_KERNEL float derivative(const attention_extents& s, int query, int key, float score) const {
        return applies ? bent.derivative(s, query, key, score) : 1.0f;
    }
};

// Lower scores for some keys.
struct own_score {
    float weight = 0;

    IMBREX_KERNEL float operator()(const attention_extents& s, int, int key, float score) const {
        return score - weight * static_cast<float>((key + s.head) % 5);
    }
};

// With slopes, bias or weight zero, the respective part changes nothing.
using any_score = decltype(imbrex::score_mod::compose(softcap_or_not{}, imbrex::score_mod::alibi{},
                                                      imbrex::score_mod::additive_bias{}, own_score{}));

}  // namespace imbrex_test
