// Packs and unpacks the messages of Ulysses attention for tensors with one number per row and head (LSE, delta), all of
// them in one launch. The numbers of a head are contiguous, so that those of a striped placement cannot be copied as rows
// of bytes.
#pragma once

#include <imbrex/comm/schedule/token_ranges.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/row_tiles.hpp>
#include <imbrex/ops/register/vector_row_values.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>

namespace imbrex {

enum class message_packing { pack, unpack };

// The message of each rank's tokens, [batch, head, row], ordered by rank; that of the own tokens may be elsewhere.
struct row_value_messages {
    float* all;
    float* own;
    token_placement placement;
    int tokens, ranks, rank;
    int batches, heads;

    IMBREX_FN float* at(int batch, int head, int position) const {
        const token_location place = location_of(placement, tokens, ranks, position);
        const std::int64_t before = tokens_before(placement, tokens, ranks, place.rank);
        float* const message = place.rank == rank ? own : all + before * batches * heads;
        const std::int64_t rows = tokens_of(placement, tokens, ranks, place.rank).count();
        return message + (std::int64_t{batch} * heads + head) * rows + place.row;
    }
};

// A tile is some positions of one head.
struct pack_row_values_kernel : row_tiles_kernel<pack_row_values_kernel> {
    static constexpr int positions = 128;  // 4 a lane

    struct arguments {
        row_value_messages messages;
        attention_row_view values;  // [batch, head, position]
        message_packing way;
        row_tiles<1, positions> all;
    };

    IMBREX_KERNEL static void apply(const warp& self, const arguments& args, int number, int first) {
        if (number >= args.all.rows) return;
        const int batch = number / args.messages.heads, head = number - batch * args.messages.heads;
        const auto place = [&](int i, bool in_message) -> float* {
            if (first + i >= args.all.columns) return nullptr;
            return in_message ? args.messages.at(batch, head, first + i) : args.values.at(batch, head, first + i);
        };
        const bool packs = args.way == message_packing::pack;
        vector_row_values<vector_row_tile<float, positions, 8>> numbers;
        load_values_from(
            self, numbers, [&](int i) { return place(i, !packs); }, 0.0f);
        store_values_to(
            self, [&](int i) { return place(i, packs); }, numbers);
    }
};

inline namespace IMBREX_WORLDS {

inline void pack_row_values(world where, const row_value_messages& messages, float* values, message_packing way,
                            void* stream) {
    if (messages.batches == 0 || messages.heads == 0 || messages.tokens == 0) return;
    launch_row_tiles<pack_row_values_kernel>(where,
                                             {messages,
                                              batch_head_rows(values, messages.heads, messages.tokens),
                                              way,
                                              {messages.batches * messages.heads, messages.tokens}},
                                             stream);
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
