// A grammar: rules that call each other, each a deterministic automaton over bytes (grammar/automaton.hpp). Together they are
// a pushdown automaton. A text is matched by a set of configurations, a state and a stack of states to return to.
//
//     grammar_builder all;
//     const std::int32_t list = all.add_rule();
//     all.define(list, concatenation({literal("["), optional(call(list)), literal("]")}));
//     const grammar brackets = std::move(all).finished(list);
//
// A rule must match at least one byte, and must not call itself before one. States from which no text can be completed are
// removed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/grammar/automaton.hpp"

namespace imbrex::engine {

class grammar {
  public:
    struct state {
        std::int32_t first_edge = 0, num_edges = 0, first_call = 0, num_calls = 0;
        std::int32_t height = 0;  // calls that the rest of its rule needs, one within the other
        bool accepts = false;
        bool only_accepts = false;  // nothing else can follow in this rule: returning to it is returning from it
    };
    const state& at(std::int32_t number) const { return states_[static_cast<std::size_t>(number)]; }
    std::span<const byte_edge> edges_of(std::int32_t number) const {
        const state& it = at(number);
        return std::span(edges_).subspan(static_cast<std::size_t>(it.first_edge),
                                         static_cast<std::size_t>(it.num_edges));
    }
    // `rule` is the first state of the rule.
    std::span<const call_edge> calls_of(std::int32_t number) const {
        const state& it = at(number);
        return std::span(calls_).subspan(static_cast<std::size_t>(it.first_call),
                                         static_cast<std::size_t>(it.num_calls));
    }
    std::int32_t next(std::int32_t from, std::uint8_t byte) const;  // -1: none

    std::int32_t start() const { return start_; }
    std::size_t num_states() const { return states_.size(); }
    // The greatest height of a state, and the depth that a stack may have.
    int max_height() const { return max_height_; }
    int max_depth() const { return 128 + 2 * max_height_; }

  private:
    friend class grammar_builder;
    std::vector<state> states_;
    std::vector<byte_edge> edges_;
    std::vector<call_edge> calls_;
    std::int32_t start_ = 0;
    int max_height_ = 0;
};

class grammar_builder {
  public:
    compile_budget& budget() { return budget_; }

    // Calls of a rule may be written before its definition. The name is for error messages.
    std::int32_t add_rule(std::string name = {});
    void define(std::int32_t rule, const expression& what);
    std::size_t num_rules() const { return rules_.size(); }

    grammar finished(std::int32_t start) &&;

  private:
    struct rule {
        dfa automaton;
        std::string name;
    };
    void require_bytes_before_calls() const;
    // For each state of each rule: the height; -1: no text can be completed.
    std::vector<std::vector<std::int32_t>> heights() const;

    compile_budget budget_;
    std::vector<rule> rules_;
};

}  // namespace imbrex::engine
