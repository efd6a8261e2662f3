// The traits of a kernel type that the launchers read.
#pragma once

#include <imbrex/core/architecture.hpp>

#include <string>
#include <string_view>

namespace imbrex::hw {

struct no_shared_memory {};

template <class Kernel>
struct shared_memory_choice {
    using type = no_shared_memory;
};
template <class Kernel>
requires requires {
    typename Kernel::shared_memory;
}
struct shared_memory_choice<Kernel> {
    using type = typename Kernel::shared_memory;
};

// The kernel's shared memory, or an empty type.
template <class Kernel>
using shared_memory_of = typename shared_memory_choice<Kernel>::type;

// Blocks per thread block cluster.
template <class Kernel>
constexpr int cluster_size() {
    if constexpr (requires { Kernel::cluster; }) {
        return Kernel::cluster;
    } else {
        return 1;
    }
}
template <class Kernel>
inline constexpr int cluster_of = cluster_size<Kernel>();

// The minimum number of blocks per SM (__launch_bounds__): it limits the registers of each.
template <class Kernel>
constexpr int kernel_min_blocks_per_sm() {
    if constexpr (requires { Kernel::min_blocks_per_sm; }) {
        return Kernel::min_blocks_per_sm;
    } else {
        return 1;
    }
}
template <class Kernel>
inline constexpr int min_blocks_per_sm_of = kernel_min_blocks_per_sm<Kernel>();

// The architecture that the kernel requires. In a program compiled for several architectures, a kernel is empty for those that do not meet
// it, and the caller must launch another one there.
template <class Kernel>
constexpr gpu_architecture kernel_architecture() {
    if constexpr (requires { Kernel::architecture; }) {
        return Kernel::architecture;
    } else {
        return gpu_architecture::sm_80;
    }
}
template <class Kernel>
inline constexpr gpu_architecture architecture_of = kernel_architecture<Kernel>();

// Whether the kernel is launched with PDL (programmatic dependent launch): it may start while its predecessor in the
// stream still runs, because it calls pdl_wait (ops/grid/pdl.hpp) before it accesses the predecessor's data.
template <class Kernel>
constexpr bool kernel_uses_pdl() {
    if constexpr (requires { Kernel::uses_pdl; }) {
        return Kernel::uses_pdl;
    } else {
        return false;
    }
}
template <class Kernel>
inline constexpr bool uses_pdl = kernel_uses_pdl<Kernel>();

// Whether the kernel is launched cooperatively: all blocks of the grid are resident at once, so a block may wait for any
// other. Without it (and without `sized_to_fit`), a block may wait only for blocks that have started, for example those that drew an earlier ticket.
template <class Kernel>
constexpr bool kernel_is_cooperative() {
    if constexpr (requires { Kernel::cooperative; }) {
        return Kernel::cooperative;
    } else {
        return false;
    }
}
template <class Kernel>
inline constexpr bool is_cooperative = kernel_is_cooperative<Kernel>();

// Whether the caller sizes the grid such that all blocks are resident at once, as a persistent kernel does, without a
// cooperative launch: the blocks may wait for each other as in one. The device launch throws if the grid does not fit an
// otherwise idle device. It cannot know what else runs there: a cooperative launch is safer.
template <class Kernel>
constexpr bool kernel_is_sized_to_fit() {
    if constexpr (requires { Kernel::sized_to_fit; }) {
        return Kernel::sized_to_fit;
    } else {
        return false;
    }
}
template <class Kernel>
inline constexpr bool is_sized_to_fit = kernel_is_sized_to_fit<Kernel>();

// Whether all blocks are resident at once.
template <class Kernel>
inline constexpr bool is_wholly_resident = is_cooperative<Kernel> || is_sized_to_fit<Kernel>;

// `whole` is __PRETTY_FUNCTION__ of name_of_kernel.
inline std::string kernel_name_in(std::string_view whole) {
    const std::size_t begin = whole.find("Kernel = ");
    if (begin == std::string_view::npos) return std::string(whole);
    const std::size_t end = whole.find_first_of(";]", begin);
    std::string name(whole.substr(begin + 9, end - begin - 9));
    constexpr std::string_view prefix = "imbrex::", worlds = "worlds_";
    for (std::size_t at = 0; (at = name.find(prefix, at)) != std::string::npos; at += prefix.size()) {
        const std::size_t inner = at + prefix.size();
        if (name.compare(inner, worlds.size(), worlds) == 0) name.erase(inner, name.find("::", inner) + 2 - inner);
    }
    return name;
}

// The kernel's name as the compiler spells it, for reports, without the inline namespace of core/config.hpp.
template <class Kernel>
std::string name_of_kernel() {
    return kernel_name_in(__PRETTY_FUNCTION__);
}

}  // namespace imbrex::hw
