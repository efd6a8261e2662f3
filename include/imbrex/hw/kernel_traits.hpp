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

// The kernel's name as the compiler spells it, for reports.
template <class Kernel>
std::string name_of_kernel() {
    const std::string_view whole = __PRETTY_FUNCTION__;
    const std::size_t begin = whole.find("Kernel = ");
    if (begin == std::string_view::npos) return std::string(whole);
    const std::size_t end = whole.find_first_of(";]", begin);
    return std::string(whole.substr(begin + 9, end - begin - 9));
}

}  // namespace imbrex::hw
