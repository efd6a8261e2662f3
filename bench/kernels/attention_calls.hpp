// What the libraries of attention's benchmarks have in common: how a failure comes through a C function, and the counter that
// blocks draw their work from.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>

#include <exception>
#include <string>

namespace imbrex::bench {

// What went wrong in this thread's last call that did not return 0.
inline std::string& last_error() {
    thread_local std::string text;
    return text;
}

// 0, or 1 where an argument is not allowed, 2 for an error of CUDA, 3 for any other.
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

// Zero before and after each launch.
inline int* tile_counter() {
    static world_array<int> memory(world::device, 1);
    static int* const one = memory.send();
    return one;
}

}  // namespace imbrex::bench
