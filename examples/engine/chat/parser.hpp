// Parses the expressions of a template; parser.cpp has the statements around them.
#pragma once

#include <imbrex/core/error.hpp>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/lexer.hpp"
#include "engine/chat/syntax.hpp"

namespace imbrex::engine::jinja {

class expression_parser {
  public:
    expression_parser(std::vector<token> tokens, const std::string& name) : tokens_(std::move(tokens)), name_(name) {}

  protected:
    const token& here() const { return tokens_[place_]; }
    const token& after() const { return tokens_[std::min(place_ + 1, tokens_.size() - 1)]; }
    bool is_sign(std::string_view sign) const { return here().type == token_type::sign && here().text == sign; }
    bool is_name(std::string_view word) const { return here().type == token_type::name && here().text == word; }
    bool is(token_type type) const { return here().type == type; }
    const token& take() { return tokens_[place_ + 1 < tokens_.size() ? place_++ : place_]; }
    bool take_sign(std::string_view sign) { return is_sign(sign) && (++place_, true); }
    bool take_name(std::string_view word) { return is_name(word) && (++place_, true); }
    void expect(std::string_view sign);
    std::string expect_name(const char* what);
    [[noreturn]] void fail(const std::string& message) const;
    std::string shown() const;  // the next token, for messages

    expression_pointer parse_expression();
    // As above, but with commas it is a list.
    expression_pointer parse_tuple();
    expression_pointer parse_or();
    // A filter (after |) applied to an expression.
    expression_pointer parse_filter(expression_pointer of);

  private:
    expression_pointer make(expression_kind kind, std::string text = {}) const;
    expression_pointer joined(expression_kind kind, std::string text, expression_pointer left,
                              expression_pointer right);
    expression_pointer parse_and();
    expression_pointer parse_not();
    expression_pointer parse_comparison();
    expression_pointer parse_left(int level);
    expression_pointer parse_power();
    expression_pointer parse_unary(bool with_filters);
    expression_pointer parse_primary();
    expression_pointer parse_number();
    expression_pointer parse_postfix(expression_pointer of);
    expression_pointer parse_subscript(expression_pointer of);
    expression_pointer parse_filters_and_tests(expression_pointer of);
    expression_pointer parse_test(expression_pointer of);
    expression_pointer parse_list(std::string_view end);
    expression_pointer parse_dictionary();
    void parse_arguments(expression& call);

    // Nesting of expressions, against a stack overflow.
    class level;

  protected:
    std::vector<token> tokens_;
    const std::string& name_;
    std::size_t place_ = 0;
    int depth_ = 0;
};

}  // namespace imbrex::engine::jinja
