// Models with reference logits of Hugging Face's transformers, written by transformers_models.py.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/loading/model_files.hpp"
#include "engine/loading/safetensors.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

inline std::vector<std::filesystem::path> transformers_folders() {
    const char* named = std::getenv("IMBREX_TRANSFORMERS_MODELS");
    const auto base =
        named ? std::filesystem::path(named) : std::filesystem::path(__FILE__).parent_path() / "data" / "transformers";
    std::vector<std::filesystem::path> folders;
    for (const auto& entry : std::filesystem::directory_iterator(base)) folders.push_back(entry.path());
    std::ranges::sort(folders);
    REQUIRE(!folders.empty());
    return folders;
}

struct transformers_model {
    model_files files;
    std::vector<int> tokens;
    rows logits;        // of each token, in float64
    double bf16_error;  // error of transformers in bf16

    explicit transformers_model(const std::filesystem::path& folder) : files(open_model(folder)) {
        const auto expected = nlohmann::json::parse(content(folder / "expected.json"));
        tokens = expected.at("tokens").get<std::vector<int>>();
        bf16_error = expected.at("own_errors").at("bfloat16").get<double>();
        const weight_set kept = open_safetensors(folder / "logits.safetensors");
        const weight& all = kept.at("logits");
        REQUIRE(all.shape == std::vector<std::int64_t>{std::ssize(tokens), files.config.vocab_size});
        std::vector<float> values(static_cast<std::size_t>(files.config.vocab_size));
        for (std::int64_t i = 0; i < all.rows(); ++i) {
            to_floats(all, i, 1, values);
            logits.emplace_back(values.begin(), values.end());
        }
    }
};

}  // namespace imbrex::engine::test
