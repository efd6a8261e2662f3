#include "engine/tokenizer/end_of_generation.hpp"

#include <string_view>

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

std::vector<int> end_of_generation_tokens(const tokenizer& tokens) {
    // In the harmony format of GPT-OSS <|end|> ends a message, and another may follow.
    const bool is_harmony = tokens.special("<|return|>") && tokens.special("<|call|>");
    const bool ends_messages = is_harmony || (tokens.special("<|calls|>") && tokens.special("<|flush|>"));
    std::vector<int> found;
    for (const std::string_view name : names) {
        if (name == "<|end|>" && ends_messages) continue;
        if (const auto id = tokens.special(name)) found.push_back(*id);
    }
    return found;
}

}  // namespace imbrex::engine
