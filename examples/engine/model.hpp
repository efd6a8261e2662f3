// A decoder as Llama, Qwen2 and Qwen3 have it, written once for all worlds. What multiplies and attends is a template argument, since a CPU
// and a tensor core want different kernels; everything else is the library's, whichever world it is launched in.
//
//   ids --- embed --> hidden
//   for each layer
//       hidden --- norm; query, key, value --> qkv          (norms of heads)
//       qkv --- append: rotate, into the pages --> queries --- attend to the pages --> attended
//       hidden += attended --- output
//       hidden --- norm; gate, up: silu(gate) * up --> inner
//       hidden += inner --- down
//   hidden --- norm --> x --- rows that are sampled --> last --- vocabulary --> logits
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/embed.hpp>
#include <imbrex/kernels/norm.hpp>
#include <imbrex/kernels/paged_append.hpp>
#include <imbrex/kernels/rotary.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model_loader.hpp"
#include "numbers.hpp"
#include "runner.hpp"
#include "step.hpp"

namespace imbrex::engine {

template <class Kernels>
class model {
  public:
    using element = typename Kernels::element;
    using matrix = typename Kernels::matrix;
    using normed_matrix = typename Kernels::normed_matrix;
    using table = typename Kernels::table;

    // All that it computes goes into the stream.
    model(const model_files& files, const runner_options& options, const loading_progress& progress,
          void* stream = nullptr)
        : config_(files.config), options_(options), stream_(stream), kernels_(files.config, options, stream) {
        model_loader loader(files, options, progress);
        embedding_ = loader.load<table>({"model.embed_tokens.weight"});
        for (int i = 0; i < config_.layers; ++i) layers_.push_back(load_layer(loader, i));
        final_norm_ = vector_of(loader, "model.norm.weight");
        vocabulary_ = loader.load<matrix>({config_.tied ? "model.embed_tokens.weight" : "lm_head.weight"});
        turns_ = {where(), rotary_turns(rotary_frequencies(config_))};
        make_room();
    }

    // Logits of the rows that are sampled, [samples, vocabulary], in the memory of the world.
    const numbers<float>& forward(const step& now) {
        kernels_.begin(now);
        kernels_.look_up(embedding_, now.ids, rows(hidden_, now.tokens, config_.hidden));
        for (int i = 0; i < config_.layers; ++i) {
            const layer& own = layers_[static_cast<std::size_t>(i)];
            attend(own, i, now);
            kernels_.multiply_gated(own.gate_up, hidden_, now.tokens, inner_.data());
            kernels_.multiply_added(own.down, inner_.data(), now.tokens, hidden_);
        }
        if (now.samples == 0) return logits_;
        kernels_.normalise(final_norm_, hidden_, now.tokens, x_.data());
        kernels_.multiply(vocabulary_, sampled_rows(now), now.samples, logits_.data());
        return logits_;
    }

    // No block is both read and written.
    void copy_blocks(std::span<const block_copy> copies) {
        const std::size_t bytes = block_elements() * sizeof(element);
        for (const layer& own : layers_) {
            for (const block_copy& one : copies) {
                for (const numbers<element>* cache : {&own.keys, &own.values}) {
                    cache->memory().copy_within(static_cast<std::size_t>(one.to) * bytes,
                                                static_cast<std::size_t>(one.from) * bytes, bytes, stream_);
                }
            }
        }
    }

    const model_config& config() const { return config_; }

  private:
    struct layer {
        normed_matrix query_key_value, gate_up;
        matrix output, down;
        numbers<float> bias;  // of queries, keys and values; zeros if a model has none
        numbers<float> query_norm, key_norm;
        numbers<element> keys, values;  // [block, key head, token in block, column]
    };

    world where() const { return options_.where; }

    const element* sampled_rows(const step& now) {
        if (now.samples == now.tokens) return x_.data();
        imbrex::embed<element>::launch(where(),
                                       {.table = constant(rows(x_, now.tokens, config_.hidden)),
                                        .ids = now.sampled_rows,
                                        .out = rows(last_, now.samples, config_.hidden)},
                                       stream_);
        return last_.data();
    }
    std::int64_t head_columns() const { return std::int64_t{config_.heads} * config_.head_depth; }
    std::int64_t all_head_columns() const {
        return (config_.heads + 2 * std::int64_t{config_.key_heads}) * config_.head_depth;
    }
    std::size_t block_elements() const {
        return static_cast<std::size_t>(config_.key_heads) * static_cast<std::size_t>(options_.block_size) *
               static_cast<std::size_t>(config_.head_depth);
    }

    numbers<float> vector_of(model_loader& loader, const std::string& name) {
        return {where(), loader.load_floats({name})};
    }

