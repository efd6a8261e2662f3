// Where packed weights are in global memory (pack_weights.hpp): parts of 64 rows and a step of K, the steps of 64 rows one after the
// other.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/hw/copy.hpp>

#include <cstdint>

namespace imbrex {

// Those of 64 rows, for who takes many of them.
template <class Part>
struct parts_of_rows {
    const Part* first;

    IMBREX_KERNEL const Part& at(int step) const { return first[step]; }
};
template <class Part>
struct packed_parts {
    const Part* parts = nullptr;
    int blocks = 0;  // of 64 rows
    int steps = 0;

    // Beyond the last block there is none; the last stands in for it, with products that nobody stores.
    IMBREX_KERNEL const Part& at(int block, int step) const {
        const int existing = block < blocks ? block : blocks - 1;
        return parts[static_cast<std::int64_t>(existing) * steps + step];
    }
    IMBREX_KERNEL parts_of_rows<Part> rows(int block) const { return parts_of_rows<Part>{hw::held(&at(block, 0))}; }
};

namespace detail {

template <class Part>
packed_parts<Part> describe_parts(const Part* parts, int rows, int k, int depth) {
    require(rows >= 1, "rows: ", rows, "; there must be a row of weights");
    require(k >= 1, "k: ", k, "; the depth must be positive");
    require(parts != nullptr, "parts: null; packed weights of ", rows, " x ", k, " are needed");
    require(reinterpret_cast<std::uintptr_t>(parts) % 16 == 0, "parts: ", static_cast<const void*>(parts),
            " is not a multiple of 16 bytes, which the copy engine needs");
    return {parts, (rows + packed_rows - 1) / packed_rows, (k + depth - 1) / depth};
}

}  // namespace detail

}  // namespace imbrex
