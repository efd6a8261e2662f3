// What a launcher reads off a kernel's type.
#pragma once

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

// The kernel's shared memory, or an empty one.
template <class Kernel>
using shared_memory_of = typename shared_memory_choice<Kernel>::type;

// Blocks a cluster.
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

// Blocks that a multiprocessor should have room for: the registers of each are limited to its share.
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

// Whether the kernel uses what only sm_90a has. Where a program is compiled for several architectures, such a kernel is left
// empty for the others, and whoever launches must choose another.
template <class Kernel>
constexpr bool kernel_needs_hopper() {
    if constexpr (requires { Kernel::needs_hopper; }) {
        return Kernel::needs_hopper;
    } else {
        return false;
    }
}
template <class Kernel>
inline constexpr bool needs_hopper = kernel_needs_hopper<Kernel>();

// Whether the kernel may begin while the one before it in the stream is still running, because it waits by itself
// (hw/pdl.hpp) before it touches what that one does.
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

// The kernel's name as the compiler spells it, for reports, without the inline namespace of core/config.hpp.
template <class Kernel>
std::string name_of_kernel() {
    const std::string_view whole = __PRETTY_FUNCTION__;
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

}  // namespace imbrex::hw
