// The workspace of the backward pass, in blocks of block_m queries. Each sequence begins at a block of its own, so a
// block never holds rows of two sequences, and its rows can be padded:
//
//   lse2    the LSE of each query; +infinity where there is no query or it sees no key, so that its probabilities are 0
//   delta   rowsum(dO * O), 0 where there is no query
//   d_q     dQ in fp32 before the multiplication by the scale; key blocks add to it. A block is stored in parts, one for
//           each consumer warpgroup of the Hopper kernel, each in the order of its registers
//
//   turns   counters, if key blocks add to d_q in a fixed order (d_q_order.hpp)
//
// The preprocess kernel writes lse2 and delta and sets d_q and turns to zero. The postprocess kernel converts d_q.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention_backward/d_q_order.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/tile/fragment_buffer.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

// A part of dQ has PartRows of the BlockM rows, or PartColumns of the HeadDimQK columns.
template <int BlockM, int HeadDimQK, int PartRows, int PartColumns, bool Ordered = false>
struct attention_backward_workspace {
    static constexpr int block_m = BlockM;
    static constexpr int head_dim_qk = HeadDimQK;
    static constexpr bool ordered = Ordered;
    static constexpr int d_q_parts = BlockM / PartRows * (HeadDimQK / PartColumns);
    using d_q_part = fragment_buffer<float, PartRows, PartColumns>;
    using row_block = shared_vector<float, BlockM>;  // the type in which it is copied to shared memory

    row_block* lse2;
    row_block* delta;
    d_q_part* d_q;
    attention_d_q_turns turns;
    int heads;
    int blocks;  // of a head, of all sequences for varlen

    // The first block of a sequence.
    static IMBREX_FN int first_block(const attention_seqlens& lengths, int batch) {
        return lengths.varlen() ? read_element(lengths.cu_seqlens_q, batch) / BlockM + batch : 0;
    }
    // The index of a block of a head of a batch entry of the tensors (0 for varlen).
    IMBREX_FN int index(int member, int head, int block) const { return (member * heads + head) * blocks + block; }
    IMBREX_FN d_q_part& part_of_d_q(int index, int part) const { return d_q[std::int64_t{index} * d_q_parts + part]; }
    IMBREX_FN int* turn(int index, int part) const { return turns.of(std::int64_t{index} * d_q_parts + part); }
    static constexpr int part_row(int part) { return part * PartRows % BlockM; }
    static constexpr int part_column(int part) { return part / (BlockM / PartRows) * PartColumns; }

    static int blocks_of(int seqlen_q, int varlen_sequences, bool varlen) {
        return varlen ? attention_tile_scheduler::varlen_blocks(seqlen_q, varlen_sequences, BlockM)
                      : ceil_div(seqlen_q, BlockM);
    }
    static std::size_t bytes_of(std::int64_t all_blocks) {
        const std::size_t counters = Ordered ? (1 + static_cast<std::size_t>(all_blocks) * d_q_parts) * sizeof(int) : 0;
        return static_cast<std::size_t>(all_blocks) * (2 * sizeof(row_block) + sizeof(d_q_part) * d_q_parts) + counters;
    }
    static attention_backward_workspace in(void* memory, int members, int heads, int blocks) {
        const std::int64_t all = std::int64_t{members} * heads * blocks;
        row_block* const rows = static_cast<row_block*>(memory);
        d_q_part* const d_q = reinterpret_cast<d_q_part*>(rows + 2 * all);
        const attention_d_q_turns turns{reinterpret_cast<int*>(d_q + all * d_q_parts)};
        return {rows, rows + all, d_q, turns, heads, blocks};
    }
};

}  // namespace imbrex
