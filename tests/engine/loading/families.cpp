// Settings of model families as files of other versions than transformers_models.py writes name them, and settings that
// are refused. The results of the families are compared in model/transformers.cpp and model/gguf_models.cpp.
#include "engine/loading/families.hpp"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "engine/loading/gguf_builder.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

// A config.json of six layers with these further members.
model_config read_family_config(const std::string& model_type, const std::string& more) {
    const std::string text = R"({"model_type":")" + model_type +
                             R"(","num_hidden_layers":6,"hidden_size":32,"intermediate_size":48,"num_attention_heads":2,
        "head_dim":16,"vocab_size":10,"rms_norm_eps":1e-6,"max_position_embeddings":1024)" +
                             more + "}";
    return read_config(bytes(text), {}, "config.json");
}

gguf_builder family_gguf(const std::string& name, int layers = 6) {
    gguf_builder builder;
    builder.string("general.architecture", name).whole(name + ".block_count", static_cast<std::uint32_t>(layers));
    builder.whole(name + ".embedding_length", 32).whole(name + ".feed_forward_length", 48);
    builder.whole(name + ".attention.head_count", 2).whole(name + ".attention.key_length", 8);
    builder.whole(name + ".context_length", 1024).real(name + ".attention.layer_norm_rms_epsilon", 1e-5f);
    return builder.strings("tokenizer.ggml.tokens", {"a", "b", "c"});
}

model_config config_of_gguf(const gguf_builder& builder) {
    const std::string text = builder.build();
    const gguf_file file = read_gguf(bytes(text), "file");
    return gguf_config(file.metadata, file.weights);
}

std::vector<int> windows_of(const model_config& config) {
    std::vector<int> all;
    for (int layer = 0; layer < config.layers; ++layer) all.push_back(config.attention_of(layer).window);
    return all;
}

}  // namespace

TEST_CASE("Every family has a name of its own and is found by it") {
    std::set<std::string> names;
    for (const family_description& one : all_families()) {
        CHECK(names.insert(one.model_type).second);
        CHECK(&family_of_model_type(one.model_type, "file") == &one);
        if (one.architecture != nullptr) CHECK(&family_of_architecture(one.architecture, "file") == &one);
        CHECK(std::string(name_of(one.family)) == one.model_type);
    }
}

TEST_CASE("Gemma 3: older files name theta per kind of layer and the pattern of windows") {
    const model_config config = read_family_config("gemma3_text", R"(,"sliding_window":512,"sliding_window_pattern":3,
        "rope_theta":1000000.0,"rope_local_base_freq":5000.0,"rope_scaling":{"rope_type":"linear","factor":8.0},
        "query_pre_attn_scalar":64,"hidden_activation":"gelu_pytorch_tanh","attn_logit_softcapping":null)");
    CHECK(windows_of(config) == std::vector<int>{512, 512, 0, 512, 512, 0});
    CHECK(config.attention_of(0).rope == layer_rope::local);
    CHECK(config.attention_of(2).rope == layer_rope::global);
    CHECK(config.rope.theta == 1e6);
    CHECK(config.rope.scaling == rope_scaling::linear);
    REQUIRE(config.local_rope.has_value());
    CHECK(config.local_rope->theta == 5000);
    CHECK(config.local_rope->scaling == rope_scaling::none);
    CHECK(config.attention_scale == 0.125);
    CHECK(config.attention_softcap == 0);
    CHECK(config.tie_word_embeddings);
    CHECK(config.embedding_scale == doctest::Approx(std::sqrt(32.0)));
    check_error_message("\"sliding_window_pattern\" is 0; it must be positive",
                        [] { read_family_config("gemma3_text", R"(,"sliding_window_pattern":0)"); });
    check_error_message("\"use_bidirectional_attention\" is true",
                        [] { read_family_config("gemma3_text", R"(,"use_bidirectional_attention":true)"); });
}

TEST_CASE("Gemma: GGUF files have no scale of the scores, and 1 in the norms") {
    const model_config small = config_of_gguf(family_gguf("gemma2"));
    CHECK(small.attention_scale == doctest::Approx(1 / std::sqrt(8.0)));
    CHECK_FALSE(small.norm_weights_from_one);
    CHECK(windows_of(small) == std::vector<int>{4096, 0, 4096, 0, 4096, 0});
    CHECK(config_of_gguf(family_gguf("gemma2", 46)).attention_scale == doctest::Approx(1 / std::sqrt(16.0)));
    CHECK(config_of_gguf(family_gguf("gemma3", 62)).attention_scale == doctest::Approx(1 / std::sqrt(16.0)));
}

