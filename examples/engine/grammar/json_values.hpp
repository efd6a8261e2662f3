// The parts of JSON texts as expressions: strings, values, lists and members with white space.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/code_points.hpp"
#include "engine/grammar/grammar.hpp"
#include "engine/grammar/structured_output.hpp"

namespace imbrex::engine {

class json_values {
  public:
    json_values(grammar_builder& rules, json_spacing spacing);

    expression any_value();  // within grammar::max_depth()
    expression any_object();
    expression any_string();
    // A name or a string in its one canonical encoding, with quotes.
    static expression quoted(const std::string& text);
    // Any name but these.
    expression other_name(const std::vector<std::string>& names);

    struct member {
        expression name, value;
        bool is_required;
    };
    // In this order; then any number of the others.
    expression object(std::vector<member> members, std::optional<member> others) const;

    struct element_list {
        std::vector<expression> first;     // the first elements
        std::optional<expression> others;  // all after them
        int least = 0, most = unlimited;
    };
    expression array(element_list elements) const;

  private:
    expression space() const;  // white space, or nothing
    expression comma() const { return concatenation({literal(","), space()}); }
    std::int32_t value_rule();

    grammar_builder& rules_;
    json_spacing spacing_;
    std::int32_t space_rule_ = -1, value_rule_ = -1, object_rule_ = -1, string_rule_ = -1;
};

}  // namespace imbrex::engine
