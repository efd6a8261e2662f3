// Samples the next token of each sequence of a batch with kernels/sample.hpp, in the memory of a world. Parameters and
// seen tokens go there in one copy from pinned staging, results come back in one copy. A draw depends only on the
// sequence's seed and its number of tokens: the text does not depend on the batch or on preemptions.
//
//     sampler next(world::host, vocabulary, max_num_seqs);
//     const std::vector<sampled_token> tokens = next.sample(work, logits);      // [work.samples(), vocabulary]
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/pinned_staging.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/sample.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/model/sampling_arrays.hpp"
#include "engine/serving/batch.hpp"
#include "engine/serving/sampled_token.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

static_assert(max_logprobs == detail::max_top_logprobs);

class sampler {
  public:
    sampler(world where, int vocabulary, int max_rows)
        : where_(where),
          vocabulary_(vocabulary),
          max_rows_(max_rows),
          out_(where, static_cast<std::size_t>(max_rows) * 4 * words_of_row(max_logprobs), 2) {}

    // Logits in the memory of the world, one row per sampled position.
    std::vector<sampled_token> sample(const batch& work, const float* logits,
                                      const world_stream& stream = world_stream(world::host)) {
        stage(work);
        copy_to_device(stream.get());
        launch(logits, stream.get());
        copy_to_host(stream.get());
        stream.wait();
        return results(work, staged());
    }

    // Where the results of a batch are.
    struct result_layout {
        int rows = 0;
        int num_top_logprobs = 0;
        int host_buffer = 0;
    };

    // The same in steps, so that the launch can be captured in a CUDA graph: stage, copy to the device, launch, copy to the
    // host, read the results after synchronizing the stream. Two batches may be in flight, each with a host buffer, 0 or 1.
    void stage(const batch& work, int host_buffer = 0) {
        rows_ = work.samples();
        host_buffer_ = host_buffer;
        require(rows_ <= max_rows_, "batch: ", rows_, " of its positions are sampled; this sampler was made for ",
                max_rows_);
        if (rows_ == 0) return;
        const sampling_arrays arrays = sampling_arrays_of(work, vocabulary_);
        const std::size_t options = 0, starts = behind(options, std::span(arrays.options));
        const std::size_t mask_rows = behind(starts, std::span(arrays.adjustment_offsets));
        const std::size_t adjustments = behind(mask_rows, std::span(arrays.token_mask_rows));
        staged_bytes_ = behind(adjustments, std::span(arrays.adjustments));
        if (staged_bytes_ > in_.bytes()) {
            outgrown_.push_back(std::exchange(in_, pinned_staging(where_, 2 * staged_bytes_, 2)));
        }
        std::ranges::copy(arrays.options, in_.host_pointer<sample_options>(options, host_buffer_));
        std::ranges::copy(arrays.adjustment_offsets, in_.host_pointer<int>(starts, host_buffer_));
        std::ranges::copy(arrays.token_mask_rows, in_.host_pointer<int>(mask_rows, host_buffer_));
        std::ranges::copy(arrays.adjustments, in_.host_pointer<logit_adjustment>(adjustments, host_buffer_));
        problem_ = {.options = in_.at<sample_options>(options)};
        if (!arrays.adjustments.empty()) {
            problem_.adjustments = in_.at<logit_adjustment>(adjustments);
            problem_.adjustment_offsets = in_.at<int>(starts);
        }
        stage_results(arrays.num_top_logprobs);
        stage_masks(arrays, in_.at<int>(mask_rows));
    }
    void copy_to_device(void* stream) const {
        if (rows_ == 0) return;
        in_.upload(staged_bytes_, stream, host_buffer_);
        masks_.upload(static_cast<std::size_t>(problem_.num_token_masks) * mask_words() * sizeof(std::uint32_t), stream,
                      host_buffer_);
    }
    void launch(const float* logits, void* stream) {
        if (rows_ == 0) return;
        problem_.logits = as_rows(logits, rows_, vocabulary_);
        sample_tokens<float>::launch(where_, problem_, stream);
    }
    void copy_to_host(void* stream) const {
        if (rows_ == 0) return;
        out_.download(static_cast<std::size_t>(rows_) * 4 * words_of_row(problem_.num_top_logprobs), stream,
                      host_buffer_);
    }
    result_layout staged() const { return {rows_, problem_.num_top_logprobs, host_buffer_}; }
    // In the memory of the world: one per sampled position of the batch that was launched last.
    const int* tokens() const { return out_.at<int>(); }
    // Equal for batches that can replay the same CUDA graph: the address of the staged parameters, which is null with
    // penalties, biases or log-probabilities, and the number of token masks, whose address never changes.
    using graph_key_type = std::pair<const void*, int>;
    graph_key_type graph_key() const {
        const bool fixed = problem_.adjustments == nullptr && problem_.num_top_logprobs == 0;
        return {fixed ? in_.at() : nullptr, problem_.num_token_masks};
    }

