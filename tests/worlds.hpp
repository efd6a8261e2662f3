// Runs a kernel in every available world: the host world, plain and checked, and the device. A test loops over
// `worlds()`, allocates buffers of that world, launches the kernel and compares the result with plain loops.
#pragma once

#include <doctest/doctest.h>

#include <imbrex/hw/world.hpp>
#include <imbrex/imbrex.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace imbrex_test {

using imbrex::name_of;
using imbrex::world;

template <class T>
using buffer = imbrex::world_array<T>;

// In a test compiled by nvcc only the device runs: the host compiler's copy of the test covers the host worlds.
inline std::vector<world> worlds() {
#if defined(__CUDACC__)
    return {world::device};
#else
    return {world::host, world::host_checked};
#endif
}

// Launches the kernel and waits for it. In the checked world it runs in several schedules.
template <class Kernel>
void run(world where, imbrex::grid_dim grid, const typename Kernel::arguments& arguments,
         [[maybe_unused]] int schedules = 8) {
#if !defined(__CUDACC__)
    if (where == world::host_checked) {
        const auto found = imbrex::host::check<Kernel>(grid, arguments, schedules);
        INFO((found ? found->text() : std::string()));
        REQUIRE(!found);
        return;
    }
#endif
    imbrex::launch<Kernel>(where, grid, arguments);
#if defined(__CUDACC__)
    imbrex::detail::require_success(cudaDeviceSynchronize(), "kernel");
#endif
}

// The message of the imbrex::error that a call throws.
template <class Call>
std::string error_message_of(Call call) {
    try {
        call();
    } catch (const imbrex::error& thrown) {
        return thrown.what();
    }
    return "no error";
}

// Reproducible random numbers.
template <class T>
void fill_random(std::vector<T>& values, std::uint32_t seed, float low = -1.0f, float high = 1.0f) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> number(low, high);
    for (T& value : values) value = imbrex::convert<T>(number(generator));
}

}  // namespace imbrex_test
