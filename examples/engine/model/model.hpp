// A decoder, written once for CPU and GPU and for all families: a field of model_config says where they differ. The
// kernels for GEMM and attention are a template argument (cpu_kernels.hpp, cuda_kernels.hpp); all other kernels of the
// library run in both worlds.
//
//   ids --- embedding, scaled --> hidden
//   for each layer
//       hidden --- [norm]; QKV projection --> qkv                       [QK norm]
//       qkv --- append: [RoPE], into the paged KV cache --> queries --- attention, [window, softcap] --> attended
//       hidden += attended --- output projection, [norm]
//       hidden --- [norm]; gate and up projection, activation --> inner
//       hidden += inner --- down projection, [norm]               [or: hidden --- norm; mixture of experts]
//   hidden --- norm --> x --- sampled rows --> last --- LM head, [softcap] --> logits
//
// Factors cost nothing. The hidden state is kept divided by residual_scale: norms do not see it, except that their
// epsilon is divided by its square. logits_scale is a factor of the weights of the last norm.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/kernels/embedding.hpp>
#include <imbrex/kernels/rms_norm.hpp>
#include <imbrex/kernels/rope_embedding.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/kv_cache_memory.hpp"
#include "engine/model/norm.hpp"
#include "engine/model/paged_attention.hpp"
#include "engine/model/row_update.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/step_inputs.hpp"
#include "engine/model/weight_loader.hpp"
#include "engine/model/world_buffer.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

template <class Kernels>
class model {
  public:
    using element = typename Kernels::element;
    using matrix = typename Kernels::matrix;
    using normed_matrix = typename Kernels::normed_matrix;
    using table = typename Kernels::table;
    using experts = typename Kernels::experts;

