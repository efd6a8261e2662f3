#include "engine/grammar/json_values.hpp"

#include <algorithm>
#include <utility>

#include "engine/grammar/json_numbers.hpp"

namespace imbrex::engine {

json_values::json_values(grammar_builder& rules, json_spacing spacing) : rules_(rules), spacing_(spacing) {
    if (spacing == json_spacing::compact) return;
    space_rule_ = rules_.add_rule();
    rules_.define(space_rule_, choice({literal(" "), concatenation({literal("\n"), repeated(literal(" "), 0, 20)})}));
}

expression json_values::space() const {
    return spacing_ == json_spacing::compact ? empty_text() : optional(call(space_rule_));
}

expression json_values::any_string() {
    if (string_rule_ < 0) {
        string_rule_ = rules_.add_rule();
        rules_.define(string_rule_, concatenation({literal("\""), repeated(any_json_character(), 0), literal("\"")}));
    }
    return call(string_rule_);
}

expression json_values::any_value() {
    return call(value_rule());
}

std::int32_t json_values::value_rule() {
    if (value_rule_ >= 0) return value_rule_;
    value_rule_ = rules_.add_rule();
    const std::int32_t list = rules_.add_rule(), number = rules_.add_rule();
    rules_.define(list, array({.first = {}, .others = call(value_rule_)}));
    rules_.define(number, json_number({}, rules_.budget()));
    rules_.define(value_rule_, choice({any_object(), call(list), any_string(), call(number), literal("true"),
                                       literal("false"), literal("null")}));
    return value_rule_;
}

expression json_values::any_object() {
    if (object_rule_ < 0) {
        object_rule_ = rules_.add_rule();
        const expression value = any_value();
        rules_.define(object_rule_, object({}, member{any_string(), value, false}));
    }
    return call(object_rule_);
}

expression json_values::quoted(const std::string& text) {
    return literal("\"" + encoded(text, text_encoding::json_string) + "\"");
}

expression json_values::other_name(const std::vector<std::string>& names) {
    if (names.empty()) return any_string();
    const expression quote = literal("\"");
    const expression any =
        concatenation({quote, repeated(encoded(code_point_set::all(), text_encoding::json_string), 0), quote});
    std::vector<std::string> texts;
    for (const std::string& name : names) texts.push_back("\"" + encoded(name, text_encoding::json_string) + "\"");
    compile_budget& budget = rules_.budget();
    return matching(difference(determinised(any, budget), determinised(any_of(std::move(texts)), budget), budget));
}

namespace {

// Behind the last element a space may come before the bracket. An empty list has had its one already.
std::int32_t closed(nfa& all, std::int32_t empty, std::int32_t end, const expression& space, const char* bracket) {
    const std::int32_t before = all.add_state();
    all.add_empty_edge(empty, before);
    all.add_empty_edge(space(all, end), before);
    return literal(bracket)(all, before);
}

}  // namespace

// For each member a state before it, in which no member has been written yet, one in which some have, and one behind the
// comma or the bracket.
expression json_values::object(std::vector<member> members, std::optional<member> others) const {
    return [members = std::move(members), others = std::move(others), space = space(), comma = comma()](
               nfa& all, std::int32_t from) {
        const auto write = [&](const member& each, std::int32_t before) {
            return concatenation({each.name, literal(":"), space, each.value})(all, before);
        };
        const std::int32_t opened = concatenation({literal("{"), space})(all, from);
        std::int32_t none = all.add_state(), some = all.add_state();
        all.add_empty_edge(opened, none);
        for (const member& each : members) {
            const std::int32_t before = all.add_state(), none_yet = all.add_state(), some_now = all.add_state();
            all.add_empty_edge(none, before);
            all.add_empty_edge(comma(all, some), before);
            all.add_empty_edge(write(each, before), some_now);
            if (!each.is_required) {
                all.add_empty_edge(none, none_yet);
                all.add_empty_edge(some, some_now);
            }
            none = none_yet;
            some = some_now;
        }
        const std::int32_t last = all.add_state();
        all.add_empty_edge(some, last);
        if (others) {
            const std::int32_t before = all.add_state(), loop = all.add_state();
            all.add_empty_edge(none, before);
            all.add_empty_edge(some, loop);
            all.add_empty_edge(comma(all, loop), before);
            all.add_empty_edge(write(*others, before), loop);
            all.add_empty_edge(loop, last);
        }
        return closed(all, none, last, space, "}");
    };
}

expression json_values::array(element_list elements) const {
    return [elements = std::move(elements), space = space(), comma = comma()](nfa& all, std::int32_t from) {
        const std::int32_t empty = all.add_state(), end = all.add_state();
        std::int32_t at = concatenation({literal("["), space})(all, from);
        const int first = static_cast<int>(elements.first.size());
        const bool is_endless = elements.others && elements.most == unlimited;
        int counted = std::max(first, elements.least);  // the elements that are written out
        if (!is_endless)
            counted =
                elements.others ? elements.most : std::min(first, elements.most == unlimited ? first : elements.most);
        for (int i = 0; i < counted; ++i) {
            if (i >= elements.least) all.add_empty_edge(at, i == 0 ? empty : end);
            if (i > 0) at = comma(all, at);
            at = (i < first ? elements.first[static_cast<std::size_t>(i)] : *elements.others)(all, at);
        }
        if (counted >= elements.least) all.add_empty_edge(at, counted == 0 ? empty : end);
        if (is_endless) {
            const std::int32_t loop = all.add_state();
            all.add_empty_edge((*elements.others)(all, counted > 0 ? comma(all, at) : at), loop);
            all.add_empty_edge((*elements.others)(all, comma(all, loop)), loop);
            all.add_empty_edge(loop, end);
        }
        return closed(all, empty, end, space, "]");
    };
}

}  // namespace imbrex::engine
