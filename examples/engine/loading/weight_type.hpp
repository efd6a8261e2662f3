// Element types of weights in files. f32 to i64 have one element a block; the others are ggml's blocks
// (ggml_blocks.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace imbrex::engine {

enum class weight_type {
    f32,
    f16,
    bf16,
    f64,
    e4m3,
    e5m2,
    i8,
    u8,
    i16,
    i32,
    i64,
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    q8_0,
    q2_k,
    q3_k,
    q4_k,
    q5_k,
    q6_k,
    iq4_nl,
    iq4_xs,
    mxfp4,
};

const char* name_of(weight_type type);

// Elements and bytes of a block.
struct block_format {
    std::int64_t elements;
    std::int64_t bytes;
};
block_format format_of(weight_type type);

constexpr bool is_integer(weight_type type) {
    return type >= weight_type::i8 && type <= weight_type::i64;
}

// True for ggml's blocks.
constexpr bool is_block(weight_type type) {
    return type >= weight_type::q4_0;
}

// The type that GGUF files give this number; nothing if the engine cannot read it.
std::optional<weight_type> weight_type_of_ggml(std::uint32_t number);

// "IQ2_XS" for 17; the number itself if ggml has no such type.
std::string ggml_type_name(std::uint32_t number);

// The number of a type in GGUF files.
std::uint32_t ggml_number_of(weight_type type);

}  // namespace imbrex::engine
