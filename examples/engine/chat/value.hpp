// Values of chat templates: what Python's values are to Jinja. Lists and mappings do not change once they are made, as in the
// sandbox of transformers; only the members of a namespace do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace imbrex::engine::jinja {

class value;
using list = std::vector<value>;

// A mapping in the order of insertion.
struct dict;

// Arguments of a call: f(1, 2, key=3).
struct arguments;
using function = std::function<value(const arguments&)>;

class value {
  public:
    struct undefined {
        std::string name;  // what was looked up, for error messages
    };
    struct none {};

    value() : content_(undefined{}) {}
    value(undefined nothing) : content_(std::move(nothing)) {}
    value(none nothing) : content_(nothing) {}
    value(bool truth) : content_(truth) {}
    value(std::int64_t number) : content_(number) {}
    value(int number) : content_(std::int64_t{number}) {}
    value(double number) : content_(number) {}
    value(std::string text) : content_(std::make_shared<const text_block>(text_block{std::move(text), false})) {}
    value(std::string_view text) : value(std::string(text)) {}
    value(const char* text) : value(std::string(text)) {}
    value(list items);
    value(dict entries);
    value(function call);

    bool is_undefined() const { return holds<undefined>(); }
    bool is_none() const { return holds<none>(); }
    bool is_bool() const { return holds<bool>(); }
    bool is_int() const { return holds<std::int64_t>(); }
    bool is_float() const { return holds<double>(); }
    bool is_number() const { return is_int() || is_float() || is_bool(); }
    bool is_string() const { return holds<std::shared_ptr<const text_block>>(); }
    // Marked by the filter "safe": what is added to it is escaped for HTML, as Jinja does.
    bool is_safe() const { return is_string() && std::get<std::shared_ptr<const text_block>>(content_)->is_safe; }
    static value safe(std::string text);
    // A list that is printed with ().
    static value tuple(list items);
    bool is_tuple() const { return is_list() && std::get<std::shared_ptr<const list_block>>(content_)->is_tuple; }
    bool is_list() const { return holds<std::shared_ptr<const list_block>>(); }
    bool is_dict() const { return holds<std::shared_ptr<dict>>(); }
    bool is_function() const { return holds<std::shared_ptr<function>>(); }

    const std::string& undefined_name() const { return std::get<undefined>(content_).name; }
    const std::string& text() const { return std::get<std::shared_ptr<const text_block>>(content_)->text; }
    const list& items() const { return std::get<std::shared_ptr<const list_block>>(content_)->items; }
    dict& entries() const { return *std::get<std::shared_ptr<dict>>(content_); }
    const function& call() const { return *std::get<std::shared_ptr<function>>(content_); }
    std::int64_t whole() const;  // of an integer or a boolean
    double real() const;         // of any number

    // Whether both are the same object (Python's "is").
    bool is_same(const value& other) const;

    bool is_mapping() const;
    bool is_namespace() const;
    int nesting() const;  // how deep lists and mappings nest

  private:
    struct text_block {
        std::string text;
        bool is_safe;
    };
    struct list_block {
        list items;
        int nesting;
        bool is_tuple;
    };
    static value from_list(list items, bool is_tuple);
    template <class T>
    bool holds() const {
        return std::holds_alternative<T>(content_);
    }
    std::variant<undefined, none, bool, std::int64_t, double, std::shared_ptr<const text_block>,
                 std::shared_ptr<const list_block>, std::shared_ptr<dict>, std::shared_ptr<function>>
        content_;
};

struct dict {
    // {% set ns.x = ... %} assigns members of a namespace. The variable "loop" is no mapping either.
    enum class role { mapping, name_space, loop };

    std::vector<std::pair<value, value>> entries{};  // keys are strings or numbers
    role is = role::mapping;
    int nesting = 0;  // set by value

    const value* find(std::string_view key) const;
    const value* find(const value& key) const;
    void set(const value& key, value content);
};

struct arguments {
    std::vector<value> positional{};
    std::vector<std::pair<std::string, value>> named{};

    // The argument at a place or of a name, whichever is given.
    const value* find(std::size_t place, std::string_view name) const;
    value get(std::size_t place, std::string_view name, value other) const;
};

// Lists, dictionaries and template nodes nest at most this deep.
inline constexpr int deepest = 200;

// What a value is, for error messages: "a string".
std::string described(const value& of);

bool is_true(const value& of);
bool equal(const value& left, const value& right, int depth = 0);
// Negative, 0 or positive; throws for values without an order.
int compare(const value& left, const value& right, int depth = 0);

// str() and repr() of Python.
std::string text_of(const value& of);
std::string html_escaped(std::string_view text);
std::string repr(const value& of, int depth = 0);

struct json_style {
    std::optional<int> indent{};
    bool sorts_keys = false, escapes_non_ascii = false;
    std::string between = ", ", after_key = ": ";
};
std::string to_json(const value& of, const json_style& style, int depth = 0);
value from_json(const nlohmann::ordered_json& json, int depth = 0);

// The items that a loop over the value visits; a dictionary has its keys, a string its characters.
list items_of(const value& of);
std::int64_t length_of(const value& of);
bool contains(const value& whole, const value& part);

// Text by code points.
std::vector<std::string_view> characters(std::string_view text);
bool is_space_at(std::string_view character);
std::string_view stripped(std::string_view text, bool left, bool right, std::optional<std::string_view> which = {});

}  // namespace imbrex::engine::jinja
