#include "engine/cli/line_editor.hpp"

#include <istream>
#include <ostream>

#include "engine/cli/command_model.hpp"

#if defined(IMBREX_HAS_LIBEDIT)
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <editline/readline.h>
#endif

namespace imbrex::engine {

namespace {

#if defined(IMBREX_HAS_LIBEDIT)
constexpr int most_lines = 1000;

const char* history_file() {
    const char* name = std::getenv("IMBREX_HISTORY");
    return name != nullptr && *name != '\0' ? name : nullptr;
}

void begin_editing() {
    std::setlocale(LC_CTYPE, "");  // letters of several bytes are one step of the cursor
    using_history();
    stifle_history(most_lines);
    rl_bind_key('\t', rl_insert);  // no names of files
    if (const char* file = history_file()) read_history(file);
}

void end_editing() {
    if (const char* file = history_file()) write_history(file);
}

std::optional<std::string> edited_line(const char* prompt) {
    const std::unique_ptr<char, decltype(&std::free)> line(readline(prompt), &std::free);
    if (!line) return {};
    if (*line != '\0') add_history(line.get());
    return std::string(line.get());
}
#else
void begin_editing() {}
void end_editing() {}
std::optional<std::string> edited_line(const char*) {
    return {};
}
#endif

constexpr bool has_libedit =
#if defined(IMBREX_HAS_LIBEDIT)
    true;
#else
    false;
#endif

}  // namespace

line_editor::line_editor(const command_streams& streams)
    : streams_(streams), asks_(is_terminal(streams.in)), edits_(has_libedit && asks_ && is_terminal(streams.out)) {
    if (edits_) begin_editing();
}

line_editor::~line_editor() {
    if (edits_) end_editing();
}

std::optional<std::string> line_editor::read(const char* prompt) {
    std::optional<std::string> line;
    if (edits_) {
        streams_.out << std::flush;
        line = edited_line(prompt);
    } else {
        if (asks_) streams_.out << prompt << std::flush;
        std::string text;
        if (std::getline(streams_.in, text)) line = std::move(text);
    }
    if (!line && asks_) streams_.out << "\n";
    if (line && line->ends_with('\r')) line->pop_back();
    return line;
}

}  // namespace imbrex::engine
