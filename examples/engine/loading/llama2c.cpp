#include "engine/loading/llama2c.hpp"

#include <cstring>
#include <imbrex/core/error.hpp>

namespace imbrex::engine {

namespace {

constexpr std::uint32_t magic = 0x616b3432;  // "ak42"
constexpr std::size_t numbers = 7;
constexpr std::int32_t largest_legacy_vocabulary = 1 << 24;
constexpr std::size_t legacy_header = numbers * 4;
constexpr std::size_t version_1_header = 256;
constexpr std::size_t version_1_shared = 8 + numbers * 4;  // offset of the tied-embeddings flag

template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t place) {
    Number value;
    std::memcpy(&value, bytes.data() + place, sizeof value);
    return value;
}

model_config read_sizes(std::span<const std::byte> bytes, std::size_t place, const std::string& name) {
    const auto number = [&](std::size_t index) { return number_at<std::int32_t>(bytes, place + index * 4); };
    model_config config;
    config.hidden_size = number(0);
    config.intermediate_size = number(1);
    config.layers = number(2);
    config.heads = number(3);
    config.kv_heads = number(4);
    config.vocab_size = number(5);
    config.context = number(6);
    require(config.heads > 0 && config.hidden_size > 0 && config.hidden_size % config.heads == 0, name, ": ",
            config.hidden_size, " elements for ", config.heads,
            " heads; it must be a multiple, or this is no file of llama2.c");
    config.head_dim = config.hidden_size / config.heads;
    config.rope.style = rope_style::interleaved;
    config.bos_token = 1;
    config.eos_tokens = {2, 1};  // llama2.c also ends at BOS
    return config;
}

// Takes the floats of the file in order.
class float_reader {
  public:
    float_reader(std::span<const std::byte> bytes, weight_set& weights, const std::string& name)
        : rest_(bytes), weights_(weights), name_(name) {}

    void take(const std::string& tensor, const std::vector<std::int64_t>& shape) {
        const auto size = byte_size(weight_type::f32, shape);
        require(size && static_cast<std::uint64_t>(*size) <= rest_.size(), name_, ": ends within \"", tensor, "\" ",
                to_string(shape), ": only ", rest_.size(), " bytes remain");
        weights_.add({tensor, weight_type::f32, shape, rest_.first(static_cast<std::size_t>(*size))}, name_);
        rest_ = rest_.subspan(static_cast<std::size_t>(*size));
    }

    void take_for_layers(int layers, const std::string& tensor, const std::vector<std::int64_t>& shape) {
        for (int layer = 0; layer < layers; ++layer) {
            take("model.layers." + std::to_string(layer) + "." + tensor + ".weight", shape);
        }
    }

    void skip(std::int64_t floats, const char* what) {
        const auto size = static_cast<std::uint64_t>(floats) * 4;
        require(size <= rest_.size(), name_, ": ends within ", what, ": only ", rest_.size(), " bytes remain");
        rest_ = rest_.subspan(static_cast<std::size_t>(size));
    }

    void finish() const { require(rest_.empty(), name_, ": has ", rest_.size(), " bytes after its last weight"); }

  private:
    std::span<const std::byte> rest_;
    weight_set& weights_;
    const std::string& name_;
};

}  // namespace

llama2c_file read_llama2c(std::span<const std::byte> bytes, const std::string& name) {
    require(bytes.size() >= legacy_header, name, ": has ", bytes.size(), " bytes; a file of llama2.c has at least ",
            legacy_header);
    const bool is_version_1 = number_at<std::uint32_t>(bytes, 0) == magic;
    llama2c_file file;
    model_config& config = file.config;
    if (is_version_1) {
        require(bytes.size() >= version_1_header, name, ": has ", bytes.size(), " bytes; its header has ",
                version_1_header);
        const auto version = number_at<std::int32_t>(bytes, 4);
        require(version == 1, name, ": version ", version, "; the legacy form and version 1 can be read");
        config = read_sizes(bytes, 8, name);
        const auto shared = number_at<std::uint8_t>(bytes, version_1_shared);
        require(shared <= 1, name, ": the byte for tied embeddings is ", shared, "; 0 and 1 are allowed");
        config.tie_word_embeddings = shared == 1;
    } else {
        config = read_sizes(bytes, 0, name);
        config.tie_word_embeddings = config.vocab_size > 0;  // the sign is the flag
        require(config.vocab_size > -largest_legacy_vocabulary, name, ": the vocabulary size is ", config.vocab_size);
        if (config.vocab_size < 0) config.vocab_size = -config.vocab_size;
    }
    check_sizes(config, name);

    float_reader from(bytes.subspan(is_version_1 ? version_1_header : legacy_header), file.weights, name);
    const std::int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
    const std::int64_t key = std::int64_t(config.kv_heads) * config.head_dim;
    const auto norms = [&](const char* tensor) { from.take_for_layers(config.layers, tensor, {hidden}); };
    const auto matrices = [&](const char* tensor, std::int64_t rows, std::int64_t columns) {
        from.take_for_layers(config.layers, tensor, {rows, columns});
    };
    const auto attention = [&] {
        matrices("self_attn.q_proj", hidden, hidden);
        matrices("self_attn.k_proj", key, hidden);
        matrices("self_attn.v_proj", key, hidden);
        matrices("self_attn.o_proj", hidden, hidden);
    };
    const auto feed_forward = [&] {
        matrices("mlp.gate_proj", intermediate, hidden);
        matrices("mlp.down_proj", hidden, intermediate);
        matrices("mlp.up_proj", intermediate, hidden);
    };
    if (is_version_1) {
        norms("input_layernorm");
        norms("post_attention_layernorm");
        from.take("model.norm.weight", {hidden});
        from.take("model.embed_tokens.weight", {config.vocab_size, hidden});
        attention();
        feed_forward();
    } else {
        from.take("model.embed_tokens.weight", {config.vocab_size, hidden});
        norms("input_layernorm");
        attention();
        norms("post_attention_layernorm");
        feed_forward();
        from.take("model.norm.weight", {hidden});
        from.skip(std::int64_t(config.context) * config.head_dim, "the RoPE tables");
    }
    if (!config.tie_word_embeddings) from.take("lm_head.weight", {config.vocab_size, hidden});
    from.finish();
    return file;
}

}  // namespace imbrex::engine
