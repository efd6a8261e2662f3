#include "engine/tokenizer/pre_tokenizer.hpp"

#include <array>
#include <cstddef>
#include <utility>

namespace imbrex::engine {

namespace {

using namespace split_expressions;

// Expressions of a family or two, as the files of the models have them.
constexpr std::string_view falcon_punctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view default_punctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view digits = R"(\p{N}+)";
constexpr std::string_view three_digits = "[0-9][0-9][0-9]";
constexpr std::string_view up_to_three_digits = R"(\p{N}{1,3})";
constexpr std::string_view digits_from_the_right = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view thousands = R"((?=(\d{3})+(?!\d)))";
constexpr std::string_view newline = R"([\r\n])";
constexpr std::string_view lines = R"([^\n]+|[\n]+)";
constexpr std::string_view cjk_and_hangul = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
constexpr std::string_view cjk_and_kana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr std::string_view not_separators = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+";

// Letters with case: \p{L} without those that have none.
constexpr std::string_view deepseek_letters =
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-"
    "\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+";
constexpr std::string_view deepseek_punctuation = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
constexpr std::string_view deepseek3_words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen35_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view tekken_words =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view jais2_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|)"
    R"(\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view bailing_words =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view seed_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view minicpm_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

struct named_rule {
    std::string_view names;  // with spaces between
    std::array<std::string_view, 6> expressions;
    bool ignore_merges = false, adds_bos = false;
};

constexpr named_rule rules[] = {
    {"gpt-2 gpt-neox mpt olmo olmo2 phi-2 jais trillion granite-docling gigachat mellum modern-bert exaone4 jina-es "
     "jina-de jina-v2-es jina-v2-de a.x-4.0",
     {gpt2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", {llama3}, true, true},
    {"smaug-bpe dbrx chatglm-bpe", {llama3}},
    {"glm4 glm5", {llama3}, true},
    {"qwen2 stablelm2 deepseek-r1-qwen megrez hunyuan solar-open grok-2 kormo f2llmv2", {qwen2}},
    {"qwen35", {qwen35_words}},
    {"gpt-4o llama4 kanana2 minimax-m2", {o200k}},
    {"tekken", {tekken_words}, true, true},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", {single_digits, gpt2}},
    {"falcon", {falcon_punctuation, gpt2, three_digits}},
    {"default", {default_punctuation, gpt2, digits, three_digits}},
    {"deepseek-llm", {newline, deepseek_letters, deepseek_punctuation, R"(\s+$)", cjk_and_hangul, digits}},
    {"deepseek-coder", {newline, R"(\s?\p{L}+)", R"(\s?\p{P}+)", cjk_and_hangul, single_digits}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", {up_to_three_digits, cjk_and_kana, deepseek3_words}},
    {"poro-chat bloom gpt3-finnish", {not_separators}},
    {"viking", {not_separators, single_digits}},
    {"jais-2", {jais2_words}},
    {"bailingmoe bailingmoe2 llada-moe", {bailing_words}},
    {"seed-coder", {seed_words}},
    {"minicpm5", {up_to_three_digits, minicpm_words}, true},
    {"tiny_aya cohere2moe", {digits_from_the_right, o200k}},
    {"superbpe", {digits, thousands}},
    {"laguna", {lines, qwen2}},
};

template <class Use>
void for_each_name(std::string_view names, const Use& use) {
    while (!names.empty()) {
        const std::size_t end = std::min(names.find(' '), names.size());
        use(names.substr(0, end));
        names.remove_prefix(std::min(end + 1, names.size()));
    }
}

// A range of code points.
using word = std::pair<std::size_t, std::size_t>;

// Cuts a word at both ends of each match.
void cut(const std::vector<text_point>& points, word whole, const regular_expression& expression,
         std::vector<word>& words) {
    std::size_t begin = whole.first;
    const auto cut_at = [&](std::size_t place) {
        if (place > begin) words.emplace_back(begin, place);
        begin = place;
    };
    for (std::size_t place = whole.first; place < whole.second;) {
        const auto end = expression.match(points, whole.first, whole.second, place);
        if (!end) {
            ++place;
            continue;
        }
        cut_at(place);
        cut_at(*end);
        place = std::max(*end, place + 1);
    }
    cut_at(whole.second);
}

}  // namespace

std::optional<split_rule> split_rule_named(std::string_view name) {
    for (const named_rule& rule : rules) {
        bool is_named = false;
        for_each_name(rule.names, [&](std::string_view one) { is_named = is_named || one == name; });
        if (!is_named) continue;
        split_rule found{.expressions = {}, .ignore_merges = rule.ignore_merges, .adds_bos = rule.adds_bos};
        for (const std::string_view expression : rule.expressions) {
            if (!expression.empty()) found.expressions.push_back(expression);
        }
        return found;
    }
    return {};
}

std::vector<std::string_view> split_rule_names() {
    std::vector<std::string_view> all;
    for (const named_rule& rule : rules) {
        for_each_name(rule.names, [&](std::string_view one) { all.push_back(one); });
    }
    return all;
}

std::vector<regular_expression> compiled(std::span<const std::string_view> expressions) {
    std::vector<regular_expression> all;
    for (const std::string_view expression : expressions) all.emplace_back(expression);
    return all;
}

std::vector<std::string_view> split_words(std::string_view text, std::span<const regular_expression> expressions) {
    const std::vector<text_point> points = text_points(text);
    std::vector<word> words{{0, points.size() - 1}}, pieces;
    for (const regular_expression& expression : expressions) {
        pieces.clear();
        for (const word& one : words) cut(points, one, expression, pieces);
        words.swap(pieces);
    }
    std::vector<std::string_view> result;
    result.reserve(words.size());
    for (const auto& [begin, end] : words) {
        if (begin < end) result.push_back(text.substr(points[begin].place, points[end].place - points[begin].place));
    }
    return result;
}

}  // namespace imbrex::engine
