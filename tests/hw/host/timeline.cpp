// The timeline of a report, and the hazard in a trace.
#include <doctest/doctest.h>

#include <imbrex/imbrex.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace imbrex;

constexpr int line_of_store = __LINE__ + 13, line_of_load = __LINE__ + 17;

// Warp 1 does not wait for what warp 0 stores.
template <bool Correct>
struct hand_over_kernel {
    static constexpr int warps = 2;
    struct arguments {
        int* value;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, hw::no_shared_memory&) {
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                put(self, args.value, 1);
            }
            if (Correct) hw::named_sync(self, hw::first_free_named_barrier, 2);
            if (self.index() == 1) {
                get(self, args.value);
            }
        });
    }
};

std::string temporary(const char* name) {
    return (std::filesystem::temp_directory_path() / name).string();
}
std::string contents_of(const std::string& file) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

TEST_CASE("the timeline of a report names both lines, side by side in the order of time") {
    int value = 0;
    const auto found = host::check<hand_over_kernel<false>>({1}, {&value}, 10);
    REQUIRE(found);
    const std::string text = found->text();
    CAPTURE(text);
    std::vector<std::string> lines;
    std::istringstream in(found->timeline);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    REQUIRE(lines.size() == 3);  // by default warp 0 runs first
    CHECK(lines[0].find("warp 1") != std::string::npos);
    CHECK(lines[0].find("warp 0") != std::string::npos);
    const std::string store = "store of one global value  timeline.cpp:" + std::to_string(line_of_store);
    const std::string load = "load of one global value  timeline.cpp:" + std::to_string(line_of_load);
    CHECK(lines[1].find(store + "  <- conflict") == lines[0].find("warp 0"));
    CHECK(lines[2].find(load + "  <- hazard") == lines[0].find("warp 1"));
    CHECK(text.find("  timeline\n" + found->timeline) != std::string::npos);
}

TEST_CASE("a correct kernel has no timeline, and recording one does not change it") {
    int value = 0;
    CHECK(hazard_text(host::check<hand_over_kernel<true>>({1}, {&value}, 50)) == "");
    for (int seed = 0; seed < 20; ++seed) {
        const host_options options{
            .mode = host_mode::checked, .seed = static_cast<std::uint64_t>(seed), .timeline = true};
        CHECK_NOTHROW(host::launch<hand_over_kernel<true>>({1}, {&value}, options));
    }
}

struct long_kernel {
    static constexpr int warps = 1;
    struct arguments {
        int* value;
    };
    struct shared_memory {
        shared_vector<int, 4> values;
    };
    static void run(block_scope<1>& block, const arguments& args, shared_memory& smem) {
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 100; ++i) put(self, args.value, i);
            hw::get(self, smem.values, 4, source::current());
        });
    }
};

TEST_CASE("a long run shows only its last events") {
    int value = 0;
    const auto found = host::check<long_kernel>({1}, {&value}, 1);
    REQUIRE(found);
    CHECK(std::count(found->timeline.begin(), found->timeline.end(), '\n') == 1 + 8);
}

TEST_CASE("a trace of a hazard marks it in the rows of both scopes") {
    const std::string file = temporary("imbrex_hazard_trace.json");
    int value = 0;
    const auto found = host::check<hand_over_kernel<false>>({1}, {&value}, {.schedules = 10, .trace_file = file});
    REQUIRE(found);
    std::string trace = contents_of(file);
    std::remove(file.c_str());
    const auto count = [&](const std::string& word) {
        int number = 0;
        for (std::size_t at = trace.find(word); at != std::string::npos; at = trace.find(word, at + 1)) ++number;
        return number;
    };
    CHECK(count("\"name\": \"hazard: race\"") == 2);
    CHECK(count("\"ph\": \"i\"") == 2 + 3);  // with the events: the fork, the store, the load
    CHECK(count("{") == count("}"));
    CHECK(trace.find("timeline.cpp:" + std::to_string(line_of_load)) != std::string::npos);

    // A launch with a seed writes the same.
    const host_options options{.mode = host_mode::checked, .seed = found->seed, .trace_file = file};
    CHECK_THROWS_AS(host::launch<hand_over_kernel<false>>({1}, {&value}, options), hazard_error);
    trace = contents_of(file);
    std::remove(file.c_str());
    CHECK(count("\"name\": \"hazard: race\"") == 2);
}

TEST_CASE("a check without a hazard writes no trace") {
    const std::string file = temporary("imbrex_no_hazard_trace.json");
    int value = 0;
    CHECK(!host::check<hand_over_kernel<true>>({1}, {&value}, {.schedules = 4, .trace_file = file}));
    CHECK(!std::filesystem::exists(file));
}

}  // namespace