    layer load_layer(model_loader& loader, int number) {
        const std::string of = "model.layers." + std::to_string(number) + ".";
        const auto projections = [&](const std::string& end) {
            std::vector<std::string> names;
            for (const char* one : {"q", "k", "v"}) names.push_back(of + "self_attn." + one + "_proj." + end);
            return names;
        };
        layer made;
        made.query_key_value = loader.load_normed<normed_matrix>(projections("weight"), of + "input_layernorm.weight");
        made.bias = {where(), all_head_columns()};
        if (config_.query_key_value_bias) made.bias = {where(), loader.load_floats(projections("bias"))};
        if (config_.query_key_norm) {
            made.query_norm = vector_of(loader, of + "self_attn.q_norm.weight");
            made.key_norm = vector_of(loader, of + "self_attn.k_norm.weight");
        }
        made.output = loader.load<matrix>({of + "self_attn.o_proj.weight"});
        made.gate_up = loader.load_normed<normed_matrix>({of + "mlp.gate_proj.weight", of + "mlp.up_proj.weight"},
                                                         of + "post_attention_layernorm.weight");
        made.down = loader.load<matrix>({of + "mlp.down_proj.weight"});
        for (numbers<element>* cache : {&made.keys, &made.values}) {
            *cache = {where(), options_.blocks * static_cast<std::int64_t>(block_elements())};
        }
        return made;
    }

    void make_room() {
        const std::int64_t tokens = Kernels::rows_of_room(options_);
        hidden_ = {where(), tokens * config_.hidden};
        x_ = {where(), tokens * config_.hidden};
        qkv_ = {where(), tokens * all_head_columns()};
        attended_ = {where(), tokens * head_columns()};
        inner_ = {where(), tokens * config_.intermediate};
        last_ = {where(), std::int64_t{options_.most_sequences} * config_.hidden};
        logits_ = {where(), std::int64_t{options_.most_sequences} * config_.vocabulary};
    }

    static row_view<element> rows(const numbers<element>& from, std::int64_t count, std::int64_t columns) {
        return as_rows(from.data(), count, columns);
    }
    static row_view<const element> constant(const row_view<element>& view) {
        return {view.pointer, view.extents, view.strides};
    }

    float epsilon() const { return static_cast<float>(config_.norm_epsilon); }

    void attend(const layer& own, int number, const step& now) {
        const int heads = config_.heads, key_heads = config_.key_heads, depth = config_.head_depth;
        kernels_.multiply_normed(own.query_key_value, hidden_, now.tokens, qkv_.data(), own.bias.data());
        if (config_.query_key_norm) {
            normalise_heads(0, heads, own.query_norm, now.tokens);
            normalise_heads(heads, key_heads, own.key_norm, now.tokens);
        }
        const auto all = batch_sequence_head(qkv_.data(), 1, now.tokens, heads + 2 * key_heads, depth);
        const auto q = heads_of(all, 0, heads);
        const auto cache = [&](const numbers<element>& of) {
            return batch_head_sequence(of.data(), options_.blocks, key_heads, options_.block_size, depth);
        };
        const key_pages pages{now.tables, now.table_width};
        const packed_sequences packed{.count = now.sequences, .query_starts = now.starts};
        paged_append<element>::launch(where(),
                                      {.k = constant(heads_of(all, heads, key_heads)),
                                       .v = constant(heads_of(all, heads + key_heads, key_heads)),
                                       .k_cache = cache(own.keys),
                                       .v_cache = cache(own.values),
                                       .pages = pages,
                                       .key_lengths = now.lengths,
                                       .packed = packed,
                                       .rotary = rotary(),
                                       .q = constant(q),
                                       .q_out = q,
                                       .early = true},  // nothing but q, k and v is written in the stream
                                      stream_);
        const bool has_window = config_.window > 0 && number >= config_.first_window_layer;
        kernels_.attend({.q = constant(q),
                         .k = constant(cache(own.keys)),
                         .v = constant(cache(own.values)),
                         .out = batch_sequence_head(attended_.data(), 1, now.tokens, heads, depth),
                         .key_lengths = now.lengths,
                         .packed = packed,
                         .pages = pages},
                        has_window ? config_.window : 0);
        kernels_.multiply_added(own.output, attended_.data(), now.tokens, hidden_);
    }

    static attention_view<const element> constant(const attention_view<element>& view) {
        return {view.pointer, view.extents, view.strides};
    }

    void normalise_heads(int first, int count, const numbers<float>& weight, int tokens) {
        const std::int64_t depth = config_.head_depth;
        const auto heads = as_rows_of_heads(qkv_.data() + first * depth, tokens, count, depth, all_head_columns());
        rms_norm<element, float>::launch(
            where(), {.x = constant(heads), .weight = weight.data(), .out = heads, .epsilon = epsilon()}, stream_);
    }

    rotary_embedding rotary() const {
        const bool halves = config_.rotary.style == rotary_style::half_split;
        return {turns_.data(), config_.head_depth,
                halves ? imbrex::rotary_style::half_split : imbrex::rotary_style::interleaved};
    }

    model_config config_;
    runner_options options_;
    void* stream_;
    Kernels kernels_;
    table embedding_;
    std::vector<layer> layers_;
    numbers<float> final_norm_;
    matrix vocabulary_;
    numbers<std::uint64_t> turns_;
    numbers<element> hidden_, x_, qkv_, attended_, inner_, last_;
    numbers<float> logits_;
};

}  // namespace imbrex::engine
