// Runs the syntax tree of a template.
#include <algorithm>
#include <array>
#include <imbrex/core/error.hpp>

#include "engine/chat/builtins.hpp"
#include "engine/chat/globals.hpp"
#include "engine/chat/jinja_template.hpp"
#include "engine/chat/operators.hpp"
#include "engine/chat/syntax.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::jinja {

namespace {

// Variables of a block; blocks inside see those outside.
struct scope {
    std::vector<std::pair<std::string, value>> variables{};
    std::shared_ptr<scope> outer{};

    const value* find(std::string_view name) const {
        for (const scope* here = this; here; here = here->outer.get()) {
            for (const auto& [key, content] : here->variables) {
                if (key == name) return &content;
            }
        }
        return nullptr;
    }
    void set(std::string_view name, value content) {
        for (auto& [key, old] : variables) {
            if (key == name) {
                old = std::move(content);
                return;
            }
        }
        variables.emplace_back(name, std::move(content));
    }
};
using scope_pointer = std::shared_ptr<scope>;

// The function of a recursive loop: {{ loop(children) }}.
constexpr std::string_view recursive_call = "(call)";

enum class flow { on, leave, next };

class interpreter {
  public:
    interpreter(const std::string& name, const render_options& options) : name_(name), options_(options) {
        context_.charge = [this](std::size_t work) { charge(work); };
    }

    std::string run(const std::vector<statement>& all, const nlohmann::ordered_json& variables) {
        const auto globals = std::make_shared<scope>(scope{global_functions(context_, options_.now, namespaces_), {}});
        const auto top = std::make_shared<scope>(scope{{}, globals});
        for (const auto& [key, content] : variables.items()) top->set(key, from_json(content));
        std::string out;
        try {
            run_all(all, top, out);
        } catch (const invalid_argument& failure) {
            throw invalid_argument(str_cat(name_, ": line ", line_, ": ", failure.what()));
        }
        return out;
    }

    // Macros hold the scope that holds them, and namespaces may hold each other.
    ~interpreter() {
        for (const scope_pointer& each : scopes_with_macros_) each->variables.clear();
        for (const value& each : namespaces_) each.entries().entries.clear();
    }
    interpreter(const interpreter&) = delete;
    interpreter& operator=(const interpreter&) = delete;

  private:
    static constexpr int deepest_calls = 100;

    class depth_guard {
      public:
        explicit depth_guard(int& depth) : depth_(depth) {
            require(++depth_ <= deepest_calls, "macros call each other more than ", deepest_calls, " deep");
        }
        ~depth_guard() { --depth_; }
        depth_guard(const depth_guard&) = delete;
        depth_guard& operator=(const depth_guard&) = delete;

      private:
        int& depth_;
    };

    void charge(std::size_t work) {
        require(work <= options_.max_work - work_, "the template works too long or makes too large values");
        work_ += work;
    }

    // ---- statements ----

    void write(std::string& out, std::string_view text) {
        charge(text.size());
        require(text.size() <= options_.max_output - std::min(out.size(), options_.max_output),
                "the result is longer than ", options_.max_output, " bytes");
        out += text;
    }

    flow run_all(const std::vector<statement>& all, const scope_pointer& here, std::string& out) {
        for (const statement& each : all) {
            if (const flow next = run_one(each, here, out); next != flow::on) return next;
        }
        return flow::on;
    }