TEST_CASE("Phi-3: early names of longrope, the original context beside the scaling") {
    for (const char* type : {"su", "yarn", "longrope"}) {
        CAPTURE(std::string(type));
        const model_config config =
            read_family_config("phi3", str_cat(R"(,"original_max_position_embeddings":256,"partial_rotary_factor":0.25,
            "sliding_window":2047,"rope_scaling":{"type":")",
                                               type, R"(","short_factor":[1,2],"long_factor":[3,4]})"));
        CHECK(config.rope.scaling == rope_scaling::longrope);
        CHECK(config.rope.original_max_position_embeddings == 256);
        CHECK(config.rope.rotary_dim == 4);
        CHECK(config.rope.long_freq_factors == std::vector<float>{3, 4});
        CHECK(rope_attention_factor(config, config.rope) == doctest::Approx(std::sqrt(1.25)));
        CHECK(windows_of(config) == std::vector<int>(6, 2047));
        CHECK(rope_inv_freq(config, config.rope, 256)[0] == 1);
        CHECK(rope_inv_freq(config, config.rope, 257)[0] == doctest::Approx(1.0 / 3));
    }
}

TEST_CASE("SmolLM3: every fourth layer has no RoPE unless the file lists them") {
    CHECK(read_family_config("smollm3", "").attention_of(3).rope == layer_rope::none);
    const model_config listed = read_family_config("smollm3", R"(,"no_rope_layers":[0,1,1,1,1,1])");
    CHECK(listed.attention_of(0).rope == layer_rope::none);
    CHECK(listed.attention_of(3).rope == layer_rope::global);
    CHECK(config_of_gguf(family_gguf("smollm3")).attention_of(3).rope == layer_rope::none);
    check_error_message("\"no_rope_layers\" has 1 elements; there are 6 layers",
                        [] { read_family_config("smollm3", R"(,"no_rope_layers":[0])"); });
    check_error_message("\"no_rope_layer_interval\" is 0",
                        [] { read_family_config("smollm3", R"(,"no_rope_layer_interval":0)"); });
}

TEST_CASE("Factors of zero and unknown activations are refused") {
    check_error_message("\"logits_scaling\" is 0", [] { read_family_config("granite", R"(,"logits_scaling":0)"); });
    check_error_message("the factor of the residual additions is 0",
                        [] { read_family_config("granite", R"(,"residual_multiplier":0)"); });
    check_error_message("the softcap of the logits is -1",
                        [] { read_family_config("gemma2", R"(,"final_logit_softcapping":-1)"); });
    check_error_message("\"hidden_act\" is \"relu\"; silu and gelu_pytorch_tanh are known",
                        [] { read_family_config("gemma", R"(,"hidden_act":"relu")"); });
    check_error_message("\"qk_layernorm\" is true",
                        [] { read_family_config("stablelm", R"(,"layer_norm_eps":1e-5,"qk_layernorm":true)"); });
    check_error_message("\"layer_norm_eps\" is missing", [] { read_family_config("stablelm", ""); });
    check_error_message("the number of layers is 5000", [] { config_of_gguf(family_gguf("smollm3", 5000)); });
}

TEST_CASE("Experts: GPT-OSS, Qwen3-MoE and Mixtral, from config.json and from GGUF") {
    const model_config gpt = read_family_config(
        "gpt_oss", R"(,"num_local_experts":8,"num_experts_per_tok":4,"experts_per_token":4,"sliding_window":128,
        "initial_context_length":4096,"output_router_logits":false,"router_aux_loss_coef":0.9,"swiglu_limit":7.0)");
    CHECK(gpt.experts.count == 8);
    CHECK(gpt.experts.per_token == 4);
    CHECK(gpt.experts.weights_of_chosen);
    CHECK(gpt.experts.bias);
    CHECK(gpt.experts.swiglu_limit == 7);
    CHECK(gpt.attention_sinks);
    CHECK(gpt.qkv_bias);
    CHECK(gpt.intermediate_size == 48);
    CHECK(windows_of(gpt) == std::vector<int>{128, 0, 128, 0, 128, 0});

    const char* const qwen_sizes = R"(,"moe_intermediate_size":12,"num_experts":6,"num_experts_per_tok":2)";
    const model_config qwen = read_family_config("qwen3_moe", str_cat(qwen_sizes, R"(,"norm_topk_prob":true)"));
    CHECK(qwen.experts.count == 6);
    CHECK(qwen.experts.weights_of_chosen);
    CHECK_FALSE(qwen.experts.bias);
    CHECK(qwen.intermediate_size == 12);
    CHECK(qwen.qk_norm == qk_norm_rows::head);
    CHECK_FALSE(read_family_config("qwen3_moe", qwen_sizes).experts.weights_of_chosen);

    const auto with_experts = [](const std::string& name) {
        return family_gguf(name).whole(name + ".expert_count", 6).whole(name + ".expert_used_count", 2);
    };
    const model_config gguf = config_of_gguf(with_experts("qwen3moe").whole("qwen3moe.expert_feed_forward_length", 12));
    CHECK(gguf.experts.count == 6);
    CHECK(gguf.experts.per_token == 2);
    CHECK(gguf.experts.weights_of_chosen);
    CHECK(gguf.intermediate_size == 12);
    CHECK(config_of_gguf(with_experts("llama")).experts.count == 6);
    CHECK(config_of_gguf(with_experts("llama")).intermediate_size == 48);
    const model_config gpt_gguf = config_of_gguf(with_experts("gpt-oss").whole("gpt-oss.attention.sliding_window", 5));
    CHECK(windows_of(gpt_gguf) == std::vector<int>{5, 0, 5, 0, 5, 0});
    CHECK_FALSE(gpt_gguf.rope.truncate);
}

TEST_CASE("Experts: settings that are refused") {
    const auto refuses = [](const std::string& message, const std::string& family, const std::string& more) {
        check_error_message(message, [&] { read_family_config(family, more); });
    };
    refuses("\"num_local_experts\" is missing", "mixtral", "");
    refuses("\"num_experts_per_tok\" is missing", "mixtral", R"(,"num_local_experts":8)");
    refuses("\"num_local_experts\" is 0; this family has experts", "mixtral",
            R"(,"num_local_experts":0,"num_experts_per_tok":2)");
    refuses("the number of experts is 600; 1 to 512 are allowed", "mixtral",
            R"(,"num_local_experts":600,"num_experts_per_tok":2)");
    refuses("the number of experts per token is 5; 1 to 4 are allowed", "mixtral",
            R"(,"num_local_experts":4,"num_experts_per_tok":5)");
    for (const char* layers : {R"("mlp_only_layers":[1])", R"("decoder_sparse_step":2)"})
        refuses("asks for layers without experts", "qwen3_moe",
                str_cat(R"(,"num_experts":8,"num_experts_per_tok":2,)", layers));
    refuses("\"experts_per_token\" is 3; \"num_experts_per_tok\" is 4", "gpt_oss",
            R"(,"num_local_experts":8,"num_experts_per_tok":4,"experts_per_token":3,"sliding_window":4)");
    refuses("\"swiglu_alpha\" is 1", "gpt_oss",
            R"(,"num_local_experts":8,"num_experts_per_tok":4,"sliding_window":4,"swiglu_alpha":1.0)");
    refuses("\"shared_expert_intermediate_size\" is 48", "qwen3_moe",
            R"(,"num_experts":8,"num_experts_per_tok":2,"shared_expert_intermediate_size":48)");
    refuses("architecture \"qwen2_moe\" is not known", "qwen2_moe", "");
    refuses("has experts with GELU", "mixtral",
            R"(,"num_local_experts":8,"num_experts_per_tok":2,"hidden_act":"gelu_new")");
}

TEST_CASE("GGUF: YaRN's attention factor, scaling without a type, and RoPE that is off") {
    const auto yarn = [] {
        return family_gguf("llama").string("llama.rope.scaling.type", "yarn").real("llama.rope.scaling.factor", 4);
    };
    const auto factor_of = [](const gguf_builder& builder) {
        const model_config config = config_of_gguf(builder);
        return rope_attention_factor(config, config.rope);
    };
    CHECK(factor_of(yarn()) == doctest::Approx(1 + 0.1 * std::log(4.0)));
    CHECK(factor_of(yarn().real("llama.rope.scaling.yarn_attn_factor", 1.5f)) == 1.5);
    CHECK(factor_of(yarn().real("llama.rope.scaling.attn_factor", 2)) == doctest::Approx(2 + 0.2 * std::log(4.0)));
    CHECK(factor_of(yarn().real("llama.rope.scaling.yarn_log_multiplier", 0.5f)) ==
          doctest::Approx((1 + 0.1 * std::log(4.0)) / (1 + 0.05 * std::log(4.0))));
    for (const char* key : {"llama.rope.scale_linear", "llama.rope.scaling.factor"}) {
        const model_config linear = config_of_gguf(family_gguf("llama").real(key, 2));
        CHECK(linear.rope.scaling == rope_scaling::linear);
        CHECK(linear.rope.factor == 2);
    }
    const model_config off = config_of_gguf(family_gguf("granite").truth("granite.rope.scaling.finetuned", false));
    for (int layer = 0; layer < 6; ++layer) CHECK(off.attention_of(layer).rope == layer_rope::none);
}

}  // namespace imbrex::engine::test
