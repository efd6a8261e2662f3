// How far a text has come in a grammar: the configurations of the pushdown automaton after its bytes. A configuration is a
// state with an edge for a next byte, and the states to return to. Calls and returns are followed at once, so that the
// configurations of different texts can be compared.
//
// Sizes are bounded: a stack has at most grammar::max_depth() states (deeper texts are not allowed), and at most
// max_configurations alternatives are followed; an ambiguous grammar with more loses the last ones, and so allows less.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.hpp"

namespace imbrex::engine {

class text_matcher {
  public:
    struct configuration {
        std::vector<std::int32_t> stack;  // outermost first; the last one is the state

        std::int32_t state() const { return stack.back(); }
        auto operator<=>(const configuration&) const = default;
    };
    static constexpr std::size_t max_configurations = 512;

    explicit text_matcher(const grammar& rules);

    // False, and nothing changes, if the text cannot continue so.
    bool push(std::string_view bytes);
    // Whether the text is complete, and whether bytes can follow.
    bool may_end() const { return may_end_; }
    bool must_end() const { return configurations_.empty(); }
    // Ascending, without duplicates.
    const std::vector<configuration>& configurations() const { return configurations_; }

  private:
    bool push(std::uint8_t byte);
    void add(std::vector<std::int32_t> stack);

    const grammar* rules_;
    std::vector<configuration> configurations_, next_;
    bool may_end_ = false;
};

}  // namespace imbrex::engine
