// Reference pairs of text and ids from other tokenizers. They need the GGUF file of the vocabulary beside them (llama.cpp
// has these in its folder models); they are skipped with a message if it is missing.
#include <algorithm>
#include <sstream>

#include "engine/loading/gguf.hpp"
#include "engine/loading/mapped_file.hpp"
#include "engine/loading/tokenizer_files.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

struct golden_pair {
    std::string text;
    std::vector<int> ids;
};

std::vector<golden_pair> read_pairs(const std::filesystem::path& texts, const std::filesystem::path& ids) {
    const std::string separator = "\n__ggml_vocab_test__\n";
    std::string all = content(texts);
    std::vector<golden_pair> pairs;
    std::istringstream lines(content(ids));
    std::string line;
    for (std::size_t start = 0; start <= all.size();) {
        const std::size_t end = std::min(all.find(separator, start), all.size());
        if (end == all.size() && !std::getline(lines, line)) break;
        if (end != all.size()) std::getline(lines, line);
        std::istringstream numbers(line);
        pairs.push_back({all.substr(start, end - start), {std::istream_iterator<int>(numbers), {}}});
        start = end + separator.size();
    }
    return pairs;
}

}  // namespace

TEST_CASE("Encodes and decodes the golden pairs") {
    for (const std::string name : {"gpt-2", "llama-bpe", "llama-spm", "qwen2", "qwen35", "command-r", "deepseek-coder",
                                   "deepseek-llm", "falcon", "mpt", "phi-3", "refact", "starcoder"}) {
        CAPTURE(name);
        const std::string base = str_cat("tokenizers/golden/ggml-vocab-", name, ".gguf");
        const auto vocabulary = shared_file(base);
        if (!vocabulary) continue;
        const mapped_file file(*vocabulary);
        const tokenizer tokens = gguf_tokenizer(read_gguf(file.bytes(), file.name()).metadata);
        const auto pairs = read_pairs(*shared_file(base + ".inp"), *shared_file(base + ".out"));
        CHECK(pairs.size() >= 46);
        for (const golden_pair& pair : pairs) {
            CAPTURE(pair.text);
            CHECK(tokens.encode(pair.text, {.add_special_tokens = false}) == pair.ids);
            CHECK(tokens.decode(pair.ids) == pair.text);
        }
    }
}

// Checks that need no vocabulary: each word is at least one token, and a word of digits is exactly one, since both
// vocabularies have all that their patterns allow.
TEST_CASE("Pre-tokenizers agree with the golden pairs") {
    for (const std::string name : {"llama-bpe", "qwen2"}) {
        CAPTURE(name);
        const std::string base = str_cat("tokenizers/golden/ggml-vocab-", name, ".gguf");
        const auto texts = shared_file(base + ".inp"), ids = shared_file(base + ".out");
        if (!texts || !ids) continue;
        const auto expressions = compiled(split_rule_named(name)->expressions);
        int of_digits = 0;
        for (const golden_pair& pair : read_pairs(*texts, *ids)) {
            CAPTURE(pair.text);
            const std::size_t words = split_words(pair.text, expressions).size();
            CHECK(words <= pair.ids.size());
            if (pair.text.empty() || pair.text.find_first_not_of("0123456789") != std::string::npos) continue;
            CHECK(words == pair.ids.size());
            ++of_digits;
        }
        CHECK(of_digits == 9);
    }
}

}  // namespace imbrex::engine::test
