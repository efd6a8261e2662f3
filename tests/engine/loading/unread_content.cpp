#include "engine/loading/unread_content.hpp"

#include "engine/loading/model_files.hpp"
#include "engine/loading/small_gguf.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

void open(const gguf_builder& builder) {
    const std::string text = builder.build();
    read_gguf_model(bytes(text), "file");
}

}  // namespace

TEST_CASE("Refuses tensors that the model does not use") {
    open(small_gguf());
    check_error_message("file: tensor \"blk.0.ffn_up.bias\" of shape [3] is not used by this engine",
                        [] { open(small_gguf().floats("blk.0.ffn_up.bias", {3}, 1)); });
    check_error_message("file: tensor \"blk.1.attn_q.weight\" of shape [4, 4] is not used", [] {
        open(small_gguf().floats("blk.1.attn_q.weight", {4, 4}));
    });
    check_error_message("file: tensor \"new.weight\" of shape [1] is not used",
                        [] { open(small_gguf().floats("new.weight", {1})); });
}

TEST_CASE("Accepts unused tensors without an effect") {
    open(small_gguf().floats("blk.0.ffn_up.bias", {1}, 0));  // zeros, as some quantisers write them
    open(small_gguf().floats("blk.0.attn_rot_embd", {4}, 1));
    weight_set weights;
    weights.add({"lm_head.weight", weight_type::f32, {1}, bytes("1234")}, "file");
    weights.add({"model.layers.0.self_attn.rotary_emb.inv_freq", weight_type::f32, {1}, bytes("1234")}, "file");
    check_unread_weights(weights, true, "file");
    check_error_message("tensor \"lm_head.weight\"", [&] { check_unread_weights(weights, false, "file"); });
    weights.at("lm_head.weight");
    check_unread_weights(weights, false, "file");
}

TEST_CASE("Refuses keys that would change the results") {
    check_error_message("file: key \"llama.attention.causal\" is false; this engine does not implement it",
                        [] { open(small_gguf().truth("llama.attention.causal", false)); });
    check_error_message("key \"llama.logit_scale\" is 0.5", [] { open(small_gguf().real("llama.logit_scale", 0.5)); });
    check_error_message("key \"llama.new\" is \"x\"", [] { open(small_gguf().string("llama.new", "x")); });
    check_error_message("key \"llama.some\" is an array",
                        [] { open(small_gguf().numbers<std::int32_t>("llama.some", 5, {1})); });
    check_error_message("key \"tokenizer.ggml.add_sep_token\" is true",
                        [] { open(small_gguf().truth("tokenizer.ggml.add_sep_token", true)); });
    check_error_message("general.type is \"adapter\"; a file of the type \"model\" can be opened",
                        [] { open(small_gguf().string("general.type", "adapter")); });
    check_error_message("key \"adapter.type\"", [] { open(small_gguf().string("adapter.type", "lora")); });
}

TEST_CASE("Accepts keys that describe, and values without an effect") {
    gguf_builder builder = small_gguf();
    builder.string("general.name", "x").string("general.type", "model").whole("quantize.imatrix.entries_count", 1);
    builder.truth("llama.attention.causal", true).real("llama.rope.scale_linear", 1).whole("llama.expert_count", 0);
    builder.whole("llama.expert_used_count", 2).string("llama.tensor_data_layout", "Meta AI original pth");
    builder.string("tokenizer.chat_template", "{{x}}").string("tokenizer.chat_template.tool_use", "{{x}}");
    builder.whole("tokenizer.ggml.fim_pre_token_id", 1).string("tokenizer.ggml.pre", "default");
    open(builder.string("other.program", "x"));
}

}  // namespace imbrex::engine::test
