// tokenize: the tokens of a text, or of a conversation by the chat template.
#include <imbrex/core/error.hpp>
#include <istream>
#include <iterator>
#include <ostream>

#include "engine/cli/command_model.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

// {"messages": [...], "tools": [...]}, or the array of messages alone.
chat_request read_conversation(const std::string& path) {
    auto parsed = nlohmann::ordered_json::parse(read_text_file(path, "--messages"), nullptr, false);
    require(!parsed.is_discarded(), "--messages: ", path, " is not JSON");
    chat_request request;
    if (parsed.is_array()) {
        request.messages = std::move(parsed);
        return request;
    }
    require(parsed.is_object() && parsed.contains("messages"), "--messages: ", path,
            " must be an array of messages, or an object with \"messages\"");
    request.messages = parsed["messages"];
    if (parsed.contains("tools")) request.tools = parsed["tools"];
    return request;
}

std::vector<int> conversation_tokens(const tokenize_command& command, const tokenizer_files& files) {
    const auto format = format_of(command.format, files.tokens, files.chat);
    require(format.has_value(), "--messages: this model has no chat template; --template names one");
    chat_request request = read_conversation(command.messages);
    request.variables = variables_of(command.format);
    return format->encode(request);
}

std::vector<int> text_tokens(const tokenize_command& command, const tokenizer_files& files,
                             const command_streams& streams) {
    std::string text;
    if (command.text)
        text = *command.text;
    else if (!command.file.empty())
        text = read_text_file(command.file, "--file");
    else
        text.assign(std::istreambuf_iterator<char>(streams.in), {});
    return files.tokens.encode(text,
                               {.add_special_tokens = command.adds_special, .parse_special = command.parses_special});
}

}  // namespace

int run_tokenize(const tokenize_command& command, const command_streams& streams) {
    const tokenizer_files files = open_tokenizer(command.path);
    const std::vector<int> ids =
        command.messages.empty() ? text_tokens(command, files, streams) : conversation_tokens(command, files);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (command.prints_ids)
            streams.out << (i == 0 ? "" : " ") << ids[i];
        else
            streams.out << ids[i] << "\t"
                        << nlohmann::json(files.tokens.at(ids[i]).bytes)
                               .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                        << "\n";
    }
    if (command.prints_ids) streams.out << "\n";
    return exit_success;
}

}  // namespace imbrex::engine
