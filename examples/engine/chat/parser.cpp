#include "engine/chat/parser.hpp"

#include <algorithm>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::jinja {

namespace {

class template_parser : private expression_parser {
  public:
    using expression_parser::expression_parser;

    std::vector<statement> parse_all() { return parse_body({}); }

  private:
    // Statements up to a tag that begins with one of these words, which is left.
    std::vector<statement> parse_body(std::initializer_list<std::string_view> ends) {
        if (++blocks_ > deepest) fail(str_cat("blocks are nested more than ", deepest, " deep"));
        std::vector<statement> body;
        while (!is(token_type::end)) {
            if (is(token_type::block_begin) && after().type == token_type::name &&
                std::ranges::find(ends, after().text) != ends.end())
                break;
            body.push_back(parse_statement());
        }
        --blocks_;
        return body;
    }

    statement parse_statement() {
        statement made;
        made.line = here().line;
        if (is(token_type::text)) {
            made.text = take().text;
            return made;
        }
        if (is(token_type::print_begin)) {
            take();
            made.kind = statement_kind::print;
            made.of = parse_tuple();
            if (!is(token_type::print_end)) fail(shown() + " stands where the end of the tag is expected");
            take();
            return made;
        }
        take();
        const std::string word = expect_name("a statement");
        if (word == "if") {
            parse_if(made);
        } else if (word == "for") {
            parse_for(made);
        } else if (word == "set") {
            parse_set(made);
        } else if (word == "macro") {
            parse_macro(made);
        } else if (word == "call") {
            parse_call(made);
        } else if (word == "filter") {
            parse_filter_block(made);
        } else if (word == "with") {
            parse_with(made);
        } else if (word == "generation") {
            made.kind = statement_kind::group;
            end_tag();
            made.body = parse_to("endgeneration", made.line);
        } else if (word == "break" || word == "continue") {
            if (loops_ == 0) fail(word + " stands outside of a loop");
            made.kind = word == "break" ? statement_kind::leave : statement_kind::next;
            end_tag();
        } else if (word.starts_with("end") || word == "else" || word == "elif") {
            fail("{% " + word + " %} stands where no block is open that it could belong to");
        } else {
            fail("{% " + word.substr(0, 40) +
                 " %} is not supported; if, for, set, macro, call, filter, with, generation, raw, break and continue "
                 "are");
        }
        return made;
    }

    void end_tag() {
        if (!is(token_type::block_end)) fail(shown() + " stands where the end of the tag is expected");
        take();
    }

    // The body up to {% end... %}.
    std::vector<statement> parse_to(std::string_view end, int line) {
        std::vector<statement> body = parse_body({end});
        close(end, line);
        return body;
    }
    void close(std::string_view end, int line) {
        if (is(token_type::end)) fail(str_cat("the block of line ", line, " has no {% ", std::string(end), " %}"));
        take();
        take();
        end_tag();
    }

    void parse_if(statement& made) {
        made.kind = statement_kind::conditional;
        made.of = parse_tuple();
        end_tag();
        made.body = parse_body({"elif", "else", "endif"});
        if (is(token_type::end)) close("endif", made.line);
        if (after().text == "elif") {
            take();
            statement other;
            other.line = here().line;
            take();
            if (++blocks_ > deepest) fail(str_cat("a block has more than ", deepest, " branches"));
            parse_if(other);  // takes {% endif %} for both
            --blocks_;
            made.other.push_back(std::move(other));
            return;
        }
        if (after().text == "else") {
            take();
            take();
            end_tag();
            made.other = parse_body({"endif"});
        }
        close("endif", made.line);
    }

    std::vector<std::string> parse_names() {
        const bool has_bracket = take_sign("(");
        std::vector<std::string> names{expect_name("a variable")};
        while (take_sign(",")) {
            if (is_name("in") || is_sign("=")) break;
            names.push_back(expect_name("a variable"));
        }
        if (has_bracket) expect(")");
        return names;
    }

    void parse_for(statement& made) {
        made.kind = statement_kind::loop;
        made.names = parse_names();
        if (!take_name("in")) fail(shown() + " stands where \"in\" is expected");
        // "if" begins the condition of the loop, not a conditional expression.
        made.of = parse_or();
        if (is_sign(",")) fail("a loop over several expressions needs brackets around them");
        if (take_name("if")) made.condition = parse_expression();
        made.is_recursive = take_name("recursive");
        end_tag();
        ++loops_;
        made.body = parse_body({"else", "endfor"});
        --loops_;
        if (is(token_type::block_begin) && after().text == "else") {
            take();
            take();
            end_tag();
            made.other = parse_body({"endfor"});
        }
        close("endfor", made.line);
    }

    void parse_set(statement& made) {
        made.kind = statement_kind::assign;
        made.names = parse_names();
        if (made.names.size() == 1 && take_sign(".")) made.member = expect_name("the name of a member");
        if (take_sign("=")) {
            made.of = parse_tuple();
            return end_tag();
        }
        made.kind = statement_kind::capture;
        if (made.names.size() != 1) fail("a block sets one variable");
        made.of = parse_block_filters();
        end_tag();
        made.body = parse_to("endset", made.line);
    }

    // Filters of a block: | upper | trim, applied to the name of the block's text.
    expression_pointer parse_block_filters() {
        auto text = std::make_unique<expression>();
        text->kind = expression_kind::name;
        text->line = here().line;
        text->text = block_name;
        while (take_sign("|")) text = parse_filter(std::move(text));
        return text;
    }

    void parse_filter_block(statement& made) {
        made.kind = statement_kind::filter_block;
        auto text = std::make_unique<expression>();
        text->kind = expression_kind::name;
        text->line = here().line;
        text->text = block_name;
        made.of = parse_filter(std::move(text));
        while (take_sign("|")) made.of = parse_filter(std::move(made.of));
        end_tag();
        made.body = parse_to("endfilter", made.line);
    }

    // (a, b=1): missing defaults are null.
    void parse_parameters(statement& made) {
        expect("(");
        while (!is_sign(")")) {
            made.names.push_back(expect_name("a parameter"));
            made.values.push_back(take_sign("=") ? parse_expression() : nullptr);
            if (!is_sign(")")) expect(",");
        }
        expect(")");
    }

    // A body in which break and continue of a loop outside do not count.
    void parse_function_body(statement& made, std::string_view end) {
        const int outside = std::exchange(loops_, 0);
        made.body = parse_to(end, made.line);
        loops_ = outside;
    }

    void parse_macro(statement& made) {
        made.kind = statement_kind::macro;
        made.text = expect_name("the name of a macro");
        parse_parameters(made);
        end_tag();
        parse_function_body(made, "endmacro");
    }

    void parse_call(statement& made) {
        made.kind = statement_kind::call_block;
        if (is_sign("(")) parse_parameters(made);
        made.of = parse_expression();
        if (made.of->kind != expression_kind::call) fail("{% call %} needs the call of a macro");
        end_tag();
        parse_function_body(made, "endcall");
    }

    void parse_with(statement& made) {
        made.kind = statement_kind::scope;
        while (!is(token_type::block_end)) {
            made.names.push_back(expect_name("a variable"));
            expect("=");
            made.values.push_back(parse_expression());
            if (!is(token_type::block_end)) expect(",");
        }
        end_tag();
        made.body = parse_to("endwith", made.line);
    }

    int blocks_ = 0, loops_ = 0;
};

}  // namespace

std::vector<statement> parse(std::string_view source, const std::string& name) {
    return template_parser(tokens_of(source, name), name).parse_all();
}

}  // namespace imbrex::engine::jinja
