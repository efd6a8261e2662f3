#include "engine/tokenizer/end_of_generation.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace imbrex::engine {

namespace {

constexpr std::string_view names[] = {
    "</s>",
    "<eos>",
    "[EOS]",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<end_of_utterance>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<|END_OF_TURN_TOKEN|>",
    "[e~[",
    "<|tool_response>",
};

}  // namespace

std::vector<int> end_of_generation_tokens(const tokenizer& tokens, std::vector<int> in_file) {
    const bool is_harmony = tokens.special("<|return|>") && tokens.special("<|call|>");
    const bool ends_messages = is_harmony || (tokens.special("<|calls|>") && tokens.special("<|flush|>"));
    std::vector<int> all = std::move(in_file);
    for (const std::string_view name : names) {
        const auto id = tokens.special(name);
        if (!id) continue;
        if (name == "<|end|>" && ends_messages) {
            std::erase(all, *id);
        } else if (std::ranges::find(all, *id) == all.end()) {
            all.push_back(*id);
        }
    }
    return all;
}

}  // namespace imbrex::engine
