#include "engine/grammar/structured_output.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/grammar/grammar.hpp"
#include "engine/grammar/json_schema.hpp"
#include "engine/grammar/json_values.hpp"
#include "engine/grammar/regex.hpp"
#include "engine/grammar/text_matcher.hpp"
#include "engine/grammar/token_masks.hpp"
#include "engine/grammar/token_trie.hpp"

namespace imbrex::engine {

namespace {

// A grammar and the masks of its states; what all states of a constraint share.
struct shared_grammar {
    shared_grammar(grammar made, shared_trie trie)
        : rules(std::move(made)), tokens(std::move(trie)), masks(rules, *tokens) {}

    grammar rules;
    shared_trie tokens;
    token_masks masks;
};

class grammar_state final : public constraint_state {
  public:
    grammar_state(std::shared_ptr<const shared_grammar> shared, bool drops_space)
        : shared_(std::move(shared)), text_(shared_->rules), drops_space_(drops_space) {}

    std::unique_ptr<constraint_state> clone() const override { return std::make_unique<grammar_state>(*this); }
    void push(int token) override {
        std::string_view bytes = shared_->tokens->bytes_of(token);
        const bool is_text = !bytes.empty();
        if (drops_space_ && bytes.starts_with(' ')) bytes.remove_prefix(1);
        drops_space_ = false;
        is_broken_ = is_broken_ || !is_text || !text_.push(bytes);
    }
    void push_text(std::string_view bytes) override { text_.push(bytes); }
    bool is_free() const override { return false; }
    void allowed_tokens(std::span<std::uint32_t> mask) const override {
        shared_->masks.write(text_, mask, drops_space_);
    }
    bool may_end() const override { return !is_broken_ && text_.may_end(); }
    bool must_end() const override { return is_broken_ || text_.must_end(); }

  private:
    std::shared_ptr<const shared_grammar> shared_;
    text_matcher text_;
    bool drops_space_;
    bool is_broken_ = false;  // a token was pushed that was not allowed
};

class grammar_constraint final : public token_constraint {
  public:
    grammar_constraint(grammar made, shared_trie tokens)
        : shared_(std::make_shared<const shared_grammar>(std::move(made), std::move(tokens))) {}
    std::unique_ptr<constraint_state> start(bool drops_space) const override {
        return std::make_unique<grammar_state>(shared_, drops_space);
    }

  private:
    std::shared_ptr<const shared_grammar> shared_;
};

grammar grammar_of(const expression& text) {
    grammar_builder rules;
    const std::int32_t start = rules.add_rule();
    rules.define(start, text);
    return std::move(rules).finished(start);
}

// The text before and after the triggers. With an opener both are open at the first token.
class triggered_state final : public constraint_state {
  public:
    struct parts {
        std::vector<std::string> triggers;
        shared_constraint what;
        shared_trie tokens;
        std::optional<int> opener;
    };
    triggered_state(std::shared_ptr<const parts> shared, bool drops_space)
        : shared_(std::move(shared)), is_first_(shared_->opener.has_value()) {
        if (is_first_) inner_ = constraint_progress(shared_->what->start(drops_space));
    }

    std::unique_ptr<constraint_state> clone() const override { return std::make_unique<triggered_state>(*this); }
    void push(int token) override {
        if (std::exchange(is_first_, false) && token == shared_->opener) inner_ = {};
        if (inner_) {
            inner_->push(token);
            return;
        }
        const std::string_view name = shared_->tokens->name_of(token);
        push_text(name.empty() ? shared_->tokens->bytes_of(token) : name);
    }
    void push_text(std::string_view bytes) override {
        if (inner_) {
            inner_->push_text(bytes);
            return;
        }
        tail_ += bytes;
        while (seen_ < shared_->triggers.size()) {
            const std::string& next = shared_->triggers[seen_];
            const std::size_t found = tail_.find(next);
            if (found == std::string::npos) {
                if (tail_.size() > next.size()) tail_.erase(0, tail_.size() - next.size());
                return;
            }
            tail_.erase(0, found + next.size());
            ++seen_;
        }
        inner_ = constraint_progress(shared_->what->start(false));
        inner_->push_text(tail_);
    }
    bool is_free() const override { return !inner_ || inner_->is_free(); }
    void allowed_tokens(std::span<std::uint32_t> mask) const override {
        inner_->allowed_tokens(mask);
        if (is_first_) set_token(mask, *shared_->opener);
    }
    bool may_end() const override { return !inner_ || inner_->may_end(); }
    bool must_end() const override { return inner_ && inner_->must_end(); }

