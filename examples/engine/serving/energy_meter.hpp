// The energy that a GPU and the processor have used, from the counters of NVML and of RAPL (Linux). NVML is the library of the
// NVIDIA driver, loaded when the program runs. The counters are of the whole device: they include what other programs use.
// RAPL's counters can be read by root only, on most systems; a counter that cannot be read is absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace imbrex::engine {

// A counter that only grows, but begins again at 0 after `range` microjoules.
class energy_counter {
  public:
    // `read` returns microjoules, or nothing if reading fails.
    explicit energy_counter(std::function<std::optional<std::uint64_t>()> read, std::uint64_t range = UINT64_MAX);

    // Joules since construction. Must be read at least once per range. A failed read adds nothing.
    double joules();

  private:
    std::function<std::optional<std::uint64_t>()> read_;
    std::uint64_t range_;
    std::optional<std::uint64_t> last_;
    double microjoules_ = 0;
};

struct energy_reading {
    std::optional<double> gpu_joules{}, cpu_joules{};  // absent: no counter
};

class energy_meter {
  public:
    // Of the GPU with this PCI bus id, if it is not empty, and of the processor packages below this folder.
    explicit energy_meter(const std::string& gpu_bus_id = {},
                          const std::filesystem::path& powercap = "/sys/class/powercap");

    // Since construction.
    energy_reading read();

  private:
    std::vector<energy_counter> gpu_, cpu_;  // one GPU at most
};

}  // namespace imbrex::engine
