#include "engine/loading/ggml_blocks.hpp"

#include <cstdint>
#include <string>

#include "engine/loading/gguf.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

TEST_CASE("Blocks of every ggml type have the values of gguf-py") {
    const mapped_file file("tests/engine/data/ggml_blocks.gguf");  // by tests/engine/ggml_blocks.py
    const weight_set weights = read_gguf(file.bytes(), file.name()).weights;
    int compared = 0;
    for (const weight& one : weights.all()) {
        if (!is_block(one.type)) continue;
        CAPTURE(one.name);
        const std::vector<float> values = to_floats(one), expected = to_floats(weights.at(one.name + ".values"));
        CHECK(values == expected);
        ++compared;
    }
    CHECK(compared == 13);
}

TEST_CASE("ggml's numbers, names and sizes of types") {
    for (std::uint32_t number = 0; number < 64; ++number) {
        const auto type = weight_type_of_ggml(number);
        if (type) CHECK(ggml_number_of(*type) == number);
    }
    CHECK(ggml_type_name(12) == "Q4_K");
    CHECK(ggml_type_name(17) == "IQ2_XS");
    CHECK_FALSE(weight_type_of_ggml(17));
    CHECK(ggml_type_name(1000) == "1000");
    CHECK(name_of(weight_type::q4_k) == std::string("q4_K"));
    CHECK(byte_size(weight_type::q6_k, std::vector<std::int64_t>{2, 512}) == 2 * 2 * 210);
    CHECK_FALSE(byte_size(weight_type::q6_k, std::vector<std::int64_t>{2, 288}));
}

TEST_CASE("Numbers of other types are read as floats") {
    const auto value = [](weight_type type, std::string_view data) {
        return to_floats(weight{"w", type, {1}, bytes(data)})[0];
    };
    CHECK(value(weight_type::i8, raw(std::int8_t{-3})) == -3);
    CHECK(value(weight_type::u8, raw(std::uint8_t{253})) == 253);
    CHECK(value(weight_type::i16, raw(std::int16_t{-300})) == -300);
    CHECK(value(weight_type::i32, raw(std::int32_t{-70000})) == -70000);
    CHECK(value(weight_type::i64, raw(std::int64_t{-70000})) == -70000);
    CHECK(value(weight_type::f64, raw(0.25)) == 0.25);
}

}  // namespace imbrex::engine::test
