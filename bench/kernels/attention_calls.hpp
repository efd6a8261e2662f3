// Shared by the libraries of the attention benchmarks: error codes of the C functions, and the tile counter of the
// dynamic scheduler.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>

#include <exception>
#include <string>

namespace imbrex::bench {

// Message of this thread's last failed call.
inline std::string& last_error() {
    thread_local std::string text;
    return text;
}

// 0 on success, 1 for an invalid argument, 2 for a CUDA error, 3 for any other error.
template <class Call>
int status_of(const Call& call) {
    try {
        call();
        return 0;
    } catch (const invalid_argument& fault) {
        last_error() = fault.what();
        return 1;
    } catch (const cuda_error& fault) {
        last_error() = fault.what();
        return 2;
    } catch (const std::exception& fault) {
        last_error() = fault.what();
        return 3;
    }
}

// Zero before each launch; the kernel resets it.
inline int* tile_counter() {
    static world_array<int> memory(world::device, 1);
    static int* const one = memory.upload();
    return one;
}

}  // namespace imbrex::bench
