// The workspace of the backward pass, in blocks of block_m queries. Each sequence begins at a block of its own, so a
// block never holds rows of two sequences, and its rows can be padded:
//
//   lse2    the LSE of each query; +infinity where there is no query or it sees no key, so that its probabilities are 0
//   delta   rowsum(dO * O), 0 where there is no query
//   d_q     dQ in fp32 before the multiplication by the scale; key blocks add to it
//
// The preprocess kernel writes lse2 and delta and sets d_q to zero. The postprocess kernel converts d_q.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

template <int BlockM, int HeadDimQK>
struct attention_backward_workspace {
    static constexpr int block_m = BlockM;
    using row_block = shared_vector<float, BlockM>;  // the type in which it is copied to shared memory

    row_block* lse2;
    row_block* delta;
    float* d_q;
    int heads;
    int blocks;  // of a head, of all sequences for varlen

    // The first block of a sequence.
    static IMBREX_FN int first_block(const attention_seqlens& lengths, int batch) {
        return lengths.varlen() ? lengths.cu_seqlens_q[batch] / BlockM + batch : 0;
    }
    // The index of a block of a head of a batch entry of the tensors (0 for varlen).
    IMBREX_FN int index(int member, int head, int block) const { return (member * heads + head) * blocks + block; }
    // dQ of a block.
    IMBREX_FN global_tile<float> d_q_block(int index) const {
        return {d_q + std::int64_t{index} * BlockM * HeadDimQK, HeadDimQK, BlockM, HeadDimQK};
    }

    static int blocks_of(int seqlen_q, int varlen_sequences, bool varlen) {
        return varlen ? attention_tile_scheduler::varlen_blocks(seqlen_q, varlen_sequences, BlockM)
                      : ceil_div(seqlen_q, BlockM);
    }
    static std::size_t bytes_of(std::int64_t all_blocks) {
        return static_cast<std::size_t>(all_blocks) * (2 * sizeof(row_block) + sizeof(float) * BlockM * HeadDimQK);
    }
    static attention_backward_workspace in(void* memory, int members, int heads, int blocks) {
        const std::int64_t all = std::int64_t{members} * heads * blocks;
        row_block* const rows = static_cast<row_block*>(memory);
        return {rows, rows + all, reinterpret_cast<float*>(rows + 2 * all), heads, blocks};
    }
};

}  // namespace imbrex