    // All kernels are launched in this stream.
    model(const model_files& files, const runner_options& options, const loading_progress& progress,
          void* stream = nullptr)
        : config_(files.config),
          options_(options),
          stream_(stream),
          kernels_(files.config, options, stream),
          kv_cache_(config_, options) {
        weight_loader loader(files, options, progress);
        embed_tokens_ = loader.load<table>({"model.embed_tokens.weight"});
        for (int i = 0; i < config_.layers; ++i) layers_.push_back(load_layer(loader, i));
        final_norm_ = load_final_norm(loader);
        lm_head_ = loader.load<matrix>({config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"});
        load_rope(config_.rope, inv_freq_, rope_);
        if (config_.local_rope) load_rope(*config_.local_rope, local_inv_freq_, local_rope_);
        allocate_buffers();
    }

    // Logits of the sampled rows, [samples, vocabulary], in the memory of the world.
    const world_buffer<float>& forward(const step_inputs& now) {
        embed(now);
        for (int i = 0; i < config_.layers; ++i) run_layer(i, now);
        if (now.samples == 0 && !now.pools) return logits_;
        kernels_.normalise(final_norm_, hidden_, now.tokens, normed_.data());
        if (now.samples == 0) return logits_;
        kernels_.matmul(lm_head_, gather_sampled_rows(now), now.samples, logits_.data());
        if (config_.logits_softcap > 0) {
            update_rows<float>(where(), logits_.data(), logits_.data(), now.samples, config_.vocab_size,
                               softcap_of{static_cast<float>(config_.logits_softcap)}, stream_);
        }
        return logits_;
    }

    // The hidden states behind the last norm, after a step with samples or pooling; their scale has no meaning.
    const element* hidden_states() const { return normed_.data(); }

    // Runs the step again and names the first part whose result has a NaN or an infinity, for an error message.
    std::string first_part_with_nan(const step_inputs& now) {
        const auto is_finite = [&] {
            kernels_.finish_residual(hidden_, now.tokens);
            const auto values = hidden_.read(std::int64_t{now.tokens} * config_.hidden_size, stream_);
            return std::ranges::all_of(values, [](element value) { return std::isfinite(static_cast<float>(value)); });
        };
        embed(now);
        if (!is_finite()) return "the embedding";
        for (int i = 0; i < config_.layers; ++i) {
            run_layer(i, now);
            if (!is_finite()) return "layer " + std::to_string(i);
        }
        return "the last norm or the LM head";
    }

    const model_config& config() const { return config_; }
    kv_cache_memory& kv_cache() { return kv_cache_; }
    int cache_groups() const { return kv_cache_.groups(); }

  private:
    struct layer {
        normed_matrix qkv_proj, gate_up_proj;
        residual_projection<matrix> o_proj, down_proj;
        world_buffer<float> bias;  // of the QKV projection; zeros if the model has none
        world_buffer<float> q_norm, k_norm;
        world_buffer<float> sinks;  // attention sinks; empty: none
        experts mixture;            // instead of gate_up_proj and down_proj
    };

    world where() const { return options_.where; }

    const element* gather_sampled_rows(const step_inputs& now) {
        if (now.samples == now.tokens) return normed_.data();
        imbrex::embedding<element>::launch(where(),
                                           {.table = constant(rows(normed_, now.tokens, config_.hidden_size)),
                                            .ids = now.logits_indices,
                                            .out = rows(sampled_hidden_, now.samples, config_.hidden_size)},
                                           stream_);
        return sampled_hidden_.data();
    }
    std::int64_t q_columns() const { return std::int64_t{config_.heads} * config_.head_dim; }
    std::int64_t qkv_columns() const { return (config_.heads + 2 * std::int64_t{config_.kv_heads}) * config_.head_dim; }
    world_buffer<float> vector_of(weight_loader& loader, const std::string& name) {
        return {where(), loader.load_floats({name})};
    }
    world_buffer<float> qk_norm_of(weight_loader& loader, const std::string& name) {
        std::vector<float> weight = loader.load_floats({name});
        loader.add_stored_offset(weight);
        return {where(), weight};
    }

    // Of norms of the hidden state.
    double hidden_epsilon() const { return config_.norm_eps / (config_.residual_scale * config_.residual_scale); }

    layer load_layer(weight_loader& loader, int number) {
        const std::string of = "model.layers." + std::to_string(number) + ".";
        const layer_norm_names norms = norm_names(config_);
        const auto norm_before = [&](const std::string& name) {
            return loader.load_norm(name.empty() ? "" : of + name, hidden_epsilon());
        };
        const auto norm_after = [&](const std::string& name) {
            return model_norm(where(), loader.load_norm(name.empty() ? "" : of + name, config_.norm_eps));
        };
        const auto projections = [&](const std::string& end) {
            std::vector<std::string> names;
            for (const char* one : {"q", "k", "v"}) names.push_back(of + "self_attn." + one + "_proj." + end);
            return names;
        };
        layer made;
        made.qkv_proj = loader.load_normed<normed_matrix>(projections("weight"), norm_before(norms.before_attention));
        made.bias = {where(), qkv_columns()};
        if (config_.qkv_bias) made.bias = {where(), loader.load_floats(projections("bias"))};
        if (config_.qk_norm != qk_norm_rows::none) {
            made.q_norm = qk_norm_of(loader, of + "self_attn.q_norm.weight");
            made.k_norm = qk_norm_of(loader, of + "self_attn.k_norm.weight");
        }
        made.o_proj.weights = loader.load<matrix>({of + "self_attn.o_proj.weight"});
        if (config_.output_bias) made.o_proj.bias = vector_of(loader, of + "self_attn.o_proj.bias");
        made.o_proj.after = norm_after(norms.after_attention);
        if (config_.attention_sinks) made.sinks = vector_of(loader, of + "self_attn.sinks");
        if (config_.experts.given()) {
            made.mixture = experts(loader, of + "mlp.", norm_before(norms.before_mlp), config_.experts, where());
        } else {
            made.gate_up_proj = loader.load_normed<normed_matrix>(
                {of + "mlp.gate_proj.weight", of + "mlp.up_proj.weight"}, norm_before(norms.before_mlp));
            made.down_proj.weights = loader.load<matrix>({of + "mlp.down_proj.weight"});
            made.down_proj.after = norm_after(norms.after_mlp);
        }
        return made;
    }

    model_norm load_final_norm(weight_loader& loader) {
        norm_weights made = loader.load_norm("model.norm", hidden_epsilon());
        for (std::vector<float>* values : {&made.weight, &made.bias}) {
            for (float& value : *values) value *= static_cast<float>(config_.logits_scale);
        }
        return {where(), made};
    }

    void load_rope(const rope_config& from, world_buffer<std::uint64_t>& inv_freq, rope_embedding& made) {
        inv_freq = {where(), rope_fixed_point_inv_freq(rope_inv_freq(config_, from, options_.context))};
        made = {inv_freq.data(), config_.rotary_dim(from), from.style,
                static_cast<float>(rope_attention_factor(config_, from))};
    }

    void allocate_buffers() {
        const std::int64_t tokens = Kernels::buffer_rows(options_);
        hidden_ = {where(), tokens * config_.hidden_size};
        normed_ = {where(), tokens * config_.hidden_size};
        qkv_ = {where(), tokens * qkv_columns()};
        attention_out_ = {where(), tokens * q_columns()};
        mlp_hidden_ = {where(), tokens * config_.intermediate_size};
        sampled_hidden_ = {where(), std::int64_t{options_.max_samples()} * config_.hidden_size};
        logits_ = {where(), std::int64_t{options_.max_samples()} * config_.vocab_size};
    }

    static row_view<element> rows(const world_buffer<element>& from, std::int64_t count, std::int64_t columns) {
        return as_rows(from.data(), count, columns);
    }
    static row_view<const element> constant(const row_view<element>& view) {
        return {view.pointer, view.extents, view.strides};
    }

    void embed(const step_inputs& now) {
        kernels_.begin(now);
        kernels_.embed_tokens(embed_tokens_, now.input_ids, rows(hidden_, now.tokens, config_.hidden_size),
                              static_cast<float>(config_.embedding_scale / config_.residual_scale));
    }

    void run_layer(int number, const step_inputs& now) {
        const layer& own = layers_[static_cast<std::size_t>(number)];
        const auto run_gate_up = [&] { kernels_.norm_glu(own.gate_up_proj, hidden_, now.tokens, mlp_hidden_.data()); };
        kernels_.norm_matmul(own.qkv_proj, hidden_, now.tokens, qkv_.data(), own.bias.data());
        if (config_.parallel_residual) run_gate_up();
        attend(number, now);
        kernels_.add_projection(own.o_proj, attention_out_.data(), now.tokens, hidden_);
        if (config_.experts.given()) return kernels_.add_experts(own.mixture, now.tokens, hidden_);
        if (!config_.parallel_residual) run_gate_up();
        kernels_.add_projection(own.down_proj, mlp_hidden_.data(), now.tokens, hidden_);
    }

    void attend(int number, const step_inputs& now) {
        const layer& own = layers_[static_cast<std::size_t>(number)];
        const layer_attention kind = config_.attention_of(number);
        const int heads = config_.heads, kv_heads = config_.kv_heads, head_dim = config_.head_dim;
        normalise_queries_and_keys(own, now.tokens);
        const auto all = batch_sequence_head(qkv_.data(), 1, now.tokens, heads + 2 * kv_heads, head_dim);
        paged_attention<element> p{.layer = number,
                                   .q = heads_of(all, 0, heads),
                                   .k = const_view(heads_of(all, heads, kv_heads)),
                                   .v = const_view(heads_of(all, heads + kv_heads, kv_heads)),
                                   .out = batch_sequence_head(attention_out_.data(), 1, now.tokens, heads, head_dim),
                                   .cache = kv_cache_.of_layer(number),
                                   .pages = {now.block_table_of(kv_cache_.group_of(number)), now.max_blocks_per_seq},
                                   .seqused_k = now.seqused_k,
                                   .varlen = {.count = now.sequences, .cu_seqlens_q = now.cu_seqlens_q},
                                   .rope = rope_of(kind.rope),
                                   .sinks = own.sinks.data(),
                                   .window = kind.window};
        if (config_.attention_scale) p.scale = static_cast<float>(*config_.attention_scale);
        kernels_.append_and_attend(p);
    }

    void normalise_queries_and_keys(const layer& own, int tokens) {
        const int heads = config_.heads, kv_heads = config_.kv_heads, head_dim = config_.head_dim;
        if (config_.qk_norm == qk_norm_rows::head) {
            normalise_columns(0, heads, head_dim, own.q_norm, tokens);
            normalise_columns(heads * head_dim, kv_heads, head_dim, own.k_norm, tokens);
        } else if (config_.qk_norm == qk_norm_rows::projection) {
            normalise_columns(0, 1, heads * head_dim, own.q_norm, tokens);
            normalise_columns(heads * head_dim, 1, kv_heads * head_dim, own.k_norm, tokens);
        }
    }

    // RMSNorm of `count` groups of columns of qkv.
    void normalise_columns(int first, int count, int columns, const world_buffer<float>& weight, int tokens) {
        const auto view = as_rows_of_heads(qkv_.data() + first, tokens, count, std::int64_t{columns}, qkv_columns());
        rms_norm<element, float>::launch(where(),
                                         {.x = constant(view),
                                          .weight = weight.data(),
                                          .out = view,
                                          .epsilon = static_cast<float>(config_.norm_eps)},
                                         stream_);
    }

    rope_embedding rope_of(layer_rope kind) const {
        return kind == layer_rope::global ? rope_ : kind == layer_rope::local ? local_rope_ : rope_embedding{};
    }

    model_config config_;
    runner_options options_;
    void* stream_;
    Kernels kernels_;
    kv_cache_memory kv_cache_;
    table embed_tokens_;
    std::vector<layer> layers_;
    model_norm final_norm_;
    matrix lm_head_;
    world_buffer<std::uint64_t> inv_freq_, local_inv_freq_;
    rope_embedding rope_, local_rope_;
    world_buffer<element> hidden_, normed_, qkv_, attention_out_, mlp_hidden_, sampled_hidden_;
    world_buffer<float> logits_;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
