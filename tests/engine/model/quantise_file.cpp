#include "engine/model/quantise_file.hpp"

#include <filesystem>

#include "engine/loading/gguf_writer.hpp"
#include "engine/loading/model_files.hpp"
#include "engine/loading/small_gguf.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/rounded_weights.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

model_config config_with_groups() {
    model_config config = small_config(model_family::qwen2);
    config.hidden_size = 96;  // a multiple of 32; the intermediate size is not
    config.vocab_size = 26;
    config.tie_word_embeddings = false;
    return config;
}

// Largest difference of the weights, relative to the largest magnitude in each group of 32.
double largest_difference(const std::vector<float>& found, const std::vector<float>& expected) {
    double largest = 0;
    for (std::size_t group = 0; group < expected.size(); group += 32) {
        double highest = 0, difference = 0;
        for (std::size_t i = group; i < group + 32; ++i) {
            highest = std::max(highest, std::abs(double{expected[i]}));
            difference = std::max(difference, std::abs(double{found[i]} - double{expected[i]}));
        }
        largest = std::max(largest, difference / highest);
    }
    return largest;
}

}  // namespace

TEST_CASE("Quantises a Hugging Face folder to a folder that opens") {
    const temporary_folder folder;
    const auto from = folder.path() / "from";
    std::filesystem::create_directory(from);
    const model_files model = random_model(config_with_groups());
    write_folder(model, from);
    const std::tuple<weight_format, weight_type, double> formats[] = {{weight_format::int8, weight_type::q8_0, 0.005},
                                                                      {weight_format::int4, weight_type::q4_0, 0.25},
                                                                      {weight_format::bf16, weight_type::bf16, 0.004},
                                                                      {weight_format::f16, weight_type::f16, 0.0005}};
    for (const auto& [format, type, most] : formats) {
        CAPTURE(std::string(name_of(format)));
        const auto to = folder.path() / name_of(format);
        quantise_file(from, to, format);
        CHECK_FALSE(std::filesystem::exists(to / "model.safetensors"));
        const model_files result = open_model(to);
        CHECK(result.tokens.size() == model.tokens.size());
        for (const weight& one : model.weights.all()) {
            CAPTURE(one.name);
            const weight& found = result.weights.at(one.name);
            const bool is_matrix = one.shape.size() == 2;
            const bool fits = is_matrix && one.row_elements() % format_of(type).elements == 0;
            const bool is_outer = one.name == "lm_head.weight" || one.name == "model.embed_tokens.weight";
            const weight_type wanted = is_outer && type == weight_type::q4_0 ? weight_type::q8_0 : type;
            CHECK(found.type == (fits ? wanted : weight_type::f32));
            CHECK(found.shape == one.shape);
            if (fits) {
                CHECK(largest_difference(to_floats(found), to_floats(one)) < most);
            } else {
                CHECK(to_floats(found) == to_floats(one));
            }
        }
    }
}

TEST_CASE("Quantises a GGUF file to a GGUF file with the same keys") {
    const temporary_folder folder;
    gguf_builder builder = small_gguf();
    builder.truth("x.truth", true).numbers<std::int16_t>("x.wholes", 3, {-1, 2}).real("x.real", 0.5f);
    builder.value("x.wide", 11, raw(std::int64_t{-5})).strings("x.texts", {"a", ""}).whole("general.file_type", 0);
    builder.numbers<double>("x.reals", 12, {0.25}).value("split.count", 2, raw(std::uint16_t{0}));
    folder.write("from.gguf", builder.build());
    const auto from = folder.path() / "from.gguf", to = folder.path() / "to.gguf";
    quantise_file(from, to, weight_format::bf16);
    const std::string before = content(from), after = content(to);
    const gguf_file first = read_gguf(bytes(before), "first"), second = read_gguf(bytes(after), "second");
    for (const auto& [key, value] : first.metadata.all()) {
        CAPTURE(key);
        if (key == "general.file_type" || key.starts_with("split.")) continue;
        const gguf_value* found = second.metadata.find(key);
        REQUIRE(found != nullptr);
        CHECK(found->type == value.type);
        CHECK(found->element == value.element);
        CHECK(found->content == value.content);
    }
    CHECK(second.metadata.whole("general.file_type") == 32);
    CHECK_FALSE(second.metadata.has("split.count"));
    CHECK(second.weights.at("blk.0.attn_q.weight").type == weight_type::bf16);
    CHECK(second.weights.at("output_norm.weight").type == weight_type::f32);
    CHECK(to_floats(second.weights.at("blk.0.ffn_down.weight")) ==
          to_floats(first.weights.at("blk.0.ffn_down.weight")));
    open_model(to);
}

TEST_CASE("Refuses to quantise what it cannot, and leaves no output") {
    const temporary_folder folder;
    folder.write("from.gguf", small_gguf().build());
    folder.write("there.gguf", "x");
    const auto from = folder.path() / "from.gguf", to = folder.path() / "to.gguf";
    check_error_message("none.gguf: does not exist",
                        [&] { quantise_file(folder.path() / "none.gguf", to, weight_format::int8); });
    check_error_message("there.gguf: exists; the output is a new file or folder",
                        [&] { quantise_file(from, folder.path() / "there.gguf", weight_format::int8); });
    check_error_message("weights: e4m3; f32, f16, bf16, int8, int4 and mixed can be written",
                        [&] { quantise_file(from, to, weight_format::e4m3); });
    check_error_message("cannot be created",
                        [&] { quantise_file(from, folder.path() / "none" / "to.gguf", weight_format::int8); });
    folder.write("bad.gguf", "GGUF");
    check_error_message("bad.gguf: ends at byte 4",
                        [&] { quantise_file(folder.path() / "bad.gguf", to, weight_format::int8); });
    CHECK_FALSE(std::filesystem::exists(to));
    CHECK_FALSE(std::filesystem::exists(to.string() + ".part"));
    gguf_builder infinite = small_gguf_keys();
    infinite.floats("m.weight", {32, 2}, std::numeric_limits<float>::infinity());
    folder.write("infinite.gguf", infinite.build());
    check_error_message("m.weight: row 0",
                        [&] { quantise_file(folder.path() / "infinite.gguf", to, weight_format::int8); });
    CHECK_FALSE(std::filesystem::exists(to));
    CHECK_FALSE(std::filesystem::exists(to.string() + ".part"));
}

}  // namespace imbrex::engine::test
