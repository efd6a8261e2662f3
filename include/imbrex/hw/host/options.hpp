// The options of a launch in the host world.
#pragma once

#include <imbrex/hw/host/mutation.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace imbrex {

enum class host_mode {
    plain,    // asynchronous operations complete at once, blocks run on all cores
    checked,  // they complete in an order drawn from the seed, and every access is checked
};

// Bytes of global memory.
struct memory_range {
    const void* first = nullptr;
    std::size_t bytes = 0;

    std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(first); }
    std::uintptr_t end() const { return begin() + bytes; }
};

struct host_options {
    host_mode mode = host_mode::plain;
    std::uint64_t seed = 0;
    int threads = 0;                                     // OS threads in plain mode; 0: all cores
    std::optional<mutation> mutate = std::nullopt;       // checked mode: mutate one synchronisation
    std::vector<synchronisation_site>* sites = nullptr;  // checked mode: collects the synchronisations passed
    std::string trace_file = {};                         // writes a Chrome/Perfetto trace here
    bool track_global_memory = true;                     // checked mode
    std::vector<memory_range> uninitialised = {};        // global memory whose contents are undefined
    std::vector<memory_range> exempt = {};               // global memory that is not checked
};

}  // namespace imbrex
