// Copies between global and shared memory by the threads of a scope, in 16-byte chunks, the unit of the swizzle. Chunks
// are distributed so that the accesses of a warp are coalesced. If rows do not start at multiples of 16 bytes, or end
// inside a chunk, that part is copied element by element.
//
// The asynchronous copies are cp.async (sm_80 and later). A thread waits for its own groups; the scope must sync before
// others read.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/copy_global.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

// The chunks of a shared tile or subtile.
template <class Shared>
struct chunks_of {
    using element = std::remove_const_t<typename Shared::element>;
    static constexpr int elements = 16 / static_cast<int>(sizeof(element));
    static_assert(Shared::columns % elements == 0, "imbrex: the columns of a subtile must fill whole 16-byte chunks");
    static constexpr int in_row = Shared::columns / elements;
    static constexpr int count = Shared::rows * in_row;

    static constexpr IMBREX_KERNEL int row(int chunk) { return chunk / in_row; }
    static constexpr IMBREX_KERNEL int column(int chunk) { return chunk % in_row * elements; }
};

// Chunks in flight per thread: enough to hide most of the memory latency with few registers.
inline constexpr int chunks_in_flight = 4;

// Calls f(row, first column) for each chunk of this thread.
template <class Shared, class Scope, class F>
IMBREX_KERNEL void each_chunk(const Scope& scope, F&& f) {
    __syncwarp();
    // Not unrolled: callers that handle the common case in another loop should not pay registers for this one.
#pragma unroll 1
    for (int chunk = thread_in(scope); chunk < chunks_of<Shared>::count; chunk += Scope::threads) {
        f(chunks_of<Shared>::row(chunk), chunks_of<Shared>::column(chunk));
    }
}

template <class T>
IMBREX_KERNEL uint4 chunk_filled_with(T value) {
    constexpr int elements = 16 / static_cast<int>(sizeof(T));
    alignas(16) T values[elements];
#pragma unroll
    for (int item = 0; item < elements; ++item) values[item] = value;
    return read_as<uint4>(values);
}

// Neighbouring elements, some of which may be out of bounds.
template <int Count, class T>
IMBREX_KERNEL auto read_ragged(const global_tile<const T>& from, int row, int column, T fill) {
    alignas(16) T values[Count];
#pragma unroll
    for (int item = 0; item < Count; ++item) {
        values[item] = from.has(row, column + item) ? *from.at(row, column + item) : fill;
    }
    return read_as<word<Count* static_cast<int>(sizeof(T))>>(values);
}

template <class Scope, class Shared, class T = typename std::remove_cvref_t<Shared>::element>
IMBREX_KERNEL void copy_in(const Scope& scope, Shared&& to, const std::type_identity_t<global_tile<const T>>& from,
                           std::type_identity_t<T> fill, source = source::current()) {
    using tile = std::remove_cvref_t<Shared>;
    using chunks = chunks_of<tile>;
    if (from.columns >= tile::columns && rows_aligned<16>(from)) {
        const uint4 filled = chunk_filled_with(fill);
        __syncwarp();
        for (int first = thread_in(scope); first < chunks::count; first += chunks_in_flight * Scope::threads) {
            uint4 flying[chunks_in_flight];
#pragma unroll
            for (int i = 0; i < chunks_in_flight; ++i) {
                const int chunk = first + i * Scope::threads, row = chunks::row(chunk);
                const bool exists = chunk < chunks::count && row < from.rows;
                flying[i] = exists ? *reinterpret_cast<const uint4*>(from.at(row, chunks::column(chunk))) : filled;
            }
#pragma unroll
            for (int i = 0; i < chunks_in_flight; ++i) {
                const int chunk = first + i * Scope::threads;
                if (chunk < chunks::count) {
                    *reinterpret_cast<uint4*>(to.at(chunks::row(chunk), chunks::column(chunk))) = flying[i];
                }
            }
        }
    } else {
        each_chunk<tile>(scope, [&](int row, int column) {
            *reinterpret_cast<uint4*>(to.at(row, column)) = read_ragged<chunks::elements, T>(from, row, column, fill);
        });
    }
}

