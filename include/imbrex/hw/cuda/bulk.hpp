// cp.async.bulk: TMA copies a contiguous object from global to shared memory without a descriptor. One lane issues the
// copy, which completes on an mbarrier. cp.reduce.async.bulk adds an object of floats to global memory, and completes as
// a TMA store does.
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/memory_order.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/thread.hpp>
#include <imbrex/hw/cuda/tma.hpp>

#include <cuda/ptx>

#include <cstdint>

namespace imbrex::hw {

template <class Warp, class T>
IMBREX_KERNEL void bulk_load(const Warp& scope, T& to, const T& from, barrier_word& barrier,
                             source = source::current()) {
    static_assert(has_tma && Warp::warps == 1, "imbrex: a bulk load is issued by one warp, on sm_90 or later");
    if (elected(scope)) {
        cuda::ptx::cp_async_bulk(load_space{}, cuda::ptx::space_global, &to, &from,
                                 static_cast<std::uint32_t>(sizeof(T)), &barrier.word);
    }
}

template <summation_order, class Scope, class T>
IMBREX_KERNEL void bulk_reduce_add(const Scope& scope, T& to, const T& from, source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: a bulk reduction needs sm_90 or later");
    if (issues(scope)) {
        cuda::ptx::cp_reduce_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, cuda::ptx::op_add,
                                        reinterpret_cast<float*>(&to), reinterpret_cast<const float*>(&from),
                                        static_cast<std::uint32_t>(sizeof(T)));
    }
}

}  // namespace imbrex::hw
