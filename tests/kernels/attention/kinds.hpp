// Masks and scores for tests, joined of the library's and others as a user may write them, so that one kernel is compiled for many
// kinds of them.
#pragma once

#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>

namespace imbrex_test {

using imbrex::attention_extents;

// Two keys of three, or all.
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

// Full, causal, with windows, lengths and holes: with which numbers it is made decides.
using any_mask = decltype(imbrex::and_masks(imbrex::window_mask{}, imbrex::length_mask{}, two_of_three_mask{}));
using chunks_mask = decltype(imbrex::and_masks(imbrex::chunked_mask{}, imbrex::length_mask{}));

// A part of the keys, from `first` on, of a causal attention to `keys_of_all`: what ring attention masks with.
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
};

// Less for some keys.
struct own_score {
    float weight = 0;

    IMBREX_KERNEL float operator()(const attention_extents& s, int, int key, float score) const {
        return score - weight * static_cast<float>((key + s.head) % 5);
    }
};

// With slopes, numbers or a weight of zero, those change nothing.
using any_score = decltype(imbrex::score_mod::compose(softcap_or_not{}, imbrex::score_mod::alibi{},
                                                      imbrex::score_mod::additive_bias{}, own_score{}));

}  // namespace imbrex_test
