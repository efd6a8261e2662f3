// Reads lines that a person types: with editing and a history if the program was built with libedit, otherwise as they
// come. At a terminal each line begins with a prompt.
#pragma once

#include <optional>
#include <string>

#include "engine/cli/commands.hpp"

namespace imbrex::engine {

class line_editor {
  public:
    // The history is kept between programs in the file that the environment variable IMBREX_HISTORY names, if any.
    explicit line_editor(const command_streams& streams);
    ~line_editor();
    line_editor(const line_editor&) = delete;
    line_editor& operator=(const line_editor&) = delete;

    // The next line without its end; nothing at the end of the input.
    std::optional<std::string> read(const char* prompt);

  private:
    const command_streams& streams_;
    bool asks_;   // at a terminal
    bool edits_;  // by libedit
};

}  // namespace imbrex::engine