template <class Scope, class T, class Shared>
IMBREX_KERNEL void copy_out(const Scope& scope, const global_tile<T>& to, const Shared& from,
                            source = source::current()) {
    const bool aligned = rows_aligned<16>(to);
    each_chunk<Shared>(scope, [&](int row, int column) {
        constexpr int elements = chunks_of<Shared>::elements;
        const uint4 chunk = *reinterpret_cast<const uint4*>(from.at(row, column));
        if (row >= to.rows) return;
        if (aligned && column + elements <= to.columns) {
            *reinterpret_cast<uint4*>(to.at(row, column)) = chunk;
        } else {
            alignas(16) T values[elements];
            write_as(values, chunk);
#pragma unroll
            for (int item = 0; item < elements; ++item) {
                if (column + item < to.columns) *to.at(row, column + item) = values[item];
            }
        }
    });
}

// Copies `valid` of Bytes bytes and fills the rest with zeros. 16-byte copies bypass L1, because they are read once.
IMBREX_KERNEL void copy_chunk_async(std::uint32_t to, const void* from, int valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(valid)
                 : "memory");
}
template <int Bytes>
IMBREX_KERNEL void copy_bytes_async(void* to, const void* from, int valid) {
    if constexpr (Bytes == 16) {
        copy_chunk_async(shared_address(to), from, valid);
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :
                     : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "n"(Bytes), "r"(valid)
                     : "memory");
    }
}

// A rectangle whose rows begin and end at multiples of 16 bytes: a chunk exists or not, without a branch. The chunks of
// a thread lie below each other, so one address leads to the next with few different swizzles. There is no __syncwarp,
// across which the compiler would move nothing: the overwritten data was read by ldmatrix, which waits for all lanes,
// or released through a barrier.
template <class Scope, class Shared, class T = typename std::remove_cvref_t<Shared>::element>
IMBREX_KERNEL void copy_aligned_async(const Scope& scope, Shared&& to,
                                      const std::type_identity_t<global_tile<const T>>& from,
                                      source = source::current()) {
    using chunks = chunks_of<std::remove_cvref_t<Shared>>;
    static_assert(chunks::count % Scope::threads == 0 && Scope::threads % chunks::in_row == 0,
                  "imbrex: the threads of a scope must copy equal numbers of chunks, whole rows at a time");
    constexpr int rows_apart = Scope::threads / chunks::in_row;
    constexpr int row_distance = layout_of<std::remove_cvref_t<Shared>>::panel_columns;
    const int first = thread_in(scope), first_row = chunks::row(first), first_column = chunks::column(first);
    const int rows_left = first_column < from.columns ? from.rows - first_row : 0;
    const T* start = from.at(first_row, first_column);
    // Opaque to the compiler, which would otherwise compute each address from its row instead of incrementing.
    std::int64_t distance = rows_apart * from.row_stride;
    asm("" : "+l"(distance));
#pragma unroll
    for (int i = 0; i < chunks::count / Scope::threads; ++i) {
        const int row_below = i * rows_apart, within = row_below % 8;
        copy_bytes_async<16>(to.at(first_row + within, first_column) + (row_below - within) * row_distance, start,
                             row_below < rows_left ? 16 : 0);
        start += distance;
    }
}

// A contiguous object, its chunks distributed over the threads.
template <class Scope, class T>
IMBREX_KERNEL void copy_object_async(const Scope& scope, T& to, const T& from, source) {
    constexpr int chunks = sizeof(T) / 16;
#pragma unroll
    for (int first = 0; first < chunks; first += Scope::threads) {
        const int chunk = first + thread_in(scope);
        if (first + Scope::threads <= chunks || chunk < chunks) {
            copy_bytes_async<16>(reinterpret_cast<unsigned char*>(&to) + chunk * 16,
                                 reinterpret_cast<const unsigned char*>(&from) + chunk * 16, 16);
        }
    }
}

