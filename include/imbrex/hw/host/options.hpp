// The options of a launch in the host world.
#pragma once

#include <imbrex/hw/host/mutation.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace imbrex {

enum class host_mode {
    plain,    // asynchronous operations complete at once, blocks run on all cores
    checked,  // they complete in an order drawn from the seed, and every access is checked
};

struct host_options {
    host_mode mode = host_mode::plain;
    std::uint64_t seed = 0;
    int threads = 0;                                     // OS threads in plain mode; 0: all cores
    std::optional<mutation> mutate = std::nullopt;       // checked mode: mutate one synchronisation
    std::vector<synchronisation_site>* sites = nullptr;  // checked mode: collects the synchronisations passed
    std::string trace_file = {};                         // writes a Chrome/Perfetto trace here
};

}  // namespace imbrex
