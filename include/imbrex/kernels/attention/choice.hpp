// Which kernel attends, in which shape and in which order: the tables of choices, in one place.
//
//   what                                                         kernel
//   the device is not a Hopper, the copy engine cannot read the
//   tensors (distances that are not multiples of 16 bytes), or
//   there are no keys                                            ampere_class    any distances
//   otherwise                                                    hopper
#pragma once

#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/shape.hpp>

#include <algorithm>
#include <string>
#include <type_traits>

namespace imbrex {

enum class attention_kernel { ampere_class, hopper };

struct attention_situation {
    bool hopper;           // the device, and the program has code for it
    bool engine_can_copy;  // Q, K, V, and O
    int keys;
};

constexpr attention_kernel choose_attention(const attention_situation& s) {
    return s.hopper && s.engine_can_copy && s.keys > 0 ? attention_kernel::hopper : attention_kernel::ampere_class;
}

constexpr const char* name_of(attention_kernel one) {
    return one == attention_kernel::hopper ? "hopper" : "ampere_class";
}

// Depths of keys and of values that kernels are made for. Others are taken by the next larger ones, whose further columns are
// zero.
struct attention_depths {
    int key;
    int value;

    constexpr attention_depths(int both) : key(both), value(both) {}
    constexpr attention_depths(int key, int value) : key(key), value(value) {}
    constexpr bool operator==(const attention_depths&) const = default;
    constexpr bool has_room_for(const attention_depths& wanted) const {
        return wanted.key <= key && wanted.value <= value;
    }
};

// A list of such depths, each of which a program has kernels of. Who knows his depth names only that, and compiles only that:
// attention_tiles<128>, or attention_tiles<attention_depths(192, 128)>.
template <attention_depths... Depths>
struct attention_tiles {
    static constexpr int count = sizeof...(Depths);

    // The number of the first with room for these, or `count`.
    static constexpr int number_for(const attention_depths& wanted) {
        int number = 0;
        static_cast<void>(((Depths.has_room_for(wanted) || (++number, false)) || ...));
        return number;
    }
    // visit(integral_constant-like tag with the depths) of that number.
    template <class Visit>
    static void visit(int number, const Visit& call) {
        int here = 0;
        ((here++ == number ? call.template operator()<Depths>() : void()), ...);
    }
    static std::string text() {
        std::string all;
        ((all += (all.empty() ? "" : ", ") + std::to_string(Depths.key) + " x " + std::to_string(Depths.value)), ...);
        return all;
    }
};

using all_attention_tiles = attention_tiles<64, 96, 128, attention_depths(192, 128), 192, 256>;

// How many registers a kernel wants besides those of its tiles. Results in fp32 want them for addresses, and so do, even more,
// scores that read memory for each pair of query and key, for what is on its way.
enum class attention_demand { least, little, usual, much, most };

template <class Mask, class Score, attention_result Result = attention_result::normalised>
constexpr attention_demand attention_demand_of() {
    if (score_reads_memory<Score>()) return attention_demand::most;
    if (Result != attention_result::normalised) return attention_demand::much;
    if (!score_changes_nothing<Score>()) return attention_demand::usual;
    if (std::is_same_v<Mask, full_mask>) return attention_demand::least;
    return std::is_same_v<Mask, causal_mask> ? attention_demand::little : attention_demand::usual;
}

// Groups of 64 queries and the widest tiles of keys for which shared memory and registers suffice.
constexpr attention_shape attention_shape_for(attention_depths depths, attention_demand demand,
                                              attention_softmax softmax = attention_softmax::exact) {
    struct tiles {
        int groups;
        int columns;
    };
    struct row {
        attention_depths depths;
        tiles by_demand[5];
    };
    constexpr row table[] = {
        // least, little, usual, much, most
        {64, {{3, 128}, {3, 128}, {3, 96}, {3, 96}, {2, 64}}},            //
        {96, {{3, 112}, {3, 112}, {2, 160}, {2, 160}, {2, 80}}},          //
        {128, {{2, 128}, {2, 128}, {2, 128}, {2, 128}, {2, 48}}},         //
        {{192, 128}, {{2, 128}, {2, 128}, {2, 128}, {2, 112}, {2, 64}}},  //
        {192, {{2, 96}, {2, 96}, {2, 112}, {2, 48}, {2, 48}}},            //
        {256, {{2, 80}, {2, 80}, {2, 64}, {1, 32}, {1, 32}}},             //
    };
    for (const row& one : table) {
        if (!one.depths.has_room_for(depths)) continue;
        const tiles chosen = one.by_demand[static_cast<int>(demand)];
        attention_shape shape{.groups = chosen.groups, .columns = chosen.columns, .softmax = softmax};
        // The multiprocessor's registers, dealt out.
        if (chosen.groups == 1) {
            shape.consumer_registers = 248;
            shape.turns = false;
        } else if (chosen.groups == 3) {
            shape.producer_registers = 32;
            shape.consumer_registers = 160;
        } else if (one.depths == 128 && demand <= attention_demand::usual &&
                   (softmax == attention_softmax::exact || demand == attention_demand::usual)) {
            // Fewer than there are: the compiler then finds an order in which the exponentials follow one another more evenly, which
            // is 1 to 3% faster. (Not with a relaxed softmax, if there is nothing but a causal mask or none.)
            shape.producer_registers = 40;
            shape.consumer_registers = 224;
        } else if (one.depths == 128 || demand > attention_demand::little) {
            shape.producer_registers = 40;
            shape.consumer_registers = 232;
        }
        return shape;
    }
    return {};
}

}  // namespace imbrex
