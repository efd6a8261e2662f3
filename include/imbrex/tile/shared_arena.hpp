// Shared memory with an explicit layout. Most kernels declare their shared memory as a plain struct of tiles, barriers
// and pipelines, which the compiler lays out. An arena lays out a list of types with the offsets as constants. An
// overlay gives the same bytes to several objects with disjoint lifetimes, such as an output staged over the operands.
#pragma once

#include <imbrex/core/config.hpp>

#include <cstddef>
#include <tuple>

namespace imbrex {

// The shared memory limit of a block on Hopper.
inline constexpr int shared_memory_limit = 227 * 1024;

template <class... Parts>
struct shared_arena {
    template <std::size_t I>
    using part = std::tuple_element_t<I, std::tuple<Parts...>>;

    static constexpr int alignment = [] {
        int most = 1;
        ((most = static_cast<int>(alignof(Parts)) > most ? static_cast<int>(alignof(Parts)) : most), ...);
        return most;
    }();

    // The offset of part number I; `offset_of(sizeof...(Parts))` is the end of the last part.
    static constexpr IMBREX_FN int offset_of(std::size_t which) {
        constexpr int sizes[] = {static_cast<int>(sizeof(Parts))...};
        constexpr int alignments[] = {static_cast<int>(alignof(Parts))...};
        int offset = 0;
        for (std::size_t i = 0; i < sizeof...(Parts); ++i) {
            offset = (offset + alignments[i] - 1) / alignments[i] * alignments[i];
            if (i == which) return offset;
            offset += sizes[i];
        }
        return offset;
    }
    template <std::size_t I>
    static constexpr int offset = offset_of(I);
    static constexpr int bytes = offset_of(sizeof...(Parts));
    static_assert(bytes <= shared_memory_limit, "imbrex: a shared arena must not exceed 227 KB, the limit of a block");

    alignas(alignment) unsigned char storage[bytes];

    template <std::size_t I>
    IMBREX_KERNEL part<I>& get() {
        return *reinterpret_cast<part<I>*>(storage + offset<I>);
    }
};

// One storage for several objects, one at a time.
template <class... Choices>
struct overlay {
    static constexpr int bytes = [] {
        int most = 0;
        ((most = static_cast<int>(sizeof(Choices)) > most ? static_cast<int>(sizeof(Choices)) : most), ...);
        return most;
    }();

    alignas(Choices...) unsigned char storage[bytes];

    template <class Choice>
    IMBREX_KERNEL Choice& as() {
        static_assert((false || ... || std::is_same_v<Choice, Choices>), "imbrex: the overlay does not list this type");
        return *reinterpret_cast<Choice*>(storage);
    }
};

}  // namespace imbrex
