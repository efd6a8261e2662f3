// Input tokens that the host does not know yet: ids[i] = sampled[rows[i]] where rows[i] is not negative. The step before
// has sampled them, and they are still in the memory of the world.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/row_tiles.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/warp/gather.hpp>

#include "engine/model/step_inputs.hpp"

namespace imbrex::engine {

struct input_tokens_kernel : row_tiles_kernel<input_tokens_kernel> {
    static constexpr int rows_of_warp = 32;
    struct arguments {
        const int* rows;
        const int* sampled;
        int* ids;
        row_tiles<rows_of_warp, 1> all;
    };

    IMBREX_KERNEL static void apply(const warp& self, const arguments& args, int first, int) {
        warp_gather<rows_of_warp>(self, [&](int number) {
            const int place = first + number;
            const int row = place < args.all.rows ? read_element(args.rows, place) : -1;
            if (row >= 0) write_element(args.ids, place, read_element(args.sampled, row));
            return row;
        });
    }
};

inline namespace IMBREX_WORLDS {

// Completes the ids of the step.
inline void take_input_tokens(world where, const step_inputs& now, const int* sampled, void* stream) {
    if (now.input_rows == nullptr) return;
    launch_row_tiles<input_tokens_kernel>(
        where, {.rows = now.input_rows, .sampled = sampled, .ids = now.input_ids, .all = {now.tokens, 1}}, stream);
}

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
