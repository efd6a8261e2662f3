#include "engine/loading/checkpoint_quantisation.hpp"

#include <cmath>

#include "engine/loading/safetensors.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

constexpr const char* folder = "tests/engine/data/quantised_checkpoints/";  // by tests/engine/quantised_checkpoints.py

struct checkpoint_file {
    mapped_file file;
    safetensors_file content;
    json config;

    explicit checkpoint_file(const std::string& name)
        : file(folder + name + ".safetensors"),
          content(read_safetensors(file.bytes(), name)),
          config(parse_json(content.metadata.at("quantization_config"), name)) {}

    // Without one tensor.
    weight_set without(std::string_view name) const {
        return content.weights.renamed([&](const std::string& own) { return own == name ? "" : own; }, "file");
    }
    void check_refusal(const std::string& part, const weight_set& weights) const {
        check_error_message(part, [&] { read_quantised_checkpoint(weights, config, "file"); });
    }
    void check_refusal(const std::string& part, const char* key, const json& value) {
        const json before = config;
        config[key] = value;
        check_refusal(part, content.weights);
        config = before;
    }
};

}  // namespace

TEST_CASE("Reads quantised checkpoints") {
    const std::pair<const char*, weight_type> files[] = {
        {"gptq_4", weight_type::q4_0},           {"gptq_4_zeros", weight_type::q8_0},
        {"gptq_4_act_order", weight_type::bf16}, {"gptq_4_v2", weight_type::q4_0},
        {"gptq_8", weight_type::q8_0},           {"awq", weight_type::q8_0},
        {"compressed_4", weight_type::q4_0},     {"compressed_4_zeros", weight_type::q8_0},
        {"compressed_int8", weight_type::q8_0},  {"fp8_tensor", weight_type::bf16},
        {"fp8_channel", weight_type::bf16},      {"fp8_block", weight_type::bf16},
    };
    for (const auto& [name, type] : files) {
        CAPTURE(std::string(name));
        const checkpoint_file file(name);
        const weight_set result = read_quantised_checkpoint(file.content.weights, file.config, name);
        CHECK(result.all().size() == 2);  // the weight and the expected values
        const weight& made = result.at("m.weight");
        CHECK(std::string(name_of(made.type)) == name_of(type));
        CHECK(made.shape == std::vector<std::int64_t>{16, 128});
        const std::vector<float> values = to_floats(made), expected = to_floats(result.at("expected"));
        const float most = type == weight_type::bf16 ? 0x1p-8f : 0x1p-22f;
        int wrong = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            wrong += std::abs(values[i] - expected[i]) <= most * std::abs(expected[i]) ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("Refuses quantised checkpoints that it cannot read, with the reason") {
    checkpoint_file gptq("gptq_4");
    gptq.check_refusal("\"m.scales\" is not in the model", gptq.without("m.scales"));
    gptq.check_refusal("\"m.qzeros\" is not in the model", gptq.without("m.qzeros"));
    gptq.check_refusal("quant_method is \"bitsandbytes\"; gptq, awq,", "quant_method", "bitsandbytes");
    gptq.check_refusal("\"quant_method\" is missing", "quant_method", nullptr);
    gptq.check_refusal("bits is 3; 4 and 8 can be read", "bits", 3);
    gptq.check_refusal("m.qzeros: has the shape [4, 2]; it must be [4, 4]", "bits", 8);
    gptq.check_refusal("\"dynamic\" changes the format", "dynamic", {{"-:lm_head", 1}});
    checkpoint_file awq("awq");
    awq.check_refusal("version is \"gemv\"; gemm can be read", "version", "gemv");
    checkpoint_file packed("compressed_4");
    packed.check_refusal("format is \"marlin-24\"; pack-quantized,", "format", "marlin-24");
    packed.check_refusal("\"m.weight_shape\" is not in the model", packed.without("m.weight_shape"));
    checkpoint_file blocks("fp8_block");
    blocks.check_refusal("a scale for each 5 x 48 elements", "weight_block_size", json::parse("[5, 48]"));
    blocks.check_refusal("weight_block_size is an array; it must be two positive whole numbers", "weight_block_size",
                         json::parse("[0, 48]"));
    check_error_message("file: quantization_config is 1; it must be an object",
                        [&] { read_quantised_checkpoint(gptq.content.weights, json(1), "file"); });
}

TEST_CASE("Scales beyond fp16 give bf16, and other weights stay") {
    std::string values(32, '\2'), scale = raw(1e-9f);
    weight_set weights;
    weights.add({"m.weight", weight_type::i8, {1, 32}, bytes(values)}, "file");
    weights.add({"m.weight_scale", weight_type::f32, {1}, bytes(scale)}, "file");
    weights.add({"norm.weight", weight_type::f32, {1}, bytes(scale)}, "file");
    const json config{{"quant_method", "compressed-tensors"}, {"format", "int-quantized"}};
    const weight_set result = read_quantised_checkpoint(weights, config, "file");
    CHECK(result.at("m.weight").type == weight_type::bf16);
    CHECK(to_floats(result.at("m.weight"))[5] == doctest::Approx(2e-9).epsilon(0.004));
    CHECK(to_floats(result.at("norm.weight")) == std::vector<float>{1e-9f});
}

}  // namespace imbrex::engine::test