    std::vector<sampled_token> results(const batch& work, const result_layout& from) const {
        const auto count = static_cast<std::size_t>(from.rows), each = static_cast<std::size_t>(from.num_top_logprobs);
        const int* const numbers = out_.host_pointer<int>(0, from.host_buffer);
        const float* const floats = out_.host_pointer<float>(0, from.host_buffer);
        std::vector<sampled_token> all;
        for (const batch_entry& entry : work.entries) {
            const auto asked = static_cast<std::size_t>(entry.sequence->sampling.logprobs);
            for (int left = entry.num_samples(); left > 0; --left) {
                const std::size_t row = all.size();
                sampled_token& one = all.emplace_back(sampled_token{.token = numbers[row]});
                if (asked == 0) continue;
                one.logprob = floats[count + row];
                for (std::size_t i = 0; i < asked; ++i) {
                    const int token = numbers[2 * count + row * each + i];
                    if (token >= 0) one.top_logprobs.push_back({token, floats[(2 + each) * count + row * each + i]});
                }
            }
        }
        return all;
    }

  private:
    // In 4-byte words: a token and, if requested, its log-probability and the top log-probabilities.
    static std::size_t words_of_row(int num_top_logprobs) {
        return num_top_logprobs == 0 ? 1 : 2 + 2 * static_cast<std::size_t>(num_top_logprobs);
    }

    // The offset of the next array, aligned to 16 bytes.
    template <class T>
    static std::size_t behind(std::size_t begin, std::span<const T> values) {
        return (begin + values.size_bytes() + 15) / 16 * 16;
    }

    std::size_t mask_words() const { return static_cast<std::size_t>(detail::token_mask_words(vocabulary_)); }
    void stage_masks(const sampling_arrays& arrays, const int* rows) {
        if (arrays.token_masks.empty()) return;
        if (masks_.bytes() == 0)
            masks_ =
                pinned_staging(where_, static_cast<std::size_t>(max_rows_) * mask_words() * sizeof(std::uint32_t), 2);
        std::uint32_t* next = masks_.host_pointer<std::uint32_t>(0, host_buffer_);
        for (const token_mask& each : arrays.token_masks) {
            write_token_mask(each, std::span(next, mask_words()));
            next += mask_words();
        }
        problem_.token_masks = masks_.at<std::uint32_t>();
        problem_.token_mask_rows = rows;
        problem_.num_token_masks = static_cast<int>(arrays.token_masks.size());
    }

    void stage_results(int num_top_logprobs) {
        const auto count = static_cast<std::size_t>(rows_) * sizeof(int);
        problem_.tokens = out_.at<int>();
        if (num_top_logprobs == 0) return;
        problem_.logprobs = out_.at<float>(count);
        problem_.num_top_logprobs = num_top_logprobs;
        problem_.top_logprobs_tokens = out_.at<int>(2 * count);
        problem_.top_logprobs = out_.at<float>((2 + static_cast<std::size_t>(num_top_logprobs)) * count);
    }

    world where_;
    int vocabulary_, max_rows_;
    pinned_staging in_, out_;
    std::vector<pinned_staging> outgrown_;  // smaller ones, which a batch in flight may still read
    pinned_staging masks_;                  // as many as rows, from the first batch with one on
    std::size_t staged_bytes_ = 0;          // of the last batch, as are the rows and the host buffer
    int rows_ = 0, host_buffer_ = 0;
    sample_problem<float> problem_;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
