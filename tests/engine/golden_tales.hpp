// The golden file of the tales model: reference results of golden.py (PyTorch, fp32).
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/support.hpp"

namespace imbrex::engine::test {

struct golden_logits {
    std::vector<std::size_t> ids;
    std::vector<double> values;
};

struct golden_tale {
    std::string prompt, text;
    std::vector<int> prompt_ids, greedy_ids;
    double least_margin;        // smallest difference of best and second-best logit
    golden_logits first, last;  // best logits at the first and last prompt position
};

inline std::filesystem::path tales_folder() {
    return std::filesystem::path(__FILE__).parent_path() / "../../examples/tales/model";
}

// Nothing, with a message, if the model is missing.
inline std::vector<golden_tale> golden_tales() {
    if (!std::filesystem::exists(tales_folder() / "golden.json")) {
        MESSAGE("skipped: examples/tales/model/golden.json is not there");
        return {};
    }
    const auto golden = nlohmann::json::parse(content(tales_folder() / "golden.json"));
    const auto best = [](const nlohmann::json& entry, const std::string& place) {
        return golden_logits{entry.at(place + "_best_ids"), entry.at(place + "_best_logits")};
    };
    std::vector<golden_tale> tales;
    for (const auto& entry : golden.at("entries")) {
        tales.push_back({entry.at("prompt"), entry.at("greedy_text"), entry.at("prompt_ids"), entry.at("greedy_ids"),
                         entry.at("least_margin"), best(entry, "first"), best(entry, "last")});
    }
    REQUIRE(!tales.empty());
    return tales;
}

}  // namespace imbrex::engine::test
