// Shared by the tests of hazards: kernels with a hazard, notes of the offending lines, and the report. A kernel calls
// `note(caught)` on the line above the statement that should be caught, and `note(before)` above the earlier one that
// it conflicts with.
#pragma once

#include <doctest/doctest.h>

#include <imbrex/imbrex.hpp>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace hazards {

using namespace imbrex;

// The two locations of a report.
enum place { caught = 0, before = 1 };

inline int& noted_line(place which) {
    static int lines[2];
    return lines[which];
}
inline void note(place which, int line = __builtin_LINE()) {
    noted_line(which) = line + 1;
}

// Small tensors for the kernels: eight tiles below one another.
using tile = shared_tile<float, 64, 32>;
using operand = shared_tile<bf16, 64, 64>;
using accumulator = warpgroup_tile<float, 64, 64>;
using rows = warp_tile<float, 16, 32>;
using group_rows = warpgroup_tile<float, 64, 32>;

struct arguments {
    tma_tensor<tile, 2> in;
    tma_tensor<tile, 2> out;
    matrix_view<float> in_view;
    matrix_view<float> out_view;
    tma_tensor<operand, 2> operands;
};

struct memory {
    std::vector<float> in = std::vector<float>(8 * 64 * 32, 1.0f);
    std::vector<float> out = std::vector<float>(8 * 64 * 32, -1.0f);
    std::vector<bf16> operands = std::vector<bf16>(8 * 64 * 64, bf16(1.0f));

    hazards::arguments arguments() {
        return {make_tma_tensor<tile>(matrix(in.data(), 8 * 64, 32)),
                make_tma_tensor<tile>(matrix(out.data(), 8 * 64, 32), tma_use::store), matrix(in.data(), 8 * 64, 32),
                matrix(out.data(), 8 * 64, 32), make_tma_tensor<operand>(matrix(operands.data(), 8 * 64, 64))};
    }
};

// The report of a checked run with this seed.
template <class Kernel>
std::optional<hazard> report_of(std::uint64_t seed, grid_dim grid = {}) {
    memory mine;
    host_options options;
    options.mode = host_mode::checked;
    options.seed = seed;
    try {
        host::launch<Kernel>(grid, mine.arguments(), options);
    } catch (const hazard_error& error) {
        CHECK(error.what() == error.reported_hazard().text());
        return error.reported_hazard();
    }
    return std::nullopt;
}

// Finds the kernel's hazard and checks its kind and its replay. If the order of two scopes decides the kind, the other
// possible kinds are listed too.
template <class Kernel>
hazard expect(hazard_kind kind, grid_dim grid = {}, std::initializer_list<hazard_kind> also = {}, int schedules = 24) {
    std::optional<hazard> found;
    noted_line(caught) = noted_line(before) = -1;
    for (int seed = 0; seed < schedules; ++seed) {
        std::optional<hazard> one = report_of<Kernel>(seed, grid);
        // A mistake with only one kind appears under every seed.
        if (also.size() == 0) REQUIRE(one);
        if (!one) continue;
        bool allowed = one->kind == kind;
        for (const hazard_kind other : also) allowed = allowed || one->kind == other;
        INFO(one->text());
        REQUIRE(allowed);
        if (one->kind == kind && !found) found = one;
    }
    REQUIRE(found);
    CHECK(found->kernel.find("hazards::") != std::string::npos);
    CHECK(found->text().find(name_of(kind)) != std::string::npos);
    CHECK(found->text().find(str_cat("seed ", found->seed)) != std::string::npos);
    const auto again = report_of<Kernel>(found->seed, grid);
    REQUIRE(again);
    CHECK(again->text() == found->text());
    return *found;
}

// Checks one location of a report against the kernel's notes.
inline void check_location(const hazard& found, place which, const std::string& who, int stage = -1) {
    INFO(found.text());
    REQUIRE(found.locations.size() > static_cast<std::size_t>(which));
    const hazard_location& one = found.locations[which];
    // In a cluster the name begins with the block.
    const bool named = one.who == who || one.who.ends_with(std::string(", ") + who);
    CAPTURE(one.who);
    CHECK(named);
    CHECK(one.line == noted_line(which));
    CHECK(one.stage == stage);
    CHECK(one.file.find("hazards_") != std::string::npos);
    CHECK(one.file.find(".cpp") != std::string::npos);
}

}  // namespace hazards
