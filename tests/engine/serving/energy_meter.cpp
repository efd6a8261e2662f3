// Counters of energy: sums since construction, a counter that begins again, failed reads, and the processor packages of a folder
// like Linux's.
#include "engine/serving/energy_meter.hpp"

#include <doctest/doctest.h>

#include <fstream>

#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

void write(const std::filesystem::path& file, std::uint64_t number) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << number << "\n";
}

}  // namespace

TEST_CASE("An energy counter counts from its construction, across its end") {
    std::optional<std::uint64_t> value = 900'000;
    energy_counter counter([&] { return value; }, 1'000'000);
    CHECK(counter.joules() == 0);
    value = 950'000;
    CHECK(counter.joules() == doctest::Approx(0.05));
    value = 150'000;  // past the end of its range
    CHECK(counter.joules() == doctest::Approx(0.25));
    value.reset();  // cannot be read
    CHECK(counter.joules() == doctest::Approx(0.25));
    value = 250'000;
    CHECK(counter.joules() == doctest::Approx(0.35));
}

TEST_CASE("An energy meter sums the processor packages and leaves out their parts") {
    const temporary_folder folder;
    const std::filesystem::path root = folder.path();
    for (const char* name : {"intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0", "other"}) {
        write(root / name / "energy_uj", 5'000'000);
        write(root / name / "max_energy_range_uj", 100'000'000);
    }
    std::filesystem::create_directories(root / "intel-rapl:2");  // without a counter
    energy_meter meter({}, root);
    write(root / "intel-rapl:0" / "energy_uj", 6'000'000);
    write(root / "intel-rapl:1" / "energy_uj", 1'000'000);  // past its end
    write(root / "intel-rapl:0:0" / "energy_uj", 90'000'000);
    const energy_reading reading = meter.read();
    REQUIRE(reading.cpu_joules.has_value());
    CHECK(*reading.cpu_joules == doctest::Approx(1 + 96));
    CHECK(!reading.gpu_joules.has_value());
}

TEST_CASE("Without counters an energy meter has no figures") {
    energy_meter meter("0000:ff:1f.0", "/nonexistent");
    const energy_reading reading = meter.read();
    CHECK(!reading.cpu_joules.has_value());
    CHECK(!reading.gpu_joules.has_value());
}

}  // namespace imbrex::engine::test
