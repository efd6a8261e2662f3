// Single values on the device: one element of a shared vector, one global value, counters, and reductions to one value.
#pragma once

#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/copy.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

// One thread of the scope writes one element.
template <class Scope, class Vector, class T>
IMBREX_KERNEL void put(const Scope& scope, Vector& vector, int index, T value, source) {
    __syncwarp();
    if (elected(scope)) *vector.at(index) = value;
    __syncwarp();
}

// Tells the compiler that a value is warp-uniform, so that branches on it need no divergence handling.
template <class element>
IMBREX_KERNEL element same_in_all_lanes(element result) {
    if constexpr (sizeof(element) % 4 == 0 && std::is_trivially_copyable_v<element>) {
        auto* const words = reinterpret_cast<char*>(&result);
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(element)); i += 4) {
            write_as(words + i, __shfl_sync(all_lanes, read_as<std::uint32_t>(words + i), 0));
        }
    }
    return result;
}

// Every thread of the scope reads the element, or one member of it. The result is known to be warp-uniform.
template <class Scope, class Vector>
IMBREX_KERNEL typename Vector::element get(const Scope&, const Vector& vector, int index, source) {
    __syncwarp();
    return same_in_all_lanes(*vector.at(index));
}
template <class Scope, class Vector, class Of, class Member>
IMBREX_KERNEL Member get(const Scope&, const Vector& vector, int index, Member Of::*member, source) {
    __syncwarp();
    return same_in_all_lanes(vector.at(index)->*member);
}

// One thread writes one value of global memory.
template <class Scope, class T>
IMBREX_KERNEL void put_global(const Scope& scope, T* to, T value, source) {
    if (elected(scope)) *to = value;
}

// One thread increments a counter in global memory; all threads of the warp get the old value.
IMBREX_KERNEL int fetch_increment(const warp&, int* counter, source) {
    int number = 0;
    if (lane() == 0) number = atomicAdd(counter, 1);
    return __shfl_sync(all_lanes, number, 0);
}

// The same with acquire-release order: a warp that gets a later value sees all that this warp wrote before.
IMBREX_KERNEL int fetch_increment_acq_rel(const warp& scope, int* counter, source here) {
    scope.sync(here);
    int number = 0;
    if (lane() == 0) {
        asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;" : "=r"(number) : "l"(counter), "r"(1) : "memory");
    }
    number = __shfl_sync(all_lanes, number, 0);
    scope.sync(here);
    return number;
}

// Reduces all elements of a shared tile to one value that every thread of the block gets.
template <class Block, class Tile, class Vector, class Op>
IMBREX_KERNEL typename Tile::element reduce_shared(const Block& block, const Tile& tile, Op op,
                                                   typename Tile::element identity, Vector& scratch, source here) {
    using element = typename Tile::element;
    element value = identity;
    visit_shared(
        block, use::read, here, [&](int, int, const element& one) { value = op(value, one); }, tile);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value = op(value, shuffle_xor(value, distance));
    if (lane() == 0) *scratch.at(block.rank()) = value;
    block.sync();
    value = identity;
    for (int warp_number = 0; warp_number < Block::warps; ++warp_number) value = op(value, *scratch.at(warp_number));
    block.sync();
    return value;
}

// True in the last block of the grid to arrive, which then sees what the others wrote to global memory before. The
// counter must be zero at first and is zero again afterwards.
template <class Block, class Flag>
IMBREX_KERNEL bool is_last_block(const Block& block, int* counter, Flag& flag, source) {
    __threadfence();
    block.sync();
    if (elected(block)) {
        const grid_dim grid = block.count();
        const bool last = atomicAdd(counter, 1) == grid.x * grid.y * grid.z - 1;
        if (last) *counter = 0;
        *flag.at(0) = last ? 1 : 0;
        __threadfence();
    }
    block.sync();
    const bool last = *flag.at(0) != 0;
    block.sync();
    return last;
}

}  // namespace imbrex::hw
