// JSON numbers within bounds, as automata over their digits. Integers have at most 18 digits. Other numbers have at most 18
// digits before the point and 16 behind it, and an exponent of at most two digits if they have no bounds: every JSON parser
// reads them, and a model cannot write digits forever.
#pragma once

#include <optional>
#include <string>

#include "engine/grammar/automaton.hpp"

namespace imbrex::engine {

// A decimal number without an exponent: sign, digits before the point, digits behind it without zeros at the end.
struct decimal {
    bool negative = false;
    std::string whole = "0", fraction{};

    static decimal of(double value);
    static decimal of(long long value);
};

struct number_bound {
    decimal value;
    bool exclusive = false;
};

struct number_form {
    bool is_integer = false;
    std::optional<number_bound> least{}, most{};
    int max_fraction_digits = 16;  // multipleOf 0.01: 2
    int multiple_of = 1;           // of integers
};

inline constexpr int max_multiple = 10'000;

expression json_number(const number_form& form, compile_budget& budget);

}  // namespace imbrex::engine
