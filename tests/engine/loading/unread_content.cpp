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

// A configuration with more fields.
model_config read_fields(const std::string& more, const std::string& family = "llama") {
    const std::string text = R"({"model_type": ")" + family +
                             R"(", "num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 4, "vocab_size": 10,
        "num_attention_heads": 2, "rms_norm_eps": 1e-5, )" +
                             more + "}";
    return read_config(bytes(text), {}, "config.json");
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

TEST_CASE("Refuses fields of config.json that would change the results") {
    check_error_message("config.json: \"clip_qkv\" is 8; this engine does not implement it",
                        [] { read_fields(R"("clip_qkv": 8)"); });
    check_error_message("\"is_causal\" is false", [] { read_fields(R"("is_causal": false)"); });
    check_error_message("\"num_local_experts\" is 8", [] { read_fields(R"("num_local_experts": 8)"); });
    check_error_message("\"rope_interleaved\" is true", [] { read_fields(R"("rope_interleaved": true)"); });
    // Fields of another family.
    check_error_message("\"logits_scaling\" is 8", [] { read_fields(R"("logits_scaling": 8)"); });
    check_error_message("\"attn_logit_softcapping\" is 50", [] { read_fields(R"("attn_logit_softcapping": 50)"); });
    check_error_message("\"sliding_window\" is 4", [] { read_fields(R"("sliding_window": 4)"); });
    check_error_message(
        "config.json: RoPE parameter \"mrope_section\" is an array; this engine does not implement it",
        [] { read_fields(R"("rope_scaling": {"type": "linear", "factor": 2, "mrope_section": [1, 1]})"); });
}

TEST_CASE("Accepts fields of config.json that describe, and values without an effect") {
    // SmolLM2, Phi-4-mini and Qwen2.5 have these.
    read_fields(
        R"("_name_or_path": "x", "architectures": ["LlamaForCausalLM"], "attention_bias": false, "pretraining_tp": 1,
        "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.04,
        "is_llama_config": true, "max_position_embeddings": 2048, "mlp_bias": false, "num_key_value_heads": 1,
        "pad_token_id": 2, "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers.js_config": {"dtype": "q4"},
        "transformers_version": "4.42.3", "use_cache": true, "new_field": null)");
    read_fields(R"("full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": false, "resid_pdrop": 0.0,
        "embd_pdrop": 0.0, "auto_map": {}, "sliding_window": 262144, "partial_rotary_factor": 0.5)",
                "phi3");
    const model_config off = read_fields(
        R"("max_window_layers": 1, "sliding_window": 4, "use_mrope": false, "use_sliding_window": false)", "qwen2");
    CHECK(off.attention_of(1).window == 0);
    const model_config on =
        read_fields(R"("max_window_layers": 1, "sliding_window": 4, "use_sliding_window": true)", "qwen2");
    CHECK(on.attention_of(1).window == 4);
    CHECK(read_fields(R"("rope_scaling": {"type": "linear", "factor": 2, "finetuned": true})").rope.factor == 2);
    CHECK(read_fields(R"("final_logit_softcapping": 30)", "gemma2").logits_softcap == 30);
}

}  // namespace imbrex::engine::test
