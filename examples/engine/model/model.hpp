// A decoder of the Llama, Qwen2 and Qwen3 families, written once for CPU and GPU. The kernels for GEMM and attention
// are a template argument (cpu_kernels.hpp, cuda_kernels.hpp); all other kernels of the library run in both worlds.
//
//   ids --- embedding --> hidden
//   for each layer
//       hidden --- RMSNorm; QKV projection --> qkv                      (Qwen3: QK norm)
//       qkv --- append: RoPE, into the paged KV cache --> queries --- attention --> attended
//       hidden += attended --- output projection
//       hidden --- RMSNorm; gate and up projection, SwiGLU --> inner
//       hidden += inner --- down projection
//   hidden --- RMSNorm --> x --- sampled rows --> last --- LM head --> logits
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/embedding.hpp>
#include <imbrex/kernels/paged_append.hpp>
#include <imbrex/kernels/rms_norm.hpp>
#include <imbrex/kernels/rope_embedding.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

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

    // All kernels are launched in this stream.
    model(const model_files& files, const runner_options& options, const loading_progress& progress,
          void* stream = nullptr)
        : config_(files.config), options_(options), stream_(stream), kernels_(files.config, options, stream) {
        weight_loader loader(files, options, progress);
        embed_tokens_ = loader.load<table>({"model.embed_tokens.weight"});
        for (int i = 0; i < config_.layers; ++i) layers_.push_back(load_layer(loader, i));
        final_norm_ = vector_of(loader, "model.norm.weight");
        lm_head_ = loader.load<matrix>({config_.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"});
        inv_freq_ = {where(), rope_fixed_point_inv_freq(rope_inv_freq(config_))};
        allocate_buffers();
    }

    // Logits of the sampled rows, [samples, vocabulary], in the memory of the world.
    const world_buffer<float>& forward(const step_inputs& now) {
        kernels_.begin(now);
        kernels_.embed_tokens(embed_tokens_, now.input_ids, rows(hidden_, now.tokens, config_.hidden_size));
        for (int i = 0; i < config_.layers; ++i) {
            const layer& own = layers_[static_cast<std::size_t>(i)];
            attention_layer(own, i, now);
            kernels_.rms_norm_swiglu(own.gate_up_proj, hidden_, now.tokens, mlp_hidden_.data());
            kernels_.matmul_add_residual(own.down_proj, mlp_hidden_.data(), now.tokens, hidden_);
        }
        if (now.samples == 0) return logits_;
        kernels_.normalise(final_norm_, hidden_, now.tokens, normed_.data());
        kernels_.matmul(lm_head_, gather_sampled_rows(now), now.samples, logits_.data());
        return logits_;
    }

    // No block is both source and destination.
    void copy_blocks(std::span<const block_copy> copies) {
        const std::size_t bytes = block_elements() * sizeof(element);
        for (const layer& own : layers_) {
            for (const block_copy& one : copies) {
                for (const world_buffer<element>* cache : {&own.k_cache, &own.v_cache}) {
                    cache->memory().copy_within(static_cast<std::size_t>(one.to) * bytes,
                                                static_cast<std::size_t>(one.from) * bytes, bytes, stream_);
                }
            }
        }
    }

    const model_config& config() const { return config_; }

  private:
    struct layer {
        normed_matrix qkv_proj, gate_up_proj;
        matrix o_proj, down_proj;
        world_buffer<float> bias;  // of the QKV projection; zeros if the model has none
        world_buffer<float> q_norm, k_norm;
        world_buffer<element> k_cache, v_cache;  // [block, KV head, token in block, column]
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
    std::size_t block_elements() const {
        return static_cast<std::size_t>(config_.kv_heads) * static_cast<std::size_t>(options_.block_size) *
               static_cast<std::size_t>(config_.head_dim);
    }

    world_buffer<float> vector_of(weight_loader& loader, const std::string& name) {
        return {where(), loader.load_floats({name})};
    }

    layer load_layer(weight_loader& loader, int number) {
        const std::string of = "model.layers." + std::to_string(number) + ".";
        const auto projections = [&](const std::string& end) {
            std::vector<std::string> names;
            for (const char* one : {"q", "k", "v"}) names.push_back(of + "self_attn." + one + "_proj." + end);
            return names;
        };
        layer made;
        made.qkv_proj = loader.load_normed<normed_matrix>(projections("weight"), of + "input_layernorm.weight");
        made.bias = {where(), qkv_columns()};
        if (config_.qkv_bias) made.bias = {where(), loader.load_floats(projections("bias"))};
        if (config_.qk_norm) {
            made.q_norm = vector_of(loader, of + "self_attn.q_norm.weight");
            made.k_norm = vector_of(loader, of + "self_attn.k_norm.weight");
        }
        made.o_proj = loader.load<matrix>({of + "self_attn.o_proj.weight"});
        made.gate_up_proj = loader.load_normed<normed_matrix>({of + "mlp.gate_proj.weight", of + "mlp.up_proj.weight"},
                                                              of + "post_attention_layernorm.weight");
        made.down_proj = loader.load<matrix>({of + "mlp.down_proj.weight"});
        for (world_buffer<element>* cache : {&made.k_cache, &made.v_cache}) {
            *cache = {where(), options_.num_kv_blocks * static_cast<std::int64_t>(block_elements())};
        }
        return made;
    }

    void allocate_buffers() {
        const std::int64_t tokens = Kernels::buffer_rows(options_);
        hidden_ = {where(), tokens * config_.hidden_size};
        normed_ = {where(), tokens * config_.hidden_size};
        qkv_ = {where(), tokens * qkv_columns()};
        attention_out_ = {where(), tokens * q_columns()};
        mlp_hidden_ = {where(), tokens * config_.intermediate_size};
        sampled_hidden_ = {where(), std::int64_t{options_.max_num_seqs} * config_.hidden_size};
        logits_ = {where(), std::int64_t{options_.max_num_seqs} * config_.vocab_size};
    }

    static row_view<element> rows(const world_buffer<element>& from, std::int64_t count, std::int64_t columns) {
        return as_rows(from.data(), count, columns);
    }
    static row_view<const element> constant(const row_view<element>& view) {
        return {view.pointer, view.extents, view.strides};
    }

    float epsilon() const { return static_cast<float>(config_.rms_norm_eps); }

    void attention_layer(const layer& own, int number, const step_inputs& now) {
        const int heads = config_.heads, kv_heads = config_.kv_heads, head_dim = config_.head_dim;
        kernels_.rms_norm_matmul(own.qkv_proj, hidden_, now.tokens, qkv_.data(), own.bias.data());
        if (config_.qk_norm) {
            normalise_heads(0, heads, own.q_norm, now.tokens);
            normalise_heads(heads, kv_heads, own.k_norm, now.tokens);
        }
        const auto all = batch_sequence_head(qkv_.data(), 1, now.tokens, heads + 2 * kv_heads, head_dim);
        const auto q = heads_of(all, 0, heads);
        const auto cache = [&](const world_buffer<element>& of) {
            return batch_head_sequence(of.data(), options_.num_kv_blocks, kv_heads, options_.block_size, head_dim);
        };
        const paged_kv pages{now.block_tables, now.max_blocks_per_seq};
        const varlen_sequences packed{.count = now.sequences, .cu_seqlens_q = now.cu_seqlens_q};
        paged_append<element>::launch(
            where(),
            {.k = constant(heads_of(all, heads, kv_heads)),
             .v = constant(heads_of(all, heads + kv_heads, kv_heads)),
             .k_cache = cache(own.k_cache),
             .v_cache = cache(own.v_cache),
             .paged_kv = pages,
             .seqused_k = now.seqused_k,
             .varlen = packed,
             .rope = rope(),
             .q = constant(q),
             .q_out = q,
             .pdl_prefetch = true},  // the preceding kernels of the stream write only q, k and v
            stream_);
        const bool has_window = config_.sliding_window > 0 && number >= config_.first_sliding_window_layer;
        kernels_.paged_attention({.q = constant(q),
                                  .k = constant(cache(own.k_cache)),
                                  .v = constant(cache(own.v_cache)),
                                  .out = batch_sequence_head(attention_out_.data(), 1, now.tokens, heads, head_dim),
                                  .seqused_k = now.seqused_k,
                                  .varlen = packed,
                                  .paged_kv = pages},
                                 has_window ? config_.sliding_window : 0);
        kernels_.matmul_add_residual(own.o_proj, attention_out_.data(), now.tokens, hidden_);
    }

    static attention_view<const element> constant(const attention_view<element>& view) {
        return {view.pointer, view.extents, view.strides};
    }

    void normalise_heads(int first, int count, const world_buffer<float>& weight, int tokens) {
        const std::int64_t head_dim = config_.head_dim;
        const auto heads = as_rows_of_heads(qkv_.data() + first * head_dim, tokens, count, head_dim, qkv_columns());
        rms_norm<element, float>::launch(
            where(), {.x = constant(heads), .weight = weight.data(), .out = heads, .epsilon = epsilon()}, stream_);
    }

    rope_embedding rope() const { return {inv_freq_.data(), config_.head_dim, config_.rope.style}; }

    model_config config_;
    runner_options options_;
    void* stream_;
    Kernels kernels_;
    table embed_tokens_;
    std::vector<layer> layers_;
    world_buffer<float> final_norm_;
    matrix lm_head_;
    world_buffer<std::uint64_t> inv_freq_;
    world_buffer<element> hidden_, normed_, qkv_, attention_out_, mlp_hidden_, sampled_hidden_;
    world_buffer<float> logits_;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
