// A complete Llama model of one layer as a GGUF file, for tests that change it.
#pragma once

#include "engine/loading/gguf_builder.hpp"

namespace imbrex::engine::test {

inline gguf_builder small_gguf_keys() {
    gguf_builder builder;
    builder.string("general.architecture", "llama").whole("llama.block_count", 1).whole("llama.embedding_length", 4);
    builder.whole("llama.feed_forward_length", 3).whole("llama.context_length", 8);
    builder.whole("llama.attention.head_count", 2).real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    builder.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", {"a", "b", "c"});
    return builder.numbers<float>("tokenizer.ggml.scores", 6, {0, 0, 0});
}

// Tensors first to last - 1 of the 11.
inline gguf_builder& add_small_tensors(gguf_builder& builder, int first = 0, int last = 11) {
    const std::pair<const char*, std::vector<std::int64_t>> tensors[] = {
        {"token_embd.weight", {4, 3}},     {"blk.0.attn_norm.weight", {4}},   {"blk.0.attn_q.weight", {4, 4}},
        {"blk.0.attn_k.weight", {4, 4}},   {"blk.0.attn_v.weight", {4, 4}},   {"blk.0.attn_output.weight", {4, 4}},
        {"blk.0.ffn_norm.weight", {4}},    {"blk.0.ffn_gate.weight", {4, 3}}, {"blk.0.ffn_up.weight", {4, 3}},
        {"blk.0.ffn_down.weight", {3, 4}}, {"output_norm.weight", {4}}};
    for (int i = first; i < last; ++i) builder.floats(tensors[i].first, tensors[i].second, static_cast<float>(i));
    return builder;
}

inline gguf_builder small_gguf() {
    gguf_builder builder = small_gguf_keys();
    return add_small_tensors(builder);
}

}  // namespace imbrex::engine::test
