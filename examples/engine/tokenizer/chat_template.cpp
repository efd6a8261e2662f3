#include "engine/tokenizer/chat_template.hpp"

#include <imbrex/core/error.hpp>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view spaces = " \t\r\n\v\f";
    const std::size_t first = text.find_first_not_of(spaces);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

// Alternating special tokens and text. Adjacent text is encoded at once, so that the border between template and
// message does not affect BPE merges.
class chat_writer {
  public:
    explicit chat_writer(const tokenizer& tokens) : tokens_(tokens) {}

    chat_writer& special(std::string_view name) {
        flush();
        const auto id = tokens_.special(name);
        require(id.has_value(), tokens_.name(), ": has no token ", printable(name), ", which the template needs");
        ids_.push_back(*id);
        return *this;
    }
    chat_writer& text(std::string_view more) {
        text_ += more;
        return *this;
    }
    std::vector<int> finish() {
        flush();
        return std::move(ids_);
    }

  private:
    void flush() {
        const auto more = tokens_.encode(text_, {.add_special_tokens = false});
        ids_.insert(ids_.end(), more.begin(), more.end());
        text_.clear();
    }

    const tokenizer& tokens_;
    std::vector<int> ids_;
    std::string text_;
};

void write_llama2(chat_writer& writer, std::span<const chat_message> messages) {
    std::string system;
    if (!messages.empty() && messages[0].role == "system") {
        system = "<<SYS>>\n" + messages[0].text + "\n<</SYS>>\n\n";
        messages = messages.subspan(1);
    }
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const bool is_user = messages[i].role == "user";
        require(is_user == (i % 2 == 0), "message ", i, " is of the ", messages[i].role,
                "; in this template user and assistant take turns, and the user begins");
        if (is_user) {
            writer.special("<s>").text("[INST] ").text(trimmed(system + messages[i].text)).text(" [/INST]");
            system.clear();
        } else {
            writer.text(" ").text(trimmed(messages[i].text)).text(" ").special("</s>");
        }
    }
}

void write_llama3(chat_writer& writer, std::span<const chat_message> messages) {
    const auto begin_turn = [&](std::string_view role) {
        writer.special("<|start_header_id|>").text(role).special("<|end_header_id|>").text("\n\n");
    };
    writer.special("<|begin_of_text|>");
    for (const chat_message& message : messages) {
        begin_turn(message.role);
        writer.text(trimmed(message.text)).special("<|eot_id|>");
    }
    begin_turn("assistant");
}

void write_chatml(chat_writer& writer, std::span<const chat_message> messages) {
    for (const chat_message& message : messages) {
        writer.special("<|im_start|>")
            .text(message.role)
            .text("\n")
            .text(message.text)
            .special("<|im_end|>")
            .text("\n");
    }
    writer.special("<|im_start|>").text("assistant\n");
}

}  // namespace

std::optional<chat_template> chat_template_of(const tokenizer& tokens) {
    if (tokens.special("<|start_header_id|>") && tokens.special("<|eot_id|>")) return chat_template::llama3;
    if (tokens.special("<|im_start|>") && tokens.special("<|im_end|>")) return chat_template::chatml;
    if (tokens.special("<s>") && tokens.special("</s>")) return chat_template::llama2;
    return {};
}

std::vector<int> encode_chat(const tokenizer& tokens, chat_template style, std::span<const chat_message> messages) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const std::string& role = messages[i].role;
        require(role == "user" || role == "assistant" || (role == "system" && i == 0), "message ", i,
                " is of the role ", printable(role), "; user and assistant are allowed, and system for the first");
    }
    require(!messages.empty() && messages.back().role == "user", "the last message is ",
            messages.empty() ? "missing" : "not the user's", "; the assistant answers the user");
    chat_writer writer(tokens);
    switch (style) {
        case chat_template::llama2:
            write_llama2(writer, messages);
            break;
        case chat_template::llama3:
            write_llama3(writer, messages);
            break;
        case chat_template::chatml:
            write_chatml(writer, messages);
            break;
    }
    return writer.finish();
}

int end_of_turn(const tokenizer& tokens, chat_template style) {
    const char* name = style == chat_template::llama2   ? "</s>"
                       : style == chat_template::llama3 ? "<|eot_id|>"
                                                        : "<|im_end|>";
    const auto id = tokens.special(name);
    require(id.has_value(), tokens.name(), ": has no token ", printable(name), ", which the template needs");
    return *id;
}

}  // namespace imbrex::engine