// The out-of-bounds part is filled with zeros.
template <class Scope, class Shared, class T = typename std::remove_cvref_t<Shared>::element>
IMBREX_KERNEL void copy_in_async(const Scope& scope, Shared&& to,
                                 const std::type_identity_t<global_tile<const T>>& from, source = source::current()) {
    using tile = std::remove_cvref_t<Shared>;
    constexpr int size = sizeof(T);
    // The in-bounds bytes of a row from a column on, and a valid address even if there are none.
    const auto existing = [&](int row, int column, int bytes) {
        const int left = row < from.rows ? from.columns - column : 0;
        return left <= 0 ? 0 : left >= bytes / size ? bytes : left * size;
    };
    if (rows_aligned<16>(from)) {
        each_chunk<tile>(scope, [&](int row, int column) {
            const int valid = existing(row, column, 16);
            copy_bytes_async<16>(to.at(row, column), valid > 0 ? from.at(row, column) : from.pointer, valid);
        });
    } else if (size <= 4 && rows_aligned<4>(from)) {
        each_chunk<tile>(scope, [&](int row, int column) {
#pragma unroll
            for (int byte = 0; byte < 16; byte += 4) {
                const int valid = existing(row, column + byte / size, 4);
                copy_bytes_async<4>(reinterpret_cast<unsigned char*>(to.at(row, column)) + byte,
                                    valid > 0 ? from.at(row, column + byte / size) : from.pointer, valid);
            }
        });
    } else {
        const T zero{};
        each_chunk<tile>(scope, [&](int row, int column) {
            // Eight elements at a time: enough in flight, and few registers in the middle of a product.
            constexpr int elements = size == 1 ? 8 : 16 / size;
#pragma unroll 1
            for (int item = 0; item < 16 / size; item += elements) {
                using bits = word<elements * size>;
                *reinterpret_cast<bits*>(to.at(row, column) + item) =
                    read_ragged<elements>(from, row, column + item, zero);
            }
        });
    }
}

// Commits a group of copies; waits until at most Pending of this thread's groups are in flight.
template <class Scope>
IMBREX_KERNEL void copy_commit(const Scope&, source = source::current()) {
    asm volatile("cp.async.commit_group;" : : : "memory");
}
template <int Pending, class Scope>
IMBREX_KERNEL void copy_wait(const Scope&, source = source::current()) {
    asm volatile("cp.async.wait_group %0;" : : "n"(Pending) : "memory");
}

// Rows from `first` on.
template <class Scope, class Shared>
IMBREX_KERNEL void fill_rows(const Scope& scope, Shared& to, int first, typename Shared::element value, source) {
    const uint4 filled = chunk_filled_with(value);
    each_chunk<Shared>(scope, [&](int row, int column) {
        if (row >= first) *reinterpret_cast<uint4*>(to.at(row, column)) = filled;
    });
}

// Calls f(row, column, value of first, value of each other) for every element. Threads take four neighbours at a time
// for all element types, so equally shaped tiles are always distributed alike.
template <class Scope, class F, class First, class... Others>
IMBREX_KERNEL void visit_shared(const Scope& scope, use, source, F&& f, First&& first, Others&&... others) {
    using tile = std::remove_cvref_t<First>;
    static_assert(
        ((std::remove_cvref_t<Others>::rows == tile::rows && std::remove_cvref_t<Others>::columns == tile::columns) &&
         ...),
        "imbrex: shared tiles visited together must have the same shape");
    constexpr int neighbours = tile::columns % 4 == 0 ? 4 : 1;
    constexpr int in_row = tile::columns / neighbours;
    __syncwarp();
    for (int group = thread_in(scope); group < tile::rows * in_row; group += Scope::threads) {
        const int row = group / in_row;
#pragma unroll
        for (int item = 0; item < neighbours; ++item) {
            const int column = group % in_row * neighbours + item;
            f(row, column, *first.at(row, column), *others.at(row, column)...);
        }
    }
}

}  // namespace imbrex::hw
