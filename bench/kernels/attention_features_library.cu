// What attention's forward kernels can besides the plain one, behind a C function, so that bench/kernels/attention_features.py can
// call them on PyTorch's tensors. All go through the launcher. A variant is named by its depth (of keys "x" of values where they
// differ), its mask, its score if there is one, and "relaxed" if its softmax is; heads that share keys, packed sequences, sinks
// and a counter to draw work from are any variant's.
#include <imbrex/kernels/attention_forward.hpp>

#include "attention_calls.hpp"

#include <algorithm>
#include <string>
#include <string_view>

using namespace imbrex;

// attention_features.py has the same.
struct attention_call {
    bf16* q;           // [batch, sequence, head, depth]
    bf16* k;           // [batch, sequence, key head, depth]
    bf16* v;           // [batch, sequence, key head, value depth]
    bf16* out;         // [batch, sequence, head, value depth]
    float* log2_sums;  // [batch, head, query] or null
    float* sinks;      // of each head, or null
    int* starts;       // of packed sequences, queries' and keys', or null
    void* stream;
    int sequences;  // packed ones
    int batch, queries, keys, heads, key_heads;
    int drawn;        // blocks draw their work from a counter instead of taking it in turn
    int window_left;  // of a window
    float cap;        // of a softcap
    float scale;
};

namespace {

template <attention_depths Depths>
attention_problem<bf16> described(const attention_call& call) {
    attention_problem<bf16> p{
        .q = batch_sequence_head<const bf16>(call.q, call.batch, call.queries, call.heads, Depths.key),
        .k = batch_sequence_head<const bf16>(call.k, call.batch, call.keys, call.key_heads, Depths.key),
        .v = batch_sequence_head<const bf16>(call.v, call.batch, call.keys, call.key_heads, Depths.value),
        .out = batch_sequence_head(call.out, call.batch, call.queries, call.heads, Depths.value),
        .log2_sums = batch_head_rows(call.log2_sums, call.heads, call.queries),
        .scale = call.scale,
        .sinks = call.sinks,
        .work_counter = call.drawn != 0 ? bench::work_counter() : nullptr};
    if (call.starts != nullptr) p.packed = {call.sequences, call.starts, call.starts};
    return p;
}

template <class Mask>
Mask mask_of(const attention_call&) {
    return {};
}
template <>
window_mask mask_of(const attention_call& call) {
    return {call.window_left, 0};
}
template <class Score>
Score score_of(const attention_call&) {
    return {};
}
template <>
softcap score_of(const attention_call& call) {
    return {call.cap};
}

template <attention_depths Depths, class Mask, class Score, attention_softmax Softmax>
void launch(const attention_call& call) {
    using attention = attention_forward<bf16, Mask, Score, attention_result::normalised, attention_tiles<Depths>,
                                        attention_keys::in_rows, Softmax>;
    attention::launch(world::device, described<Depths>(call), mask_of<Mask>(call), score_of<Score>(call), call.stream);
}

struct variant {
    std::string_view name;
    attention_shape shape;
    void (*launch)(const attention_call&);
};

template <attention_depths Depths, class Mask, class Score = plain_score,
          attention_softmax Softmax = attention_softmax::exact>
constexpr variant variant_of(std::string_view name) {
    return {name, attention_shape_for(Depths, attention_demand_of<Mask, Score>(), Softmax),
            launch<Depths, Mask, Score, Softmax>};
}

constexpr attention_depths unlike(192, 128);
constexpr variant variants[] = {
    variant_of<128, full_mask>("d128_full"),
    variant_of<128, causal_mask>("d128_causal"),
    variant_of<128, window_mask>("d128_window"),
    variant_of<128, full_mask, softcap>("d128_full_softcap"),
    variant_of<128, causal_mask, softcap>("d128_causal_softcap"),
    variant_of<128, full_mask, softcap, attention_softmax::relaxed>("d128_full_softcap_relaxed"),
    variant_of<128, causal_mask, softcap, attention_softmax::relaxed>("d128_causal_softcap_relaxed"),
    variant_of<96, full_mask>("d96_full"),
    variant_of<96, causal_mask>("d96_causal"),
    variant_of<96, full_mask, plain_score, attention_softmax::relaxed>("d96_full_relaxed"),
    variant_of<96, causal_mask, plain_score, attention_softmax::relaxed>("d96_causal_relaxed"),
    variant_of<unlike, full_mask>("d192x128_full"),
    variant_of<unlike, causal_mask>("d192x128_causal"),
    variant_of<192, full_mask>("d192_full"),
    variant_of<192, causal_mask>("d192_causal"),
    variant_of<256, full_mask>("d256_full"),
    variant_of<256, causal_mask>("d256_causal"),
};

const std::string& lines() {
    static const std::string text = [] {
        std::string all;
        for (const variant& one : variants) {
            all += std::string(one.name) + ' ' + std::to_string(64 * one.shape.groups) + ' ' +
                   std::to_string(one.shape.columns) + '\n';
        }
        return all;
    }();
    return text;
}

}  // namespace

extern "C" {

// The variants, a line each: name, queries and keys of a tile.
const char* imbrex_attention_features() {
    return lines().c_str();
}

const char* imbrex_attention_features_last_error() {
    return bench::last_error().c_str();
}

int imbrex_attention_features_forward(const char* name, const attention_call* call) {
    return bench::status_of([&] {
        const auto found = std::find_if(std::begin(variants), std::end(variants),
                                        [=](const variant& one) { return one.name == name; });
        require(found != std::end(variants), "name: ", name, "; there are:\n", lines());
        found->launch(*call);
    });
}

}  // extern "C"
