// A block of queries of the backward pass, as preprocess and postprocess visit them: its place in the workspace, and its
// rows in the tensors.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>

namespace imbrex {

struct attention_query_block {
    int index;
    int member, head, row;
    int valid_rows;  // not positive if the block has no query
};

template <class Workspace>
IMBREX_KERNEL attention_query_block attention_query_block_at(const Workspace& workspace,
                                                             const attention_seqlens& lengths, int batches,
                                                             int number) {
    constexpr int block_m = Workspace::block_m;
    const attention_tile_scheduler order{batches, workspace.heads, workspace.blocks, 0};
    const auto at = order.at(number, lengths, block_m);
    const int member = lengths.member(at.batch), first_row = at.block * block_m;
    return {workspace.index(member, at.head, Workspace::first_block(lengths, at.batch) + at.block), member, at.head,
            lengths.first_query(at.batch) + first_row, lengths.of(at.batch, at.head).seqlen_q - first_row};
}

}  // namespace imbrex
