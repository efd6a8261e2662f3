// States of a grammar that allow the same tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/grammar/grammar.hpp"

namespace imbrex::engine {

// A number for each state; states with the same number cannot be told apart by this many bytes. In "maxLength": 8000 all
// states but those near the end have few kinds.
std::vector<std::int32_t> kinds_of_states(const grammar& rules, int bytes);

// What can follow a state within its rule, as a text that is the same in other grammars; empty if the rule calls others or
// has many states behind this one.
std::string description_of_state(const grammar& rules, std::int32_t state);

}  // namespace imbrex::engine
