#include "engine/serving/energy_meter.hpp"

#include <dlfcn.h>

#include <fstream>
#include <utility>

namespace imbrex::engine {

namespace {

// The functions of NVML that are used here, which have been the same in all its versions.
struct nvml {
    using device = void*;
    int (*init)() = nullptr;
    int (*device_of)(const char* bus_id, device*) = nullptr;
    int (*energy)(device, unsigned long long* millijoules) = nullptr;

    // Loaded once; the functions are null if there is no driver.
    static const nvml& library() {
        static const nvml loaded = [] {
            nvml all;
            void* const handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
            if (handle == nullptr) return all;
            all.init = reinterpret_cast<decltype(all.init)>(dlsym(handle, "nvmlInit_v2"));
            all.device_of =
                reinterpret_cast<decltype(all.device_of)>(dlsym(handle, "nvmlDeviceGetHandleByPciBusId_v2"));
            all.energy = reinterpret_cast<decltype(all.energy)>(dlsym(handle, "nvmlDeviceGetTotalEnergyConsumption"));
            if (all.init == nullptr || all.device_of == nullptr || all.energy == nullptr || all.init() != 0)
                return nvml{};
            return all;
        }();
        return loaded;
    }
};

std::optional<energy_counter> gpu_counter(const std::string& bus_id) {
    const nvml& library = nvml::library();
    nvml::device device = nullptr;
    if (bus_id.empty() || library.energy == nullptr || library.device_of(bus_id.c_str(), &device) != 0) return {};
    const auto read = [&library, device]() -> std::optional<std::uint64_t> {
        unsigned long long millijoules = 0;
        if (library.energy(device, &millijoules) != 0) return {};
        return millijoules * 1000;
    };
    if (!read()) return {};
    return energy_counter(read);
}

std::optional<std::uint64_t> number_in(const std::filesystem::path& file) {
    std::ifstream stream(file);
    std::uint64_t number = 0;
    if (!(stream >> number)) return {};
    return number;
}

// Packages are intel-rapl:0, intel-rapl:1, ...; intel-rapl:0:0 is a part of the first.
bool is_package(const std::filesystem::path& folder) {
    const std::string name = folder.filename().string();
    return name.starts_with("intel-rapl:") && name.find(':', 11) == std::string::npos;
}

}  // namespace

energy_counter::energy_counter(std::function<std::optional<std::uint64_t>()> read, std::uint64_t range)
    : read_(std::move(read)), range_(range), last_(read_()) {}

double energy_counter::joules() {
    const std::optional<std::uint64_t> now = read_();
    if (now && last_) microjoules_ += static_cast<double>(*now >= *last_ ? *now - *last_ : *now + (range_ - *last_));
    if (now) last_ = now;
    return microjoules_ * 1e-6;
}

energy_meter::energy_meter(const std::string& gpu_bus_id, const std::filesystem::path& powercap) {
    if (const std::optional<energy_counter> gpu = gpu_counter(gpu_bus_id)) gpu_.push_back(*gpu);
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(powercap, failed)) {
        if (!is_package(entry.path())) continue;
        const std::filesystem::path file = entry.path() / "energy_uj";
        if (!number_in(file)) continue;
        cpu_.emplace_back([file] { return number_in(file); },
                          number_in(entry.path() / "max_energy_range_uj").value_or(UINT64_MAX));
    }
}

energy_reading energy_meter::read() {
    const auto sum = [](std::vector<energy_counter>& counters) -> std::optional<double> {
        if (counters.empty()) return {};
        double joules = 0;
        for (energy_counter& each : counters) joules += each.joules();
        return joules;
    };
    return {.gpu_joules = sum(gpu_), .cpu_joules = sum(cpu_)};
}

}  // namespace imbrex::engine
