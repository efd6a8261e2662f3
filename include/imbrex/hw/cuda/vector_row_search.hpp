// Searches in vectorised rows on the device: each lane searches its own columns, then the lanes combine their results.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>
#include <imbrex/hw/cuda/vector_row.hpp>

#include <cstdint>

namespace imbrex::hw {

// f(column, element) for all elements of the lane.
template <class F, class T, int Columns>
IMBREX_KERNEL void visit_vector_row_columns(const vector_row_fragment<T, 1, Columns>& tile, F&& f) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, 1, Columns>::steps; ++step) {
#pragma unroll
        for (int item = 0; item < 8; item += 2) {
            const float_pair two = tile.chunks[step].pair(item);
            f(partition::column(step) + item, two.low);
            f(partition::column(step) + item + 1, two.high);
        }
    }
}

// to = f(column, element of from)
template <class Warp, class F, class T, class From, int Columns>
IMBREX_KERNEL void map_vector_row_columns(const Warp&, vector_row_fragment<T, 1, Columns>& to, F f,
                                          const vector_row_fragment<From, 1, Columns>& from, source) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, 1, Columns>::steps; ++step) {
#pragma unroll
        for (int item = 0; item < 8; item += 2) {
            const float_pair two = from.chunks[step].pair(item);
            const int column = partition::column(step) + item;
            to.chunks[step].set_pair(item, f(column, two.low), f(column + 1, two.high));
        }
    }
}

// element of this column = f(element); no effect if the tile does not have the column.
template <class Warp, class F, int Columns>
IMBREX_KERNEL void update_vector_row_element(const Warp&, vector_row_fragment<float, 1, Columns>& tile, int column, F f,
                                             source) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<float, 1, Columns>::steps; ++step) {
        const int item = column - partition::column(step);
        if (item < 0 || item >= 8) continue;
        // One lane selects one of eight registers by comparisons, since registers cannot be indexed.
        std::uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) bits = i == item ? tile.chunks[step].words[i] : bits;
        bits = __float_as_uint(f(__uint_as_float(bits)));
#pragma unroll
        for (int i = 0; i < 8; ++i) tile.chunks[step].words[i] = i == item ? bits : tile.chunks[step].words[i];
    }
}

template <class Warp, int Columns>
IMBREX_KERNEL float vector_row_max(const Warp&, const vector_row_fragment<float, 1, Columns>& tile, source) {
    float most = __uint_as_float(0xff800000U);
    visit_vector_row_columns(tile, [&](int, float value) { most = fmaxf(most, value); });
    // Floats order as integers once the bits of negative ones are inverted.
    const int bits = __float_as_int(most);
    const int key = __reduce_max_sync(all_lanes, bits ^ ((bits >> 31) & 0x7fffffff));
    return __int_as_float(key ^ ((key >> 31) & 0x7fffffff));
}

template <class Warp, int Columns>
IMBREX_KERNEL int first_vector_row_column_of(const Warp&, const vector_row_fragment<float, 1, Columns>& tile,
                                             float value, source) {
    int first = Columns;
    visit_vector_row_columns(tile, [&](int column, float one) { first = one == value ? min(first, column) : first; });
    return __reduce_min_sync(all_lanes, first);
}

IMBREX_KERNEL std::uint64_t sum_over_lanes(std::uint64_t mine) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        mine += __shfl_xor_sync(all_lanes, static_cast<unsigned long long>(mine), distance);
    }
    return mine;
}

template <class Warp, class F, int Columns>
IMBREX_KERNEL std::uint64_t vector_row_sum(const Warp&, const vector_row_fragment<float, 1, Columns>& tile, F f,
                                           source) {
    std::uint64_t sum = 0;
    visit_vector_row_columns(tile, [&](int column, float value) { sum += f(column, value); });
    return sum_over_lanes(sum);
}

// Shared memory has native 32-bit atomic adds; 64-bit ones are compare-and-swap loops. This carries between two 32-bit
// adds. The sum is correct once all lanes have added.
IMBREX_KERNEL void add_to_shared(std::uint64_t* to, std::uint64_t amount) {
    auto* const halves = reinterpret_cast<unsigned*>(to);
    const auto low = static_cast<unsigned>(amount);
    const unsigned before = atomicAdd(halves, low);
    const unsigned high = static_cast<unsigned>(amount >> 32) + (before + low < low ? 1U : 0U);
    if (high != 0) atomicAdd(halves + 1, high);
}

// Adds amount(column, element) to bin bin_of(column, element), or to none if that is negative. The bins are this
// warp's.
template <class Warp, class BinOf, class Amount, int Columns, class Vector>
IMBREX_KERNEL void add_vector_row_to_bins(const Warp&, Vector& bins, const vector_row_fragment<float, 1, Columns>& tile,
                                          BinOf bin_of, Amount amount, source) {
    __syncwarp();
    visit_vector_row_columns(tile, [&](int column, float value) {
        const int bin = bin_of(column, value);
        if (bin >= 0) add_to_shared(bins.at(bin), amount(column, value));
    });
    __syncwarp();
}

// The bin at which the running sum over the bins of all warps, starting from `before`, reaches the target.
struct bin_found {
    int bin;                // the number of bins if the target is not reached
    std::uint64_t before;   // the sum before this bin
    std::uint64_t content;  // of this bin
};

template <class Warp, int Warps, class Vector>
IMBREX_KERNEL bin_found find_bin(const Warp&, const Vector (&bins)[Warps], std::uint64_t before, std::uint64_t target,
                                 source) {
    static_assert(Vector::length % 32 == 0, "imbrex: the number of bins must be a multiple of 32");
    using word64 = unsigned long long;
    for (int first = 0; first < Vector::length; first += 32) {
        word64 content = 0;
#pragma unroll
        for (int i = 0; i < Warps; ++i) content += *bins[i].at(first + lane());
        word64 sum = content;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const word64 left = __shfl_up_sync(all_lanes, sum, distance);
            if (lane() >= distance) sum += left;
        }
        const unsigned reached = __ballot_sync(all_lanes, before + sum >= target);
        if (reached != 0) {
            const int winner = __ffs(static_cast<int>(reached)) - 1;
            const word64 until = __shfl_sync(all_lanes, sum - content, winner);
            return bin_found{first + winner, before + until, __shfl_sync(all_lanes, content, winner)};
        }
        before += __shfl_sync(all_lanes, sum, 31);
    }
    return bin_found{Vector::length, before, 0};
}

}  // namespace imbrex::hw