    flow run_one(const statement& it, const scope_pointer& here, std::string& out) {
        charge(1);
        line_ = it.line;
        switch (it.kind) {
            case statement_kind::text:
                write(out, it.text);
                break;
            case statement_kind::print:
                write(out, text_of(evaluate(*it.of, here)));
                break;
            case statement_kind::conditional:
                return run_all(is_true(evaluate(*it.of, here)) ? it.body : it.other, here, out);
            case statement_kind::loop:
                return run_loop(it, here, out);
            case statement_kind::assign:
                assign(it, evaluate(*it.of, here), here);
                break;
            case statement_kind::capture:
                assign(it, filtered_block(it, here), here);
                break;
            case statement_kind::macro:
                here->set(it.text, make_macro(it, here));
                scopes_with_macros_.push_back(here);
                break;
            case statement_kind::call_block:
                write(out, text_of(run_call_block(it, here)));
                break;
            case statement_kind::filter_block:
                write(out, text_of(filtered_block(it, here)));
                break;
            case statement_kind::scope: {
                const auto inside = std::make_shared<scope>(scope{{}, here});
                for (std::size_t i = 0; i < it.names.size(); ++i)
                    inside->set(it.names[i], evaluate(*it.values[i], here));
                return run_all(it.body, inside, out);
            }
            case statement_kind::group:
                return run_all(it.body, here, out);
            case statement_kind::leave:
                return flow::leave;
            case statement_kind::next:
                return flow::next;
        }
        return flow::on;
    }

    value filtered_block(const statement& it, const scope_pointer& here) {
        const auto inside = std::make_shared<scope>(scope{{}, here});
        std::string text;
        run_all(it.body, inside, text);
        inside->set(block_name, std::move(text));
        return evaluate(*it.of, inside);
    }

    void assign(const statement& it, value content, const scope_pointer& here) {
        if (!it.member.empty()) {
            const value* target = here->find(it.names[0]);
            require(target && target->is_namespace(), "{% set ", it.names[0], ".", it.member,
                    " %}: ", printable(it.names[0]), " is no namespace");
            target->entries().set(it.member, std::move(content));
        } else {
            assign_names(it.names, std::move(content), *here);
        }
    }

    // One variable, or as many as the list has items.
    void assign_names(const std::vector<std::string>& names, value content, scope& here) {
        if (names.size() == 1) return here.set(names[0], std::move(content));
        const list items = items_of(content);
        require(items.size() == names.size(), "there are ", items.size(), " values for ", names.size(), " variables");
        for (std::size_t i = 0; i < names.size(); ++i) here.set(names[i], items[i]);
    }

    flow run_loop(const statement& it, const scope_pointer& here, std::string& out) {
        const value visited = evaluate(*it.of, here);
        return loop_over(it, visited, here, out, 1);
    }

    flow loop_over(const statement& it, const value& visited, const scope_pointer& here, std::string& out, int depth) {
        const depth_guard nested(depth_);
        list items = items_of(visited);
        charge(items.size());
        if (it.condition) {
            std::erase_if(items, [&](const value& item) {
                const auto inside = std::make_shared<scope>(scope{{}, here});
                assign_names(it.names, item, *inside);
                return !is_true(evaluate(*it.condition, inside));
            });
        }
        if (items.empty()) return run_all(it.other, std::make_shared<scope>(scope{{}, here}), out);
        auto last_changed = std::make_shared<value>(value::undefined{"the first call"});
        for (std::size_t i = 0; i < items.size(); ++i) {
            const auto inside = std::make_shared<scope>(scope{{}, here});
            inside->set("loop", loop_variable(it, items, i, depth, here, last_changed));
            assign_names(it.names, items[i], *inside);
            if (run_all(it.body, inside, out) == flow::leave) break;
        }
        return flow::on;
    }

