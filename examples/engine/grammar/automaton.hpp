// Finite automata over bytes. An expression describes a set of texts; it is written into a nondeterministic automaton (NFA)
// and made deterministic (DFA). A call edge stands for the texts of another rule of a grammar (grammar/grammar.hpp).
//
//     const dfa numbers = determinised(concatenation({optional(literal("-")), repeated(byte_range('0', '9'), 1)}), budget);
//
// The subset construction may need exponentially many states, so all work is charged to a budget, which throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace imbrex::engine {

// The work that compiling one grammar may take: about a second, and 100 MB.
class compile_budget {
  public:
    void take_states(std::size_t count);
    void take_work(std::size_t count);

  private:
#if defined(FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)  // many small inputs find more than few that take seconds
    std::size_t states_ = std::size_t{1} << 14, work_ = std::size_t{1} << 19;
#else
    std::size_t states_ = std::size_t{1} << 20, work_ = std::size_t{1} << 25;
#endif
};

struct byte_edge {
    std::uint8_t first, last;  // any of these bytes
    std::int32_t to;
};
struct call_edge {
    std::int32_t rule, to;
};

struct dfa {
    struct state {
        std::vector<byte_edge> edges;  // disjoint, ascending
        std::vector<call_edge> calls;
        bool accepts = false;
    };
    std::vector<state> states;  // the first is the start

    // The state after a byte; -1: none.
    std::int32_t next(std::int32_t from, std::uint8_t byte) const;
    bool matches(std::string_view text) const;  // of an automaton without calls
};

class nfa {
  public:
    explicit nfa(compile_budget& budget) : budget_(budget) { add_state(); }

    std::int32_t add_state();
    void add_edge(std::int32_t from, std::uint8_t first, std::uint8_t last, std::int32_t to) {
        states_[static_cast<std::size_t>(from)].edges.push_back({first, last, to});
    }
    void add_empty_edge(std::int32_t from, std::int32_t to) {
        states_[static_cast<std::size_t>(from)].empty.push_back(to);
    }
    void add_call(std::int32_t from, std::int32_t rule, std::int32_t to) {
        states_[static_cast<std::size_t>(from)].calls.push_back({rule, to});
    }

    // From state 0 to this one.
    dfa determinised(std::int32_t accepting) const;

  private:
    struct state {
        std::vector<byte_edge> edges;
        std::vector<call_edge> calls;
        std::vector<std::int32_t> empty;
    };
    using state_set = std::vector<std::int32_t>;  // ascending
    void close(state_set& set, std::int32_t accepting, std::vector<char>& marks) const;
    friend class subset_construction;

    compile_budget& budget_;
    std::vector<state> states_;
};

// Writes itself behind a state and returns the state at its end. It adds no edge into the state before it.
using expression = std::function<std::int32_t(nfa&, std::int32_t from)>;

inline constexpr int unlimited = -1;

expression nothing();     // no text
expression empty_text();  // the empty text
expression byte_range(std::uint8_t first, std::uint8_t last);
expression literal(std::string text);
expression any_of(std::vector<std::string> texts);  // as a trie: quick for many texts
expression concatenation(std::vector<expression> parts);
expression choice(std::vector<expression> alternatives);
expression optional(expression part);
expression repeated(expression part, int least, int most = unlimited);
expression call(std::int32_t rule);
expression matching(dfa automaton);

dfa determinised(const expression& what, compile_budget& budget);
// The texts of both, and those of the first alone. Neither automaton has calls.
dfa intersection(const dfa& a, const dfa& b, compile_budget& budget);
dfa difference(const dfa& a, const dfa& b, compile_budget& budget);

}  // namespace imbrex::engine
