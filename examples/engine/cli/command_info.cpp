// info: the contents of a model file and its memory requirements.
#include <algorithm>
#include <array>
#include <cstdio>
#include <imbrex/core/error.hpp>
#include <map>
#include <ostream>
#include <unordered_set>

#include "engine/chat/chat_format.hpp"
#include "engine/cli/commands.hpp"
#include "engine/loading/model_files.hpp"
#include "engine/model/kv_cache_layout.hpp"
#include "engine/model/weight_mixture.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

std::string with_unit(std::int64_t number, double step, const std::array<const char*, 5>& units) {
    auto value = static_cast<double>(number);
    std::size_t unit = 0;
    while (value >= step && unit + 1 < units.size()) {
        value /= step;
        ++unit;
    }
    char text[64];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f%s" : "%.2f%s", value, units[unit]);
    return text;
}

std::string bytes_text(std::int64_t bytes) {
    return with_unit(bytes, 1000, {" bytes", " kB", " MB", " GB", " TB"});
}

std::string count_text(std::int64_t count) {
    return std::to_string(count) + (count < 1000 ? "" : " (" + with_unit(count, 1000, {"", "k", "M", "B", "T"}) + ")");
}

std::string rope_text(const model_config& config, const rope_config& rope) {
    std::string text =
        str_cat("theta ", rope.theta, rope.style == rope_style::half_split ? ", half-split" : ", interleaved");
    if (config.rotary_dim(rope) < config.head_dim)
        text += str_cat(", the first ", config.rotary_dim(rope), " columns of a head");
    const std::string original = str_cat(" from a context of ", rope.original_max_position_embeddings);
    switch (rope.scaling) {
        case rope_scaling::none:
            return text + (rope.freq_factors.empty() ? "" : ", frequencies divided by factors in the file");
        case rope_scaling::linear:
            return text + str_cat(", all frequencies divided by ", rope.factor);
        case rope_scaling::dynamic:
            return text + str_cat(", dynamic scaling by ", rope.factor, original);
        case rope_scaling::yarn:
            return text + str_cat(", YaRN by ", rope.factor, original);
        case rope_scaling::llama3:
            return text + str_cat(", low frequencies divided by ", rope.factor, original);
        case rope_scaling::longrope:
            return text + str_cat(", longrope", original);
    }
    return text;
}

// The parts of the model that not every family has.
std::string variations_text(const model_config& config) {
    std::string text;
    const auto add = [&](bool has, const std::string& what) {
        if (has) text += ", " + what;
    };
    add(config.tie_word_embeddings, "tied embedding");
    add(config.qkv_bias, "QKV bias");
    add(config.output_bias, "output bias");
    add(config.qk_norm != qk_norm_rows::none, "QK norm");
    add(config.norm == norm_kind::layer, "LayerNorm");
    add(config.norms == norm_place::after, "norms after sublayers");
    add(config.norms == norm_place::around, "norms around sublayers");
    add(config.attention_sinks, "attention sinks");
    add(config.activation == gate_activation::gelu_tanh, "GELU");
    add(config.parallel_residual, "parallel residual");
    add(config.attention_softcap > 0, str_cat("attention softcap ", config.attention_softcap));
    add(config.logits_softcap > 0, str_cat("logits softcap ", config.logits_softcap));
    return text;
}

// Layers with a window, or without RoPE.
template <class Is>
std::string layers_text(const model_config& config, const Is& is) {
    std::string text;
    int count = 0;
    for (int layer = 0; layer < config.layers; ++layer) {
        if (!is(config.attention_of(layer))) continue;
        ++count;
        text += (text.empty() ? "" : ", ") + std::to_string(layer);
    }
    return count == 0 || count == config.layers ? (count == 0 ? "" : "all layers") : "layers " + text;
}

std::string tokens_text(const tokenizer& tokens) {
    int special = 0;
    for (int id = 0; id < tokens.size(); ++id) special += tokens.at(id).kind == token_kind::special ? 1 : 0;
    return str_cat(tokens.size(), " tokens, ", special, " of them special");
}

std::string template_text(const model_files& files) {
    if (!files.chat.text.empty()) return str_cat("the model's own, ", files.chat.text.size(), " bytes");
    const auto format = chat_format::named("auto", files.tokens, {});
    return format ? format->description() : "none: chat continues the input";
}

