#include "engine/grammar/grammar.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace imbrex::engine {

namespace {

constexpr int max_required_height = 256;

std::size_t place(std::int32_t number) {
    return static_cast<std::size_t>(number);
}

}  // namespace

std::int32_t grammar::next(std::int32_t from, std::uint8_t byte) const {
    for (const byte_edge& edge : edges_of(from))
        if (byte <= edge.last) return byte >= edge.first ? edge.to : -1;
    return -1;
}

std::int32_t grammar_builder::add_rule(std::string name) {
    rules_.push_back({{}, std::move(name)});
    return static_cast<std::int32_t>(rules_.size()) - 1;
}

void grammar_builder::define(std::int32_t rule, const expression& what) {
    rules_[place(rule)].automaton = determinised(what, budget_);
}

// A depth-first search over the calls in the first states of rules.
void grammar_builder::require_bytes_before_calls() const {
    for (const rule& each : rules_)
        for (const dfa::state& state : each.automaton.states)
            for (const call_edge& edge : state.calls)
                require(!rules_[place(edge.rule)].automaton.states.front().accepts, rules_[place(edge.rule)].name,
                        ": it must not match the empty text");
    enum class mark : char { unseen, open, done };
    std::vector<mark> marks(rules_.size(), mark::unseen);
    struct step {
        std::int32_t rule;
        std::size_t next_call;
    };
    for (std::size_t first = 0; first < rules_.size(); ++first) {
        if (marks[first] != mark::unseen) continue;
        std::vector<step> path{{static_cast<std::int32_t>(first), 0}};
        marks[first] = mark::open;
        while (!path.empty()) {
            auto& [number, next_call] = path.back();
            const rule& it = rules_[place(number)];
            const dfa::state& start = it.automaton.states.front();
            if (next_call == start.calls.size()) {
                marks[place(number)] = mark::done;
                path.pop_back();
                continue;
            }
            const std::int32_t called = start.calls[next_call++].rule;
            require(marks[place(called)] != mark::open, rules_[place(called)].name,
                    ": it refers to itself without an object or an array between");
            if (marks[place(called)] == mark::done) continue;
            marks[place(called)] = mark::open;
            path.push_back({called, 0});
        }
    }
}

// Rounds of relaxation: a round for each level of calls within calls, and some for cycles within a rule.
std::vector<std::vector<std::int32_t>> grammar_builder::heights() const {
    std::vector<std::vector<std::int32_t>> all;
    for (const rule& each : rules_) all.emplace_back(each.automaton.states.size(), -1);
    bool changed = true;
    const auto improve = [&](std::int32_t& height, std::int32_t candidate) {
        if (candidate < 0 || (height >= 0 && height <= candidate)) return;
        height = candidate;
        changed = true;
    };
    while (std::exchange(changed, false)) {
        for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
            const std::vector<dfa::state>& states = rules_[rule].automaton.states;
            for (std::size_t i = states.size(); i-- > 0;) {
                std::int32_t& height = all[rule][i];
                if (states[i].accepts) improve(height, 0);
                for (const byte_edge& edge : states[i].edges) improve(height, all[rule][place(edge.to)]);
                for (const call_edge& edge : states[i].calls) {
                    const std::int32_t called = all[place(edge.rule)].front(), after = all[rule][place(edge.to)];
                    if (called >= 0 && after >= 0) improve(height, std::max(called + 1, after));
                }
            }
        }
    }
    return all;
}

grammar grammar_builder::finished(std::int32_t start) && {
    require_bytes_before_calls();
    const std::vector<std::vector<std::int32_t>> height_of = heights();
    require(height_of[place(start)].front() >= 0, "the constraint allows no text");
    std::vector<std::vector<std::int32_t>> numbers;  // of the states that stay
    std::int32_t count = 0;
    for (const std::vector<std::int32_t>& heights : height_of) {
        numbers.emplace_back();
        for (const std::int32_t height : heights) numbers.back().push_back(height >= 0 ? count++ : -1);
    }
    grammar made;
    for (std::size_t rule = 0; rule < rules_.size(); ++rule) {
        const std::vector<dfa::state>& states = rules_[rule].automaton.states;
        for (std::size_t i = 0; i < states.size(); ++i) {
            if (height_of[rule][i] < 0) continue;
            grammar::state next{.first_edge = static_cast<std::int32_t>(made.edges_.size()),
                                .first_call = static_cast<std::int32_t>(made.calls_.size()),
                                .height = height_of[rule][i],
                                .accepts = states[i].accepts};
            for (const byte_edge& edge : states[i].edges) {
                const std::int32_t to = numbers[rule][place(edge.to)];
                if (to >= 0) made.edges_.push_back({edge.first, edge.last, to});
            }
            for (const call_edge& edge : states[i].calls) {
                const std::int32_t called = numbers[place(edge.rule)].front(), to = numbers[rule][place(edge.to)];
                if (called >= 0 && to >= 0) made.calls_.push_back({called, to});
            }
            next.num_edges = static_cast<std::int32_t>(made.edges_.size()) - next.first_edge;
            next.num_calls = static_cast<std::int32_t>(made.calls_.size()) - next.first_call;
            next.only_accepts = next.accepts && next.num_edges == 0 && next.num_calls == 0;
            made.states_.push_back(next);
            made.max_height_ = std::max(made.max_height_, next.height);
        }
    }
    require(made.max_height_ <= max_required_height, "the constraint is too deep: its shortest text has more than ",
            max_required_height, " parts within each other");
    made.start_ = numbers[place(start)].front();
    return made;
}

}  // namespace imbrex::engine
