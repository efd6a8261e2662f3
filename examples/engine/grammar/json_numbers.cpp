#include "engine/grammar/json_numbers.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace imbrex::engine {

namespace {

constexpr int max_whole_digits = 18;

expression digit(char first = '0', char last = '9') {
    return first > last ? nothing() : byte_range(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last));
}
expression digits(int least, int most) {
    return most < least ? nothing() : repeated(digit(), least, most);
}

// Digits before the point, as many as these.
expression whole_of_length(int least, int most) {
    most = std::min(most, max_whole_digits);
    std::vector<expression> all;
    if (least <= 1 && most >= 1) all.push_back(literal("0"));
    if (most >= std::max(least, 1))
        all.push_back(concatenation({digit('1'), digits(std::max(least, 1) - 1, most - 1)}));
    return choice(std::move(all));
}

// One of the two sides of a bound on unsigned numbers.
class unsigned_bound {
  public:
    unsigned_bound(const number_bound& bound, int max_fraction)
        : whole_(bound.value.whole),
          fraction_(bound.value.fraction),
          exclusive_(bound.exclusive),
          max_fraction_(max_fraction),
          any_fraction_(max_fraction == 0 ? empty_text()
                                          : optional(concatenation({literal("."), digits(1, max_fraction)}))) {}

    expression at_least() const {
        std::vector<expression> all{concatenation({whole_of_length(length() + 1, max_whole_digits), any_fraction_})};
        for (int i = 0; i < length(); ++i) all.push_back(differing_at(i, static_cast<char>(whole_digit(i) + 1), '9'));
        std::vector<expression> fractions;
        if (!exclusive_ && fraction_.empty()) fractions.push_back(any_fraction_);
        for (int i = 0; i < fraction_length(); ++i)
            fractions.push_back(fraction_at(i, static_cast<char>(fraction_digit(i) + 1), '9'));
        const int rest = max_fraction_ - fraction_length();
        if (rest >= 0 && !fraction_.empty() && !exclusive_)
            fractions.push_back(concatenation({literal("." + fraction_), digits(0, rest)}));
        for (int zeros = 0; exclusive_ && zeros < rest; ++zeros)
            fractions.push_back(
                concatenation({literal("." + fraction_ + std::string(static_cast<std::size_t>(zeros), '0')), digit('1'),
                               digits(0, rest - zeros - 1)}));
        all.push_back(concatenation({literal(whole_), choice(std::move(fractions))}));
        return choice(std::move(all));
    }

    expression at_most() const {
        std::vector<expression> all{concatenation({whole_of_length(1, length() - 1), any_fraction_})};
        for (int i = 0; i < length(); ++i)
            all.push_back(differing_at(i, i == 0 && length() > 1 ? '1' : '0', static_cast<char>(whole_digit(i) - 1)));
        std::vector<expression> fractions;
        if (!exclusive_ || !fraction_.empty()) fractions.push_back(empty_text());
        for (int i = 0; i < fraction_length(); ++i) {
            fractions.push_back(fraction_at(i, '0', static_cast<char>(fraction_digit(i) - 1)));
            if (i > 0 && i <= max_fraction_)
                fractions.push_back(literal("." + fraction_.substr(0, static_cast<std::size_t>(i))));
        }
        const int rest = max_fraction_ - fraction_length();
        if (!exclusive_ && rest >= 0 && max_fraction_ > 0)
            fractions.push_back(fraction_.empty()
                                    ? concatenation({literal("."), repeated(literal("0"), 1, rest)})
                                    : concatenation({literal("." + fraction_), repeated(literal("0"), 0, rest)}));
        all.push_back(concatenation({literal(whole_), choice(std::move(fractions))}));
        return choice(std::move(all));
    }

  private:
    int length() const { return static_cast<int>(whole_.size()); }
    int fraction_length() const { return static_cast<int>(fraction_.size()); }
    char whole_digit(int i) const { return whole_[static_cast<std::size_t>(i)]; }
    char fraction_digit(int i) const { return fraction_[static_cast<std::size_t>(i)]; }

