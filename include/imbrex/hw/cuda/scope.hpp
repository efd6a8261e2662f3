// The scopes of a kernel on the device: warp, warpgroup and block. A scope is a few integers; its operations are the
// hardware's.
//
// Named barrier 0 is the block's, 1 to 8 belong to its warpgroups, so that all of them may sync at once. 9 to 15 are
// free for named_sync (hw/cuda/barrier.hpp).
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/thread.hpp>
#include <imbrex/hw/roles.hpp>

#include <cuda/ptx>

namespace imbrex {

struct warp {
    static constexpr int warps = 1;
    static constexpr int threads = 32;
    static constexpr const char* name = "warp";

    int number = 0;

    // The index within its role, or within its block.
    IMBREX_KERNEL int index() const { return number; }
    // The index of this warp within the scope.
    IMBREX_KERNEL int rank() const { return 0; }
    IMBREX_KERNEL void sync(source = source::current()) const { __syncwarp(); }
};

struct warpgroup {
    static constexpr int warps = 4;
    static constexpr int threads = 128;
    static constexpr const char* name = "warpgroup";

    int number = 0;

    IMBREX_KERNEL int index() const { return number; }
    IMBREX_KERNEL int rank() const { return hw::warp_number() % 4; }
    IMBREX_KERNEL void sync(source = source::current()) const {
        asm volatile("bar.sync %0, 128;" : : "r"(1 + hw::warp_number() / 4) : "memory");
    }
};

namespace hw {

// setmaxnreg: releases registers, or waits for those that other warpgroups release. Without hardware support the role
// keeps its registers.
template <int Registers, int Threads>
IMBREX_KERNEL void reallocate_registers() {
    if constexpr (Registers != 0 && has_register_reallocation) {
        if constexpr (Registers > registers_at_launch<Threads>) {
            asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(Registers));
        } else if constexpr (Registers < registers_at_launch<Threads>) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(Registers));
        }
    }
}

template <int FirstWarp, int Threads, class Role>
IMBREX_KERNEL void play(int hardware_warp, const Role& role) {
    reallocate_registers<Role::registers, Threads>();
    typename Role::scope scope{(hardware_warp - FirstWarp) / Role::scope::warps};
    if constexpr (Role::count * Role::scope::warps == Role::warps) {
        role.body(scope);
    } else {
        if (scope.index() < Role::count) role.body(scope);
    }
}

// One if/else chain with a branch per role: in any other form the compiler ignores setmaxnreg (C7508).
template <int FirstWarp, int Threads, class Role, class... Rest>
IMBREX_KERNEL void play_one_of(int hardware_warp, const Role& role, const Rest&... rest) {
    if constexpr (sizeof...(Rest) == 0) {
        play<FirstWarp, Threads>(hardware_warp, role);
    } else {
        constexpr int next_warp = FirstWarp + Role::warps;
        if (hardware_warp < next_warp) {
            play<FirstWarp, Threads>(hardware_warp, role);
        } else {
            play_one_of<next_warp, Threads>(hardware_warp, rest...);
        }
    }
}

}  // namespace hw

template <int Warps, int Cluster = 1>
struct block_scope {
    static_assert(Warps > 0 && Warps <= 32, "imbrex: a block has 1 to 32 warps");
    static_assert(Cluster == 1 || hw::has_tma, "imbrex: clusters of blocks need sm_90 or later");

    static constexpr int warps = Warps;
    static constexpr int threads = Warps * 32;
    static constexpr int cluster_size = Cluster;
    static constexpr const char* name = "block";

    IMBREX_KERNEL grid_dim index() const {
        return {static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z)};
    }
    // The size of the grid in blocks.
    IMBREX_KERNEL grid_dim count() const {
        return {static_cast<int>(gridDim.x), static_cast<int>(gridDim.y), static_cast<int>(gridDim.z)};
    }
    IMBREX_KERNEL int rank() const { return hw::warp_number(); }
    IMBREX_KERNEL void sync(source = source::current()) const { __syncthreads(); }

    // Warp specialization: the warps of each role run its body.
    template <class... Roles>
    IMBREX_KERNEL void roles(const Roles&... roles) const {
        static_assert(warps_of_roles<Roles...> == Warps,
                      "imbrex: the roles' warps, each role rounded up to whole warpgroups, must be the block's warps");
        static_assert(registers_suffice<32 * Warps, Roles...>,
                      "imbrex: the roles' registers together must not be more than the block has at launch");
        hw::play_one_of<0, threads>(hw::uniform_warp_number(), roles...);
    }

    // Every warp, or every warpgroup, runs body(scope).
    template <class Body>
    IMBREX_KERNEL void each_warp(const Body& body, source = source::current()) const {
        warp scope{hw::uniform_warp_number()};
        body(scope);
    }
    template <class Body>
    IMBREX_KERNEL void each_warpgroup(const Body& body, source = source::current()) const {
        static_assert(Warps % 4 == 0, "imbrex: a block whose warps are not a multiple of 4 has no warpgroups");
        warpgroup scope{hw::uniform_warp_number() / 4};
        body(scope);
    }

    IMBREX_KERNEL int cluster_rank() const {
        if constexpr (Cluster == 1) {
            return 0;
        } else {
            return static_cast<int>(cuda::ptx::get_sreg_cluster_ctarank());
        }
    }
    // Syncs all threads of the thread block cluster; earlier writes to shared memory are visible to all of them after
    // it.
    IMBREX_KERNEL void cluster_sync(source = source::current()) const {
        if constexpr (Cluster == 1) {
            __syncthreads();
        } else {
            cuda::ptx::barrier_cluster_arrive(cuda::ptx::sem_release);
            cuda::ptx::barrier_cluster_wait(cuda::ptx::sem_acquire);
        }
    }
};

}  // namespace imbrex