    value loop_variable(const statement& it, const list& items, std::size_t i, int depth, const scope_pointer& here,
                        const std::shared_ptr<value>& last_changed) {
        const auto place = static_cast<std::int64_t>(i), count = static_cast<std::int64_t>(items.size());
        dict loop;
        loop.is = dict::role::loop;
        loop.entries = {{"index", place + 1},
                        {"index0", place},
                        {"revindex", count - place},
                        {"revindex0", count - place - 1},
                        {"first", place == 0},
                        {"last", place + 1 == count},
                        {"length", count},
                        {"depth", depth},
                        {"depth0", depth - 1},
                        {"previtem", i > 0 ? items[i - 1] : value(value::undefined{"previtem"})},
                        {"nextitem", i + 1 < items.size() ? items[i + 1] : value(value::undefined{"nextitem"})}};
        loop.entries.emplace_back(
            "cycle", function([place](const arguments& given) {
                require(!given.positional.empty(), "loop.cycle needs arguments");
                return given.positional[static_cast<std::size_t>(place) % given.positional.size()];
            }));
        loop.entries.emplace_back("changed", function([last_changed](const arguments& given) {
                                      const value now = list(given.positional);
                                      const bool is_new = !equal(*last_changed, now);
                                      *last_changed = now;
                                      return value(is_new);
                                  }));
        if (it.is_recursive) {
            loop.entries.emplace_back(recursive_call, function([this, &it, here, depth](const arguments& given) {
                                          std::string text;
                                          loop_over(it, given.get(0, "", value()), here, text, depth + 1);
                                          return value(std::move(text));
                                      }));
        }
        return loop;
    }

    value make_macro(const statement& it, const scope_pointer& here) {
        return function([this, &it, here](const arguments& given) { return call_macro(it, here, given); });
    }

    value call_macro(const statement& it, const scope_pointer& here, const arguments& given) {
        const depth_guard nested(depth_);
        const int line = line_;
        const auto inside = std::make_shared<scope>(scope{{}, here});
        list more;
        for (std::size_t i = it.names.size(); i < given.positional.size(); ++i) more.push_back(given.positional[i]);
        dict other;
        for (const auto& [key, content] : given.named) {
            if (key == "caller")
                inside->set(key, content);
            else if (std::ranges::find(it.names, key) == it.names.end())
                other.set(key, content);
        }
        for (std::size_t i = 0; i < it.names.size(); ++i) {
            const value* found = given.find(i, it.names[i]);
            value content = found ? *found : value(value::undefined{it.names[i]});
            if (!found && it.values[i]) content = evaluate(*it.values[i], inside);
            inside->set(it.names[i], std::move(content));
        }
        inside->set("varargs", std::move(more));
        inside->set("kwargs", std::move(other));
        std::string text;
        run_all(it.body, inside, text);
        line_ = line;
        return text;
    }

    value run_call_block(const statement& it, const scope_pointer& here) {
        const value target = evaluate(*it.of->parts[0], here);
        arguments given = evaluate_arguments(*it.of, 1, here);
        given.named.emplace_back("caller", make_macro(it, here));
        require(target.is_function(), described(target), " cannot be called");
        return target.call()(given);
    }

    // ---- expressions ----

    arguments evaluate_arguments(const expression& it, std::size_t first, const scope_pointer& here) {
        arguments given;
        for (std::size_t i = first; i < it.parts.size(); ++i) given.positional.push_back(evaluate(*it.parts[i], here));
        for (const auto& [key, content] : it.named) given.named.emplace_back(key, evaluate(*content, here));
        return given;
    }

    value evaluate(const expression& it, const scope_pointer& here) {
        charge(1);
        if (it.line > 0) line_ = it.line;
        switch (it.kind) {
            case expression_kind::constant:
                return it.constant;
            case expression_kind::name: {
                const value* found = here->find(it.text);
                return found ? *found : value(value::undefined{it.text});
            }
            case expression_kind::list: {
                list items;
                for (const auto& part : it.parts) items.push_back(evaluate(*part, here));
                return it.text == tuple_text ? value::tuple(std::move(items)) : value(std::move(items));
            }
            case expression_kind::dictionary:
                return make_dictionary(it, here);
            case expression_kind::attribute:
                return attribute_of(context_, evaluate(*it.parts[0], here), it.text);
            case expression_kind::subscript: {
                const value of = evaluate(*it.parts[0], here);
                return element_of(context_, of, evaluate(*it.parts[1], here));
            }
            case expression_kind::slice:
                return slice(it, here);
            case expression_kind::call:
                return call(it, here);
            case expression_kind::filter: {
                const value of = evaluate(*it.parts[0], here);
                return apply_filter(context_, it.text, of, evaluate_arguments(it, 1, here));
            }
            case expression_kind::test: {
                const value of = evaluate(*it.parts[0], here);
                return apply_test(it.text, of, evaluate_arguments(it, 1, here));
            }
            case expression_kind::unary:
                return apply_unary(it.text, evaluate(*it.parts[0], here));
            case expression_kind::binary:
                return binary(it, here);
            case expression_kind::comparison:
                return compare_chain(it, here);
            case expression_kind::conditional:
                break;
        }
        if (is_true(evaluate(*it.parts[1], here))) return evaluate(*it.parts[0], here);
        return it.parts.size() > 2 ? evaluate(*it.parts[2], here)
                                   : value(value::undefined{"the value of an if without else"});
    }