  private:
    std::shared_ptr<const parts> shared_;
    bool is_first_;         // the opener may come next
    std::size_t seen_ = 0;  // triggers
    std::string tail_;      // of the text, as long as a trigger
    constraint_progress inner_;
};

class triggered_constraint final : public token_constraint {
  public:
    explicit triggered_constraint(triggered_state::parts all)
        : shared_(std::make_shared<const triggered_state::parts>(std::move(all))) {}
    std::unique_ptr<constraint_state> start(bool drops_space) const override {
        return std::make_unique<triggered_state>(shared_, drops_space);
    }

  private:
    std::shared_ptr<const triggered_state::parts> shared_;
};

}  // namespace

shared_constraint constrain_to_grammar(grammar rules, shared_trie tokens) {
    require(tokens != nullptr, "tokens: null; the vocabulary of the model is needed (text_engine::token_trie)");
    return std::make_shared<const grammar_constraint>(std::move(rules), std::move(tokens));
}

shared_constraint constrain_to_json_schema(std::string_view schema, shared_trie tokens, json_spacing spacing) {
    return constrain_to_grammar(grammar_of_json_schema(schema, spacing), std::move(tokens));
}

shared_constraint constrain_to_json_object(shared_trie tokens, json_spacing spacing) {
    return constrain_to_json_schema(R"({"type": "object"})", std::move(tokens), spacing);
}

shared_constraint constrain_to_regex(std::string_view expression, shared_trie tokens) {
    return constrain_to_grammar(
        grammar_of(expression_of_regex(expression, text_encoding::utf8, regex_extent::whole, "regular expression")),
        std::move(tokens));
}

shared_constraint constrain_to_choices(const std::vector<std::string>& choices, shared_trie tokens) {
    require(!choices.empty(), "choices: there are none; at least one is needed");
    return constrain_to_grammar(grammar_of(any_of(choices)), std::move(tokens));
}

shared_constraint constraint_of_response_format(const nlohmann::ordered_json& format, shared_trie tokens,
                                                json_spacing spacing) {
    require(format.is_object() && format.contains("type") && format["type"].is_string(),
            "response_format: it must be an object with a \"type\": text, json_object or json_schema");
    const std::string type = format["type"];
    if (type == "text") return nullptr;
    if (type == "json_object") return constrain_to_json_object(std::move(tokens), spacing);
    require(type == "json_schema", "response_format: type: \"", type,
            "\"; it must be text, json_object or json_schema");
    // {"json_schema": {"schema": {...}}} in chat completions, {"schema": {...}} in responses.
    const auto& holder = format.contains("json_schema") ? format["json_schema"] : format;
    require(holder.is_object() && holder.contains("schema"), "response_format: json_schema: it must have a \"schema\"");
    return constrain_to_json_schema(holder["schema"].dump(), std::move(tokens), spacing);
}

shared_constraint constrain_after(std::vector<std::string> triggers, shared_constraint what, shared_trie tokens,
                                  std::optional<int> opener) {
    for (const std::string& each : triggers) require(!each.empty(), "triggers: one is empty; it must have a character");
    if (triggers.empty() || !what) return what;
    return std::make_shared<const triggered_constraint>(
        triggered_state::parts{std::move(triggers), std::move(what), std::move(tokens), opener});
}

}  // namespace imbrex::engine