    // Numbers of the same length that differ first at this digit. A number of several digits does not begin with 0.
    expression differing_at(int i, char first, char last) const {
        if (i == 0 && length() > 1) first = std::max(first, '1');
        return concatenation({literal(whole_.substr(0, static_cast<std::size_t>(i))), digit(first, last),
                              digits(length() - i - 1, length() - i - 1), any_fraction_});
    }
    expression fraction_at(int i, char first, char last) const {
        if (i >= max_fraction_) return nothing();
        return concatenation({literal("." + fraction_.substr(0, static_cast<std::size_t>(i))), digit(first, last),
                              digits(0, max_fraction_ - i - 1)});
    }

    std::string whole_, fraction_;
    bool exclusive_;
    int max_fraction_;
    expression any_fraction_;
};

// Digits whose value is a multiple.
dfa multiples(int of) {
    dfa made;
    made.states.resize(static_cast<std::size_t>(of));
    for (int remainder = 0; remainder < of; ++remainder) {
        dfa::state& state = made.states[static_cast<std::size_t>(remainder)];
        state.accepts = remainder == 0;
        for (int i = 0; i < 10; ++i) {
            const auto byte = static_cast<std::uint8_t>('0' + i);
            state.edges.push_back({byte, byte, (remainder * 10 + i) % of});
        }
    }
    return made;
}

bool is_zero(const decimal& value) {
    return value.whole == "0" && value.fraction.empty();
}

}  // namespace

decimal decimal::of(long long value) {
    std::string text = std::to_string(value);
    const bool negative = text.starts_with('-');
    return {negative, negative ? text.substr(1) : text, ""};
}

decimal decimal::of(double value) {
    require(std::isfinite(value), "a bound of numbers is not finite");
    char text[400];
    const auto [end, failure] = std::to_chars(text, text + sizeof text, std::fabs(value), std::chars_format::fixed);
    const std::string_view all(text, static_cast<std::size_t>(end - text));
    const std::size_t point = std::min(all.find('.'), all.size());
    decimal made{std::signbit(value), std::string(all.substr(0, point)), ""};
    if (point < all.size()) made.fraction = all.substr(point + 1);
    while (made.fraction.ends_with('0')) made.fraction.pop_back();
    return made;
}

expression json_number(const number_form& form, compile_budget& budget) {
    const int max_fraction = form.is_integer ? 0 : form.max_fraction_digits;
    const expression fraction =
        max_fraction == 0 ? empty_text() : optional(concatenation({literal("."), digits(1, max_fraction)}));
    const expression any = concatenation({whole_of_length(1, max_whole_digits), fraction});
    const expression minus = literal("-");
    const bool has_bounds = form.least || form.most;
    if (!has_bounds && form.multiple_of == 1) {
        const expression exponent =
            form.is_integer || max_fraction < 16
                ? empty_text()
                : optional(concatenation(
                      {choice({literal("e"), literal("E")}), optional(choice({literal("+"), minus})), digits(1, 2)}));
        return concatenation({optional(minus), any, exponent});
    }
    // Of one sign: the bounds on the magnitude.
    const auto magnitudes = [&](const std::optional<number_bound>& least, const std::optional<number_bound>& most) {
        dfa found = determinised(any, budget);
        if (least) {
            found = intersection(found, determinised(unsigned_bound(*least, max_fraction).at_least(), budget), budget);
        }
        if (most) {
            found = intersection(found, determinised(unsigned_bound(*most, max_fraction).at_most(), budget), budget);
        }
        if (form.multiple_of > 1) found = intersection(found, multiples(form.multiple_of), budget);
        return matching(std::move(found));
    };
    const auto is_below_zero = [](const std::optional<number_bound>& bound) {
        return bound && (bound->value.negative && !is_zero(bound->value));
    };
    std::vector<expression> signs;
    if (!is_below_zero(form.most))
        signs.push_back(magnitudes(is_below_zero(form.least) ? std::nullopt : form.least, form.most));
    const bool most_is_above_zero = form.most && !form.most->value.negative && !is_zero(form.most->value);
    if (!form.least || is_below_zero(form.least))
        signs.push_back(concatenation({minus, magnitudes(most_is_above_zero ? std::nullopt : form.most, form.least)}));
    return choice(std::move(signs));
}

}  // namespace imbrex::engine