    value make_dictionary(const expression& it, const scope_pointer& here) {
        dict made;
        for (std::size_t i = 0; i < it.parts.size(); i += 2) {
            const value key = evaluate(*it.parts[i], here);
            require(key.is_string() || key.is_number(), "a key of a mapping is ", described(key),
                    "; strings and numbers are supported");
            made.set(key, evaluate(*it.parts[i + 1], here));
        }
        return made;
    }

    value call(const expression& it, const scope_pointer& here) {
        const value target = evaluate(*it.parts[0], here);
        const arguments given = evaluate_arguments(it, 1, here);
        const value* recursion = target.is_dict() ? target.entries().find(recursive_call) : nullptr;
        if (recursion && recursion->is_function()) return recursion->call()(given);
        if (!target.is_function()) require(false, described(target), " cannot be called");
        line_ = it.line;
        return target.call()(given);
    }

    value slice(const expression& it, const scope_pointer& here) {
        const value of = evaluate(*it.parts[0], here);
        std::array<value, 3> bounds{value::none{}, value::none{}, value::none{}};
        for (std::size_t i = 0; i < 3; ++i) {
            if (it.parts[i + 1]) bounds[i] = evaluate(*it.parts[i + 1], here);
        }
        charge(static_cast<std::size_t>(length_of(of)));
        return slice_of(of, bounds[0], bounds[1], bounds[2]);
    }

    value compare_chain(const expression& it, const scope_pointer& here) {
        value left = evaluate(*it.parts[0], here);
        for (std::size_t i = 0; i < it.operators.size(); ++i) {
            value right = evaluate(*it.parts[i + 1], here);
            if (!compares(left, it.operators[i], right)) return false;
            left = std::move(right);
        }
        return true;
    }

    value binary(const expression& it, const scope_pointer& here) {
        const std::string& sign = it.text;
        const value left = evaluate(*it.parts[0], here);
        if (sign == "and") return is_true(left) ? evaluate(*it.parts[1], here) : left;
        if (sign == "or") return is_true(left) ? left : evaluate(*it.parts[1], here);
        const value right = evaluate(*it.parts[1], here);
        line_ = it.line;
        return apply_operator(context_, sign, left, right);
    }

    const std::string& name_;
    const render_options& options_;
    builtin_context context_;
    std::vector<scope_pointer> scopes_with_macros_;
    std::vector<value> namespaces_;
    std::size_t work_ = 0;
    int line_ = 1, depth_ = 0;
};

}  // namespace

jinja_template::jinja_template(std::string_view source, std::string name) : name_(std::move(name)) {
    require(source.size() <= 4'000'000, name_, ": has ", source.size(), " bytes; at most 4000000 are allowed");
    statements_ = parse(source, name_);
}
jinja_template::jinja_template(jinja_template&&) noexcept = default;
jinja_template& jinja_template::operator=(jinja_template&&) noexcept = default;
jinja_template::~jinja_template() = default;

std::string jinja_template::render(const nlohmann::ordered_json& variables, const render_options& options) const {
    require(variables.is_object(), name_, ": the variables must be an object");
    return interpreter(name_, options).run(statements_, variables);
}

std::tm local_time() {
    const std::time_t now = std::time(nullptr);
    std::tm result{};
    localtime_r(&now, &result);
    return result;
}

}  // namespace imbrex::engine::jinja
