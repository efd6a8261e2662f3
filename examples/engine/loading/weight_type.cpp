#include "engine/loading/weight_type.hpp"

#include <array>

#include "engine/loading/ggml_blocks.hpp"

namespace imbrex::engine {

namespace {

// ggml's numbers and names. `type` is empty for a type that is not read.
struct ggml_type {
    std::uint32_t number;
    const char* name;
    std::optional<weight_type> type;
};

constexpr std::array ggml_types{
    ggml_type{0, "F32", weight_type::f32},
    ggml_type{1, "F16", weight_type::f16},
    ggml_type{2, "Q4_0", weight_type::q4_0},
    ggml_type{3, "Q4_1", weight_type::q4_1},
    ggml_type{4, "Q4_2", {}},
    ggml_type{5, "Q4_3", {}},
    ggml_type{6, "Q5_0", weight_type::q5_0},
    ggml_type{7, "Q5_1", weight_type::q5_1},
    ggml_type{8, "Q8_0", weight_type::q8_0},
    ggml_type{9, "Q8_1", {}},
    ggml_type{10, "Q2_K", weight_type::q2_k},
    ggml_type{11, "Q3_K", weight_type::q3_k},
    ggml_type{12, "Q4_K", weight_type::q4_k},
    ggml_type{13, "Q5_K", weight_type::q5_k},
    ggml_type{14, "Q6_K", weight_type::q6_k},
    ggml_type{15, "Q8_K", {}},
    ggml_type{16, "IQ2_XXS", {}},
    ggml_type{17, "IQ2_XS", {}},
    ggml_type{18, "IQ3_XXS", {}},
    ggml_type{19, "IQ1_S", {}},
    ggml_type{20, "IQ4_NL", weight_type::iq4_nl},
    ggml_type{21, "IQ3_S", {}},
    ggml_type{22, "IQ2_S", {}},
    ggml_type{23, "IQ4_XS", weight_type::iq4_xs},
    ggml_type{24, "I8", weight_type::i8},
    ggml_type{25, "I16", weight_type::i16},
    ggml_type{26, "I32", weight_type::i32},
    ggml_type{27, "I64", weight_type::i64},
    ggml_type{28, "F64", weight_type::f64},
    ggml_type{29, "IQ1_M", {}},
    ggml_type{30, "BF16", weight_type::bf16},
    ggml_type{31, "Q4_0_4_4", {}},
    ggml_type{32, "Q4_0_4_8", {}},
    ggml_type{33, "Q4_0_8_8", {}},
    ggml_type{34, "TQ1_0", {}},
    ggml_type{35, "TQ2_0", {}},
    ggml_type{36, "IQ4_NL_4_4", {}},
    ggml_type{37, "IQ4_NL_4_8", {}},
    ggml_type{38, "IQ4_NL_8_8", {}},
    ggml_type{39, "MXFP4", weight_type::mxfp4},
};

}  // namespace

const char* name_of(weight_type type) {
    switch (type) {
        case weight_type::f32:
            return "f32";
        case weight_type::f16:
            return "f16";
        case weight_type::bf16:
            return "bf16";
        case weight_type::f64:
            return "f64";
        case weight_type::e4m3:
            return "e4m3";
        case weight_type::e5m2:
            return "e5m2";
        case weight_type::i8:
            return "i8";
        case weight_type::u8:
            return "u8";
        case weight_type::i16:
            return "i16";
        case weight_type::i32:
            return "i32";
        case weight_type::i64:
            return "i64";
        case weight_type::q4_0:
            return "q4_0";
        case weight_type::q4_1:
            return "q4_1";
        case weight_type::q5_0:
            return "q5_0";
        case weight_type::q5_1:
            return "q5_1";
        case weight_type::q8_0:
            return "q8_0";
        case weight_type::q2_k:
            return "q2_K";
        case weight_type::q3_k:
            return "q3_K";
        case weight_type::q4_k:
            return "q4_K";
        case weight_type::q5_k:
            return "q5_K";
        case weight_type::q6_k:
            return "q6_K";
        case weight_type::iq4_nl:
            return "iq4_nl";
        case weight_type::iq4_xs:
            return "iq4_xs";
        case weight_type::mxfp4:
            break;
    }
    return "mxfp4";
}

block_format format_of(weight_type type) {
    switch (type) {
        case weight_type::e4m3:
        case weight_type::e5m2:
        case weight_type::i8:
        case weight_type::u8:
            return {1, 1};
        case weight_type::f16:
        case weight_type::bf16:
        case weight_type::i16:
            return {1, 2};
        case weight_type::f32:
        case weight_type::i32:
            return {1, 4};
        case weight_type::f64:
        case weight_type::i64:
            return {1, 8};
        default:
            return with_ggml_block(type, [](auto block) -> block_format { return {block.elements, block.bytes}; });
    }
}

std::optional<weight_type> weight_type_of_ggml(std::uint32_t number) {
    for (const ggml_type& one : ggml_types) {
        if (one.number == number) return one.type;
    }
    return {};
}

std::string ggml_type_name(std::uint32_t number) {
    for (const ggml_type& one : ggml_types) {
        if (one.number == number) return one.name;
    }
    return std::to_string(number);
}

std::uint32_t ggml_number_of(weight_type type) {
    for (const ggml_type& one : ggml_types) {
        if (one.type == type) return one.number;
    }
    return ~0u;
}

}  // namespace imbrex::engine
