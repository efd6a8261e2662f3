// The models of transformers_models.py as GGUF files, converted in memory: their logits match transformers too.
#include <set>

#include "engine/loading/families.hpp"
#include "engine/loading/gguf_of_model.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/support.hpp"
#include "engine/transformers.hpp"

namespace imbrex::engine::test {

TEST_CASE("Logits of GGUF files match transformers") {
    std::set<model_family> families;
    for (const auto& folder : transformers_folders()) {
        CAPTURE(folder.string());
        gguf_converter converter(folder);
        if (!converter.cannot().empty()) continue;
        const std::string file = converter.convert();
        const model_files files = read_gguf_model(bytes(file), "model.gguf");
        const transformers_model expected(folder);
        const int count = static_cast<int>(expected.tokens.size());
        const auto sequence = sequence_in(expected.tokens, blocks_from(0, (count + 15) / 16));
        const rows logits = logits_of_chunks(*runner_of(files), sequence, std::vector<int>(expected.tokens.size(), 1),
                                             files.config.vocab_size);
        CHECK(largest_distance(logits, expected.logits) < fp32_rounding);
        families.insert(files.config.family);
    }
    for (const family_description& family : all_families()) {
        if (family.architecture != nullptr) CHECK(families.contains(family.family));
    }
}

TEST_CASE("GPT-OSS in MXFP4: both layouts give the same logits") {
    for (const auto& folder : transformers_folders()) {
        if (!folder.filename().string().ends_with("mxfp4")) continue;
        const std::string file = gguf_converter(folder).convert();
        const model_files of_gguf = read_gguf_model(bytes(file), "model.gguf");
        const transformers_model own(folder);
        const std::string matrix = "model.layers.1.mlp.experts.2.up_proj.weight";
        CHECK(of_gguf.weights.at(matrix).type == weight_type::mxfp4);
        CHECK(std::ranges::equal(of_gguf.weights.at(matrix).bytes, own.files.weights.at(matrix).bytes));
        const std::vector<int> whole{static_cast<int>(own.tokens.size())};
        const auto sequence = sequence_in(own.tokens, blocks_from(0, (whole[0] + 15) / 16));
        const auto logits_of = [&](const model_files& files) {
            return logits_of_chunks(*runner_of(files), sequence, whole, files.config.vocab_size);
        };
        CHECK(logits_of(of_gguf) == logits_of(own.files));
    }
}

TEST_CASE("Early GGUF files of Mixtral have tensors for each expert") {
    for (const auto& folder : transformers_folders()) {
        if (folder.filename() != "mixtral") continue;
        gguf_converter stacked(folder), separate(folder);
        separate.separate_experts();
        const std::string files[] = {stacked.convert(), separate.convert()};
        const model_files first = read_gguf_model(bytes(files[0]), "a"), second = read_gguf_model(bytes(files[1]), "b");
        for (const expected_weight& one : expected_weights(first.config))
            CHECK(to_floats(first.weights.at(one.name)) == to_floats(second.weights.at(one.name)));
    }
}

TEST_CASE("GGUF files: a tensor that a family would ignore is refused") {
    for (const auto& folder : transformers_folders()) {
        if (folder.filename() != "phi3" && folder.filename() != "qwen3") continue;
        CAPTURE(folder.string());
        gguf_converter converter(folder);
        converter.convert();
        const std::string file = converter.with_tensor("blk.0.attn_q.scale", {1}, {2}).build();
        check_error_message("tensor \"blk.0.attn_q.scale\" of shape [1] is not used by this engine",
                            [&] { read_gguf_model(bytes(file), "model.gguf"); });
    }
}

}  // namespace imbrex::engine::test
