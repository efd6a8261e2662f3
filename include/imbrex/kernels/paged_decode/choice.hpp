// Which kernel decodes, and in which shape: the tables of choices, in one place.
//
//   what                                                         kernel
//   the device is not a Hopper, the copy engine cannot read the
//   tensors (distances that are not multiples of 16 bytes), or
//   there are no pages                                           ampere_class    attention/ampere.hpp, over pages
//   otherwise                                                    hopper          paged_decode/hopper.hpp
#pragma once

#include <imbrex/kernels/paged_decode/hopper.hpp>

#include <cstdint>
#include <string>

namespace imbrex {

enum class decode_kernel { ampere_class, hopper };

struct decode_situation {
    bool hopper;           // the device, and the program has code for it
    bool engine_can_copy;  // Q, K, V, and O
    int keys;              // for which there is room
};

constexpr decode_kernel choose_decode(const decode_situation& s) {
    return s.hopper && s.engine_can_copy && s.keys > 0 ? decode_kernel::hopper : decode_kernel::ampere_class;
}

constexpr const char* name_of(decode_kernel one) {
    return one == decode_kernel::hopper ? "hopper" : "ampere_class";
}

// Fewer keys of a head are not worth another multiprocessor: what it finds out has to be put together. (Measured.)
inline constexpr int decode_least_keys = 128;

// A unit of work takes as much longer than its keys, where there are many of them, as so many keys more would. (Measured.)
inline constexpr int decode_more_keys = 160;

// Depths that kernels are made for. Others are taken by the next larger one, whose further columns are zero. Who knows his depth
// names only that, and compiles only that: decode_depths<128>.
template <int... Depths>
struct decode_depths {
    // call.template operator()<Depth>() for the first that has room; false if there is none.
    template <class Call>
    static bool visit(int wanted, const Call& call) {
        bool found = false;
        ((!found && wanted <= Depths ? (found = true, call.template operator()<Depths>()) : void()), ...);
        return found;
    }
    static std::string text() {
        std::string all;
        ((all += (all.empty() ? "" : ", ") + std::to_string(Depths)), ...);
        return all;
    }
};
using all_decode_depths = decode_depths<64, 96, 128, 192, 256>;

// Warps that share a stage, a group of 16 rows each: one as long as the rows of a sequence fit it. With more rows a stage is
// multiplied by four: fewer than 64 rows waste some of it, which memory leaves time for.
constexpr int decode_groups_for(std::int64_t rows) {
    return rows <= decode_slice ? 1 : 4;
}

// About 128 KB of keys and values on their way, and room for what the warps put together.
constexpr decode_shape decode_shape_for(int depth, int groups) {
    switch (depth) {
        case 64:
            return {.groups = groups, .keys = 32, .stages = 16, .combined_columns = 64};
        case 96:
            return {.groups = groups, .keys = 32, .stages = 16, .combined_columns = 32};
        case 128:
            return {.groups = groups, .keys = 32, .stages = 8, .combined_columns = 128};
        case 192:
            return {.groups = groups, .keys = 16, .stages = 8, .combined_columns = 192};
        default:
            return {.groups = groups, .keys = 16, .stages = 8, .combined_columns = 128};
    }
}

}  // namespace imbrex
