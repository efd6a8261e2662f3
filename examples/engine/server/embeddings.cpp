#include "engine/server/embeddings.hpp"

#include <bit>
#include <charconv>
#include <cmath>
#include <imbrex/core/error.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "engine/server/prompts.hpp"

namespace imbrex::engine::server {

namespace {

// The first `dimensions`, of length 1.
std::vector<float> normalised(std::vector<float> values, std::size_t dimensions) {
    values.resize(dimensions);
    double squares = 0;
    for (const float each : values) squares += static_cast<double>(each) * static_cast<double>(each);
    const double length = std::sqrt(squares);
    if (length == 0) return values;
    for (float& each : values) each = static_cast<float>(static_cast<double>(each) / length);
    return values;
}

// The double with the shortest text that reads back as this float.
double shortest(float value) {
    char text[32];
    const char* const end = std::to_chars(text, text + sizeof text, value).ptr;
    double result = 0;
    std::from_chars(text, end, result);
    return result;
}

std::string base64(std::span<const unsigned char> bytes) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t count = std::min<std::size_t>(bytes.size() - i, 3);
        unsigned bits = 0;
        for (std::size_t j = 0; j < 3; ++j) bits = bits << 8 | (j < count ? bytes[i + j] : 0u);
        for (std::size_t j = 0; j < 4; ++j) text += j <= count ? digits[bits >> (18 - 6 * j) & 63] : '=';
    }
    return text;
}

// Floats in little-endian order, as numpy reads them.
std::string base64(std::span<const float> values) {
    std::vector<unsigned char> bytes;
    for (const float each : values) {
        const auto bits = std::bit_cast<std::uint32_t>(each);
        for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<unsigned char>(bits >> shift & 255));
    }
    return base64(bytes);
}

class embedding_writer final : public reply_writer {
  public:
    embedding_writer(std::string model, std::size_t inputs, std::size_t dimensions, bool is_base64,
                     std::int64_t prompt_tokens)
        : model_(std::move(model)),
          embeddings_(inputs),
          dimensions_(dimensions),
          is_base64_(is_base64),
          prompt_tokens_(prompt_tokens) {}

    void take(generation_event& event, std::string&) override {
        embeddings_[static_cast<std::size_t>(event.index)] =
            normalised(std::move(event.sampled.embedding), dimensions_);
    }

    std::string finish() override {
        json reply{{"object", "list"}, {"data", json::array()}, {"model", model_}};
        for (const std::vector<float>& each : embeddings_) {
            json values;
            if (is_base64_) {
                values = base64(each);
            } else {
                values = json::array();
                for (const float value : each) values.push_back(shortest(value));
            }
            reply["data"].push_back(
                {{"object", "embedding"}, {"index", reply["data"].size()}, {"embedding", std::move(values)}});
        }
        reply["usage"] = {{"prompt_tokens", prompt_tokens_}, {"total_tokens", prompt_tokens_}};
        return dumped(reply);
    }

  private:
    std::string model_;
    std::vector<std::vector<float>> embeddings_;
    std::size_t dimensions_;
    bool is_base64_;
    std::int64_t prompt_tokens_;
};

}  // namespace

api_reply embeddings(const api_context& context, const json& body) {
    request_fields fields(body);
    check_model(context, fields);
    const int width = context.model.config().hidden_size;
    const auto dimensions = fields.integer("dimensions", 1, width).value_or(width);
    const std::string encoding = fields.choice("encoding_format", {"float", "base64"}).value_or("float");
    const auto pooling = fields.choice("pooling", {"mean", "last"});
    fields.ignore({"user"});
    if (fields.find("input") == nullptr) fields.fail("input", "a text, tokens, or an array of either is needed");
    // With the special tokens at both ends that the vocabulary defines.
    const auto encode = [&](const std::string& text) {
        std::vector<int> tokens = context.model.tokens().encode(text);
        return tokens.empty() ? context.model.encode_prompt(text) : tokens;
    };
    const std::vector<std::vector<int>> inputs = read_prompts(context, fields, "input", 1, encode);
    fields.refuse_unknown();
    text_options options{.max_tokens = 1, .ends = false};
    options.sampling.temperature = 0;
    options.pooling = !pooling             ? context.settings.pooling
                      : *pooling == "mean" ? pooling_mode::mean
                                           : pooling_mode::last;
    std::vector<generation_request> requests;
    std::int64_t tokens = 0;
    for (const std::vector<int>& each : inputs) {
        requests.push_back({each, options});
        tokens += static_cast<std::int64_t>(each.size());
    }
    api_reply reply;
    reply.writer = std::make_unique<embedding_writer>(
        context.settings.model_name, inputs.size(), static_cast<std::size_t>(dimensions), encoding == "base64", tokens);
    reply.work = context.service.submit(std::move(requests));
    return reply;
}

}  // namespace imbrex::engine::server
