// Chat templates in Jinja, the language in which models say how a conversation becomes a prompt: a small interpreter of what
// such templates use. Results are those of Jinja in Python with the settings of transformers (trim_blocks, lstrip_blocks,
// tojson, raise_exception, strftime_now, {% generation %}, break and continue).
//
// Templates come with model files, so nothing is trusted: work, memory and depth are limited, and there is no access to
// anything but the given variables. Errors name the line of the template.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace imbrex::engine::jinja {

struct statement;

struct render_options {
    std::tm now{};                        // for strftime_now
    std::size_t max_work = 50'000'000;    // evaluated nodes and bytes of values
    std::size_t max_output = 16'000'000;  // bytes
};

class jinja_template {
  public:
    // `name` is for error messages. Throws for a template that cannot be parsed.
    jinja_template(std::string_view source, std::string name);
    jinja_template(jinja_template&&) noexcept;
    jinja_template& operator=(jinja_template&&) noexcept;
    ~jinja_template();

    // `variables` is an object.
    std::string render(const nlohmann::ordered_json& variables, const render_options& options = {}) const;

  private:
    std::string name_;
    std::vector<statement> statements_;
};

// The local time.
std::tm local_time();

}  // namespace imbrex::engine::jinja
