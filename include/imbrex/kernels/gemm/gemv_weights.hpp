// What a GEMV (gemv.hpp) derives from a format of weights: the size of a subtile, the form of its activations, and what stays
// in registers until its products are done.
#pragma once

#include <imbrex/core/packed_weights.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>

namespace imbrex {

namespace detail {
// Rows of a weight subtile.
template <class Weights>
constexpr int subtile_rows_of() {
    if constexpr (requires { Weights::subtile_rows; }) {
        return Weights::subtile_rows;
    } else {
        return packed_rows;
    }
}
// The activations of a subtile; some weights also need sums of them (block_weights.hpp).
template <class Weights, int Rows>
struct gemv_activations {
    using type = warp_tile<typename Weights::element, 16, packed_columns>;
    static constexpr bool are_summed = false;
};
template <class Weights, int Rows>
requires requires {
    typename Weights::template activations<Rows>;
}
struct gemv_activations<Weights, Rows> {
    using type = typename Weights::template activations<Rows>;
    static constexpr bool are_summed = !std::is_same_v<type, warp_tile<typename Weights::element, 16, packed_columns>>;
};
// Bytes of scales per row of a subtile that stay in registers until its products are done.
template <class Weights>
constexpr int scale_bytes_of() {
    if constexpr (requires { sizeof(typename Weights::super_scale); }) {
        return static_cast<int>(sizeof(typename Weights::scale) + sizeof(typename Weights::super_scale));
    } else if constexpr (Weights::subtile_groups > 0) {
        return Weights::subtile_groups * static_cast<int>(sizeof(typename Weights::scale));
    } else {
        return 0;
    }
}
// Sums of activations that a subtile needs.
template <class Weights>
constexpr int group_sums_of() {
    if constexpr (gemv_activations<Weights, 8>::are_summed) {
        return Weights::subtile_groups;
    } else {
        return 0;
    }
}
template <class Weights>
constexpr int high_words_of() {
    if constexpr (requires { typename Weights::format; }) {
        return packed_unit<typename Weights::format>::high_words_per_thread;
    } else {
        return 0;
    }
}
}  // namespace detail

}  // namespace imbrex
