#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "engine/chat/parser.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::jinja {

namespace {

// Left-associative operators, loosest first.
constexpr std::array<std::string_view, 2> sums{"+", "-"};
constexpr std::array<std::string_view, 1> joins{"~"};
constexpr std::array<std::string_view, 4> products{"*", "/", "//", "%"};

}  // namespace

class expression_parser::level {
  public:
    explicit level(expression_parser& parser) : parser_(parser) {
        if (++parser_.depth_ > deepest) parser_.fail(str_cat("expressions are nested more than ", deepest, " deep"));
    }
    ~level() { --parser_.depth_; }
    level(const level&) = delete;
    level& operator=(const level&) = delete;

  private:
    expression_parser& parser_;
};

void expression_parser::fail(const std::string& message) const {
    throw invalid_argument(str_cat(name_, ": line ", here().line, ": ", message));
}

std::string expression_parser::shown() const {
    switch (here().type) {
        case token_type::end:
            return "the end of the template";
        case token_type::print_end:
        case token_type::block_end:
            return "the end of the tag";
        case token_type::text:
        case token_type::print_begin:
        case token_type::block_begin:
            return "a tag";
        default:
            return printable(here().text);
    }
}

void expression_parser::expect(std::string_view sign) {
    if (!take_sign(sign)) fail(shown() + " stands where " + printable(sign) + " is expected");
}

std::string expression_parser::expect_name(const char* what) {
    if (!is(token_type::name)) fail(shown() + " stands where " + what + " is expected");
    return take().text;
}

expression_pointer expression_parser::make(expression_kind kind, std::string text) const {
    auto made = std::make_unique<expression>();
    made->kind = kind;
    made->line = here().line;
    made->text = std::move(text);
    return made;
}

expression_pointer expression_parser::joined(expression_kind kind, std::string text, expression_pointer left,
                                             expression_pointer right) {
    auto made = make(kind, std::move(text));
    made->line = left->line;
    made->parts.push_back(std::move(left));
    made->parts.push_back(std::move(right));
    return made;
}

expression_pointer expression_parser::parse_tuple() {
    expression_pointer first = parse_expression();
    if (!is_sign(",")) return first;
    auto all = make(expression_kind::list, tuple_text);
    all->parts.push_back(std::move(first));
    while (take_sign(",")) {
        const bool ends = is(token_type::print_end) || is(token_type::block_end) || is_sign(")") || is_sign("]");
        if (ends) break;
        all->parts.push_back(parse_expression());
    }
    return all;
}

expression_pointer expression_parser::parse_expression() {
    const level nested(*this);
    expression_pointer result = parse_or();
    while (take_name("if")) {
        expression_pointer condition = parse_or();
        result = joined(expression_kind::conditional, {}, std::move(result), std::move(condition));
        if (take_name("else")) result->parts.push_back(parse_expression());
    }
    return result;
}

expression_pointer expression_parser::parse_or() {
    expression_pointer left = parse_and();
    while (take_name("or")) left = joined(expression_kind::binary, "or", std::move(left), parse_and());
    return left;
}

expression_pointer expression_parser::parse_and() {
    expression_pointer left = parse_not();
    while (take_name("and")) left = joined(expression_kind::binary, "and", std::move(left), parse_not());
    return left;
}

expression_pointer expression_parser::parse_not() {
    const level nested(*this);
    if (!is_name("not")) return parse_comparison();
    auto made = make(expression_kind::unary, "not");
    take();
    made->parts.push_back(parse_not());
    return made;
}

expression_pointer expression_parser::parse_comparison() {
    expression_pointer left = parse_left(0);
    const auto operator_here = [&]() -> std::string {
        constexpr std::array<std::string_view, 6> signs{"==", "!=", "<", "<=", ">", ">="};
        if (is(token_type::sign) && std::ranges::find(signs, here().text) != signs.end()) return take().text;
        if (take_name("in")) return "in";
        if (is_name("not") && after().type == token_type::name && after().text == "in") {
            place_ += 2;
            return "not in";
        }
        return {};
    };
    std::string sign = operator_here();
    if (sign.empty()) return left;
    auto made = make(expression_kind::comparison);
    made->line = left->line;
    made->parts.push_back(std::move(left));
    for (; !sign.empty(); sign = operator_here()) {
        made->operators.push_back(sign);
        made->parts.push_back(parse_left(0));
    }
    return made;
}

// Sums, then ~, then products, then powers.
expression_pointer expression_parser::parse_left(int loosest) {
    if (loosest == 3) return parse_power();
    expression_pointer left = parse_left(loosest + 1);
    const auto is_here = [&](const auto& signs) {
        return is(token_type::sign) && std::ranges::find(signs, here().text) != signs.end();
    };
    while (loosest == 0 ? is_here(sums) : loosest == 1 ? is_here(joins) : is_here(products)) {
        std::string sign = take().text;
        left = joined(expression_kind::binary, std::move(sign), std::move(left), parse_left(loosest + 1));
    }
    return left;
}

expression_pointer expression_parser::parse_power() {
    expression_pointer left = parse_unary(true);
    while (take_sign("**")) left = joined(expression_kind::binary, "**", std::move(left), parse_unary(true));
    return left;
}

expression_pointer expression_parser::parse_unary(bool with_filters) {
    const level nested(*this);
    expression_pointer made;
    if (is_sign("-") || is_sign("+")) {
        made = make(expression_kind::unary, here().text);
        take();
        made->parts.push_back(parse_unary(false));
    } else {
        made = parse_primary();
    }
    made = parse_postfix(std::move(made));
    return with_filters ? parse_filters_and_tests(std::move(made)) : std::move(made);
}

