// Weights of 4 bits that select one of 16 levels, integers of 8 bits (a code book): IQ4_NL and IQ4_XS of GGUF files.
// Packed as int4 (core/packed_weights.hpp). The device looks four levels up at a time, by byte permutations.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>

#include <cstdint>

namespace imbrex {

// Book::levels: 16 of std::int8_t.
template <class Book>
struct packed_level {
    std::uint8_t bits;  // the number of the level

    static constexpr packed_level from_bits(std::uint8_t bits) { return {static_cast<std::uint8_t>(bits & 0xfU)}; }
    explicit constexpr operator float() const { return Book::levels[bits]; }

    // Four levels, the first in the low byte.
    static constexpr std::uint32_t levels(int first) {
        std::uint32_t word = 0;
        for (int i = 0; i < 4; ++i)
            word |= std::uint32_t{static_cast<std::uint8_t>(Book::levels[first + i])} << (8 * i);
        return word;
    }
};

template <class Book>
struct element_traits<packed_level<Book>> : element_description<packed_level<Book>, 4> {
    IMBREX_FN static constexpr const char* name() { return "level of 4 bits"; }
};

template <class Format>
inline constexpr bool is_packed_level = false;
template <class Book>
inline constexpr bool is_packed_level<packed_level<Book>> = true;

// The levels of IQ4_NL and IQ4_XS.
struct iq4_book {
    static constexpr std::int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
};
using iq4 = packed_level<iq4_book>;

}  // namespace imbrex
