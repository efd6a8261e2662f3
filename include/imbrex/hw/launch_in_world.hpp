// Launches for kernels that belong to one of the worlds: where the device and the host are served by tiles of different sizes, each has
// a kernel of its own, and neither is compiled for the other. All other kernels are launched by hw/world.hpp.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/position.hpp>
#include <imbrex/hw/host/launch.hpp>
#include <imbrex/hw/world.hpp>

namespace imbrex {

template <class Kernel>
void launch_on_device([[maybe_unused]] position grid, [[maybe_unused]] const typename Kernel::arguments& arguments,
                      [[maybe_unused]] void* stream) {
#if defined(__CUDACC__)
    device::launch<Kernel>(grid, arguments, static_cast<cudaStream_t>(stream));
#else
    throw error(detail::host_world_alone);
#endif
}

// In one of the host's worlds.
template <class Kernel>
void launch_on_host([[maybe_unused]] world where, [[maybe_unused]] position grid,
                    [[maybe_unused]] const typename Kernel::arguments& arguments) {
#if defined(IMBREX_DEVICE_ALONE)
    throw error(sentence("world: ", name_of(where),
                         "; this program was compiled with IMBREX_DEVICE_ALONE and has the "
                         "device alone"));
#else
    host_options options;
    options.mode = where == world::host ? host_mode::plain : host_mode::checked;
    host::launch<Kernel>(grid, arguments, options);
#endif
}

}  // namespace imbrex