expression_pointer expression_parser::parse_primary() {
    if (is(token_type::integer) || is(token_type::real)) return parse_number();
    if (is(token_type::string)) {
        auto made = make(expression_kind::constant);
        std::string text;
        while (is(token_type::string)) text += take().text;
        made->constant = std::move(text);
        return made;
    }
    if (is(token_type::name)) {
        auto made = make(expression_kind::constant);
        const std::string& word = take().text;
        if (word == "true" || word == "True") {
            made->constant = true;
        } else if (word == "false" || word == "False") {
            made->constant = false;
        } else if (word == "none" || word == "None") {
            made->constant = value::none{};
        } else {
            made->kind = expression_kind::name;
            made->text = word;
        }
        return made;
    }
    if (take_sign("[")) return parse_list("]");
    if (take_sign("{")) return parse_dictionary();
    if (!take_sign("(")) fail(shown() + " stands where an expression is expected");
    if (take_sign(")")) return make(expression_kind::list, tuple_text);
    expression_pointer inside = parse_tuple();
    expect(")");
    return inside;
}

expression_pointer expression_parser::parse_number() {
    auto made = make(expression_kind::constant);
    const bool is_real = is(token_type::real);
    const std::string& digits = take().text;
    const char* end = digits.data() + digits.size();
    if (is_real) {
        double number = 0;
        std::from_chars(digits.data(), end, number);
        made->constant = number;
    } else {
        std::int64_t number = 0;
        if (std::from_chars(digits.data(), end, number).ec != std::errc()) fail(digits + " does not fit into 64 bits");
        made->constant = number;
    }
    return made;
}

expression_pointer expression_parser::parse_list(std::string_view end) {
    auto made = make(expression_kind::list);
    while (!is_sign(end)) {
        made->parts.push_back(parse_expression());
        if (!is_sign(end)) expect(",");
    }
    expect(end);
    return made;
}

expression_pointer expression_parser::parse_dictionary() {
    auto made = make(expression_kind::dictionary);
    while (!is_sign("}")) {
        made->parts.push_back(parse_expression());
        expect(":");
        made->parts.push_back(parse_expression());
        if (!is_sign("}")) expect(",");
    }
    expect("}");
    return made;
}

expression_pointer expression_parser::parse_postfix(expression_pointer of) {
    while (true) {
        if (take_sign(".")) {
            auto made = make(is(token_type::integer) ? expression_kind::subscript : expression_kind::attribute);
            made->parts.push_back(std::move(of));
            if (made->kind == expression_kind::subscript) {
                made->parts.push_back(parse_number());
            } else {
                made->text = expect_name("the name of an attribute");
            }
            of = std::move(made);
        } else if (take_sign("[")) {
            of = parse_subscript(std::move(of));
        } else if (is_sign("(")) {
            auto made = make(expression_kind::call);
            made->parts.push_back(std::move(of));
            parse_arguments(*made);
            of = std::move(made);
        } else {
            return of;
        }
    }
}

expression_pointer expression_parser::parse_subscript(expression_pointer of) {
    auto made = make(expression_kind::subscript);
    made->parts.push_back(std::move(of));
    made->parts.push_back(is_sign(":") ? nullptr : parse_tuple());
    if (is_sign(":")) made->kind = expression_kind::slice;
    while (made->parts.size() < 4 && take_sign(":"))
        made->parts.push_back(is_sign(":") || is_sign("]") ? nullptr : parse_expression());
    if (made->kind == expression_kind::slice) made->parts.resize(4);
    expect("]");
    return made;
}

void expression_parser::parse_arguments(expression& call) {
    expect("(");
    while (!is_sign(")")) {
        if (is_sign("*") || is_sign("**")) fail("* and ** in arguments are not supported");
        if (is(token_type::name) && after().type == token_type::sign && after().text == "=") {
            std::string key = take().text;
            take();
            call.named.emplace_back(std::move(key), parse_expression());
        } else {
            if (!call.named.empty()) fail("an argument without a name follows one with a name");
            call.parts.push_back(parse_expression());
        }
        if (!is_sign(")")) expect(",");
    }
    expect(")");
}

expression_pointer expression_parser::parse_filters_and_tests(expression_pointer of) {
    while (true) {
        if (is_sign("|")) {
            take();
            of = parse_filter(std::move(of));
        } else if (is_name("is")) {
            of = parse_test(std::move(of));
        } else if (is_sign("(")) {
            of = parse_postfix(std::move(of));
        } else {
            return of;
        }
    }
}

expression_pointer expression_parser::parse_filter(expression_pointer of) {
    auto made = make(expression_kind::filter);
    made->text = expect_name("the name of a filter");
    made->parts.push_back(std::move(of));
    if (is_sign("(")) parse_arguments(*made);
    return made;
}

expression_pointer expression_parser::parse_test(expression_pointer of) {
    take();  // is
    auto made = make(expression_kind::test);
    const bool negated = take_name("not");
    made->text = expect_name("the name of a test");
    made->parts.push_back(std::move(of));
    constexpr std::array<std::string_view, 5> words{"else", "or", "and", "is", "if"};
    const bool is_word = is(token_type::name) && std::ranges::find(words, here().text) == words.end() &&
                         !is_name("in") && !is_name("not");
    if (is_sign("(")) {
        parse_arguments(*made);
    } else if (is_word || is(token_type::string) || is(token_type::integer) || is(token_type::real) || is_sign("[") ||
               is_sign("{")) {
        made->parts.push_back(parse_postfix(parse_primary()));
    }
    if (!negated) return made;
    auto opposite = make(expression_kind::unary, "not");
    opposite->parts.push_back(std::move(made));
    return opposite;
}

}  // namespace imbrex::engine::jinja
