// The inputs of one step in the memory of a world: ids, cu_seqlens, lengths, block tables. The arrays are packed into
// one buffer of pinned staging and copied at once. Two steps may be in flight: a host buffer is for every other one.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/pinned_staging.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/serving/batch.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

// Attention of up to this many tokens of each sequence is paged decode on a GPU. With 4 query heads per KV head they are
// the 64 rows of its largest tile.
inline constexpr int max_decode_tokens = 16;

// packed_batch, with pointers into the memory of the world.
struct step_inputs {
    int tokens = 0;
    int sequences = 0;
    int samples = 0;
    int max_blocks_per_seq = 0;
    bool has_few_tokens = false;  // at most max_decode_tokens of each sequence
    bool is_decode = false;       // all tokens are generated tokens
    bool pools = false;           // hidden states are pooled (hidden_state_pooling.hpp)
    int* input_ids = nullptr;
    const int* input_rows = nullptr;  // of packed_batch; null if all ids are known
    const int* cu_seqlens_q = nullptr;
    const int* seqused_k = nullptr;
    const int* block_tables = nullptr;  // [cache group, sequence, max_blocks_per_seq]
    const int* logits_indices = nullptr;

    const int* block_table_of(int group) const {
        return block_tables + std::int64_t{group} * sequences * max_blocks_per_seq;
    }
};

class step_staging {
  public:
    step_staging(world where, int max_num_batched_tokens, int max_num_seqs, int max_blocks_per_seq, int groups = 1)
        : max_num_batched_tokens_(max_num_batched_tokens),
          max_num_seqs_(max_num_seqs),
          max_blocks_per_seq_(padded_blocks_per_seq(max_blocks_per_seq)),
          memory_(where,
                  sizeof(int) *
                      (3 * static_cast<std::size_t>(max_num_batched_tokens) + 1 +
                       static_cast<std::size_t>(max_num_seqs) *
                           (2 + static_cast<std::size_t>(groups) * static_cast<std::size_t>(max_blocks_per_seq_))),
                  2) {}

    // In host buffer 0 or 1.
    step_inputs stage(const packed_batch& packed, int host_buffer = 0) {
        const auto size = [](const std::vector<int>& array) { return static_cast<int>(array.size()); };
        require(size(packed.input_ids) <= max_num_batched_tokens_, "batch: it has ", packed.input_ids.size(),
                " tokens; this runner was made for ", max_num_batched_tokens_);
        require(size(packed.seqused_k) <= max_num_seqs_, "batch: it has ", packed.seqused_k.size(),
                " sequences; this runner was made for ", max_num_seqs_);
        require(packed.max_blocks_per_seq <= max_blocks_per_seq_, "batch: a sequence has ", packed.max_blocks_per_seq,
                " blocks; this runner was made for ", max_blocks_per_seq_);
        int max_seqlen_q = 0;
        for (std::size_t i = 0; i < packed.seqused_k.size(); ++i)
            max_seqlen_q = std::max(max_seqlen_q, packed.cu_seqlens_q[i + 1] - packed.cu_seqlens_q[i]);
        staged_bytes_ = 0;
        host_buffer_ = host_buffer;
        step_inputs now{.tokens = size(packed.input_ids),
                        .sequences = size(packed.seqused_k),
                        .samples = size(packed.logits_indices),
                        .max_blocks_per_seq = packed.max_blocks_per_seq,
                        .has_few_tokens = max_seqlen_q <= max_decode_tokens,
                        .input_ids = stage_array(packed.input_ids),
                        .cu_seqlens_q = stage_array(packed.cu_seqlens_q),
                        .seqused_k = stage_array(packed.seqused_k),
                        .block_tables = stage_array(packed.block_tables),
                        .logits_indices = stage_array(packed.logits_indices)};
        if (!packed.input_rows.empty()) now.input_rows = stage_array(packed.input_rows);
        return now;
    }
    void copy_to_device(void* stream) const { memory_.upload(staged_bytes_, stream, host_buffer_); }

  private:
    int* stage_array(const std::vector<int>& array) {
        const std::size_t first = std::exchange(staged_bytes_, staged_bytes_ + array.size() * sizeof(int));
        std::ranges::copy(array, memory_.host_pointer<int>(first, host_buffer_));
        return memory_.at<int>(first);
    }

    int max_num_batched_tokens_;
    int max_num_seqs_;
    int max_blocks_per_seq_;
    pinned_staging memory_;
    std::size_t staged_bytes_ = 0;  // of the last step, as is the host buffer
    int host_buffer_ = 0;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