std::string ids_text(const model_config& config, const tokenizer& tokens) {
    std::string text;
    for (const int id : config.eos_tokens) {
        text += str_cat(text.empty() ? "" : ", ", id, " ", id < tokens.size() ? printable(tokens.at(id).bytes) : "");
    }
    return text.empty() ? "none" : text;
}

// Bytes of a token and of a full context; layers with a window keep the tokens of the window.
std::string cache_text(const model_config& config, const runner_options& options) {
    std::int64_t token = 0, context = 0, of_windows = 0;
    for (const cache_group& each : kv_cache_groups(config, options)) {
        const std::int64_t bytes = each.block_bytes / options.block_size;
        (each.window == 0 ? token : of_windows) += bytes;
        context += bytes * (each.window == 0 ? config.context : each.window);
    }
    std::string text = bytes_text(token) + " a token, ";
    if (of_windows > 0) text += bytes_text(of_windows) + " a token of a window, ";
    return text + bytes_text(context) + " for a full context";
}

}  // namespace

int run_info(const info_command& command, const command_streams& streams) {
    const model_files files = open_model(command.path, weight_contents::none);
    const model_config& config = files.config;
    const auto line = [&](const char* what, const std::string& text) {
        char name[32];
        std::snprintf(name, sizeof name, "%-16s ", what);
        streams.out << name << text << "\n";
    };

    std::int64_t parameters = 0;
    std::unordered_set<std::string> used;
    std::map<weight_type, std::pair<int, std::int64_t>> types;
    for (const expected_weight& expected : expected_weights(config)) {
        const weight& found = files.weights.at(expected.name);
        parameters += found.elements();
        used.insert(expected.name);
        auto& [count, bytes] = types[found.type];
        ++count;
        bytes += static_cast<std::int64_t>(found.bytes.size());
    }
    line("model", files.name);
    line("architecture", name_of(config.family) + variations_text(config));
    line("layers", std::to_string(config.layers));
    line("hidden size", str_cat(config.hidden_size, ", feed-forward ", config.intermediate_size));
    if (config.experts.given())
        line("experts", str_cat(config.experts.count, " in each layer, ", config.experts.per_token, " for each token"));
    line("heads", str_cat(config.heads, " of head_dim ", config.head_dim, ", ", config.kv_heads, " KV heads"));
    line("RoPE", rope_text(config, config.rope));
    if (config.local_rope) line("RoPE, window", rope_text(config, *config.local_rope));
    const std::string unrotated =
        layers_text(config, [](const layer_attention& one) { return one.rope == layer_rope::none; });
    if (!unrotated.empty()) line("no RoPE", unrotated);
    line("context", str_cat(config.context, " tokens"));
    int window = 0;
    for (const layer_attention& one : config.attention_layers) window = std::max(window, one.window);
    if (window > 0) {
        line("window", str_cat(window, " tokens, ",
                               layers_text(config, [](const layer_attention& one) { return one.window > 0; })));
    }
    line("vocabulary", std::to_string(config.vocab_size));
    line("tokenizer", tokens_text(files.tokens));
    line("chat template", template_text(files));
    line("end tokens", ids_text(config, files.tokens));
    line("parameters", count_text(parameters));
    for (const auto& [type, sum] : types)
        line("weights", str_cat(name_of(type), ": ", sum.first, " tensors, ", bytes_text(sum.second)));
    char bits[32];
    std::snprintf(bits, sizeof bits, "%.2f", bits_per_weight(files.weights));
    line("bits per weight", str_cat(bits, " of all matrices"));

    for (const world where : {world::host, world::device}) {
        line("KV cache", cache_text(config, {.where = where}) + (where == world::host ? ", on a CPU" : ", on a GPU"));
    }
    if (!command.lists_tensors) return exit_success;
    for (const weight& each : files.weights.all()) {
        streams.out << name_of(each.type) << "\t" << to_string(each.shape) << "\t" << printable(each.name)
                    << (used.contains(each.name) ? "" : "\tnot used") << "\n";
    }
    return exit_success;
}

}  // namespace imbrex::engine
