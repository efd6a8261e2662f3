#include "engine/loading/random_blocks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <imbrex/core/error.hpp>
#include <imbrex/core/fp16.hpp>
#include <imbrex/core/splitmix64.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#include <string>
#include <vector>

#include "engine/loading/weights.hpp"

namespace imbrex::engine {

namespace {

// Where a block has its fp16 scale and minimum (-1: none), and which minimum makes the mean of the weights 0, in scales.
struct block_scales {
    int scale, minimum;
    float minimum_in_scales;
};
block_scales scales_of(weight_type type) {
    switch (type) {
        case weight_type::q4_1:
            return {0, 2, -7.5f};
        case weight_type::q5_1:
            return {0, 2, -15.5f};
        case weight_type::q2_k:
            return {80, 82, 1.5f};
        case weight_type::q3_k:
            return {108, -1, 0};
        case weight_type::q4_k:
            return {0, 2, 7.5f};
        case weight_type::q5_k:
            return {0, 2, 15.5f};
        case weight_type::q6_k:
            return {208, -1, 0};
        default:
            return {0, -1, 0};
    }
}

void set_scale(weight_type type, std::byte* block, float scale) {
    if (type == weight_type::mxfp4) {
        block[0] = static_cast<std::byte>(127 + std::lround(std::log2(scale)));
        return;
    }
    const auto set = [&](int place, float value) {
        const std::uint16_t bits = fp16::encode(value);
        std::memcpy(block + place, &bits, sizeof bits);
    };
    const block_scales at = scales_of(type);
    set(at.scale, scale);
    if (at.minimum >= 0) set(at.minimum, scale * at.minimum_in_scales);
}

void fill_with_scale(weight_type type, std::span<std::byte> bytes, float scale, std::uint64_t seed) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof seed) {
        const std::uint64_t bits = splitmix64(seed + at * splitmix64_step);
        std::memcpy(bytes.data() + at, &bits, std::min(sizeof bits, bytes.size() - at));
    }
    const auto size = static_cast<std::size_t>(format_of(type).bytes);
    for (std::size_t at = 0; at < bytes.size(); at += size) set_scale(type, bytes.data() + at, scale);
}

// The standard deviation of weights whose scale is 1.
float deviation_of(weight_type type) {
    const block_format format = format_of(type);
    const std::int64_t count = 4096;
    std::vector<std::byte> bytes(static_cast<std::size_t>(count / format.elements * format.bytes));
    fill_with_scale(type, bytes, 1, 1);
    double squares = 0;
    for (const float value : to_floats({"sample", type, {1, count}, bytes})) squares += double{value} * value;
    return static_cast<float>(std::sqrt(squares / static_cast<double>(count)));
}

// In q4_K_M llama.cpp keeps more bits of the first and last layers, and of every third between them.
bool has_more_bits(std::string_view name, int layers) {
    constexpr std::string_view before = "model.layers.";
    const int layer = std::stoi(std::string(name.substr(before.size())));
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

weight_type type_in_q4_k_m(const model_config& config, std::string_view name) {
    const bool is_output =
        name == "lm_head.weight" || (config.tie_word_embeddings && name == "model.embed_tokens.weight");
    const bool can_have_more = name.ends_with("v_proj.weight") || name.ends_with("down_proj.weight");
    return is_output || (can_have_more && has_more_bits(name, config.layers)) ? weight_type::q6_k : weight_type::q4_k;
}

weight_type type_named(std::string_view kind) {
    std::string known = "bf16, q4_K_M, mxfp4_moe";
    for (int type = 0; type <= static_cast<int>(weight_type::mxfp4); ++type) {
        const auto one = static_cast<weight_type>(type);
        if (!is_block(one)) continue;
        if (kind == name_of(one)) return one;
        known += std::string(", ") + name_of(one);
    }
    require(kind == "bf16", "type of random weights: ", std::string(kind), "; these are known: ", known);
    return weight_type::bf16;
}

}  // namespace

weight_type random_weight_type(std::string_view kind, const model_config& config, const expected_weight& weight) {
    const bool is_expert = weight.name.find(".experts.") != std::string::npos, is_mixture = kind == "mxfp4_moe";
    const weight_type wanted = kind == "q4_K_M" ? type_in_q4_k_m(config, weight.name)
                               : is_mixture     ? weight_type::q8_0
                                                : type_named(kind);
    if (weight.shape.size() < 2) return weight_type::bf16;
    const bool is_mxfp4 =
        is_expert && (is_mixture || (wanted == weight_type::bf16 && config.family == model_family::gpt_oss));
    if (is_mxfp4 && weight.shape.back() % 32 == 0) return weight_type::mxfp4;
    for (const weight_type type : {wanted, weight_type::q8_0}) {
        if (weight.shape.back() % format_of(type).elements == 0) return type;
    }
    return weight_type::bf16;
}

void fill_with_random_blocks(weight_type type, std::span<std::byte> bytes, float deviation, std::uint64_t seed) {
    const float scale = deviation / deviation_of(type);
    // Pieces have seeds of their own: the result does not depend on threads.
    const std::size_t piece = static_cast<std::size_t>(format_of(type).bytes) << 12;
    hw::thread_pool::shared().for_each(static_cast<int>((bytes.size() + piece - 1) / piece), 0, [&](int number) {
        const std::size_t first = static_cast<std::size_t>(number) * piece;
        fill_with_scale(type, bytes.subspan(first, std::min(piece, bytes.size() - first)), scale,
                        splitmix64(seed + static_cast<std::uint64_t>(number)));
    });
}

}  // namespace imbrex::engine
