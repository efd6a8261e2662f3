// The next token of each sequence of a batch, by the library's kernel (kernels/sample.hpp), in the memory of a world. What a sequence
// asks for, and which tokens it has seen, goes there in one copy, and what was sampled comes back in one. The draw depends on the
// sequence's seed and its number of tokens alone: a text is the same whatever else is in the batch, and after a preemption.
//
//     sampler next(world::host, vocabulary, most_sequences);
//     const std::vector<sampled_token> tokens = next.sample(work, logits);      // [work.samples(), vocabulary]
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_mirror.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/sample.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "batch.hpp"
#include "sampled_token.hpp"
#include "sampling_arrays.hpp"

namespace imbrex::engine {

static_assert(most_logprobs == detail::most_likeliest);

class sampler {
  public:
    sampler(world where, int vocabulary, int most_rows)
        : where_(where),
          vocabulary_(vocabulary),
          most_rows_(most_rows),
          out_(where, static_cast<std::size_t>(most_rows) * 4 * words_of_row(most_logprobs)) {}

    // Logits in the memory of the world, a row for each entry that samples.
    std::vector<sampled_token> sample(const batch& work, const float* logits,
                                      const world_stream& stream = world_stream(world::host)) {
        place(work);
        send(stream.get());
        launch(logits, stream.get());
        stream.wait();
        return results(work);
    }

    // The same in parts, so that the launches can be recorded: what the sequences ask for is placed, sent and sampled by, and what was found is
    // there when the stream has come so far. Only then may the next batch be placed.
    void place(const batch& work) {
        rows_ = work.samples();
        require(rows_ <= most_rows_, "batch: ", rows_, " of its entries sample; this sampler was made for ",
                most_rows_);
        if (rows_ == 0) return;
        const sampling_arrays arrays = sampling_arrays_of(work, vocabulary_);
        const std::size_t options = 0, starts = behind(options, std::span(arrays.options));
        const std::size_t changes = behind(starts, std::span(arrays.change_starts));
        end_ = behind(changes, std::span(arrays.changes));
        if (end_ > in_.bytes()) in_ = world_mirror(where_, 2 * end_);
        std::ranges::copy(arrays.options, in_.mirror<sample_options>(options));
        std::ranges::copy(arrays.change_starts, in_.mirror<int>(starts));
        std::ranges::copy(arrays.changes, in_.mirror<token_change>(changes));
        problem_ = {.options = in_.at<sample_options>(options)};
        if (!arrays.changes.empty()) {
            problem_.changes = in_.at<token_change>(changes);
            problem_.change_starts = in_.at<int>(starts);
        }
        place_results(arrays.likeliest);
    }
    void send(void* stream) const {
        if (rows_ > 0) in_.send(end_, stream);
    }
    void launch(const float* logits, void* stream) {
        if (rows_ == 0) return;
        problem_.logits = as_rows(logits, rows_, vocabulary_);
        sample_tokens<float>::launch(where_, problem_, stream);
        out_.fetch(static_cast<std::size_t>(rows_) * 4 * words_of_row(problem_.likeliest), stream);
    }
    // What batches of as many rows have in common that are sent and sampled by the same launches: the place of what they ask for. Nothing, if
    // they have penalties, biases or log-probabilities.
    const void* launches() const { return problem_.changes == nullptr && problem_.likeliest == 0 ? in_.at() : nullptr; }

    std::vector<sampled_token> results(const batch& work) const {
        const auto count = static_cast<std::size_t>(rows_), each = static_cast<std::size_t>(problem_.likeliest);
        const int* const numbers = out_.mirror<int>();
        const float* const floats = out_.mirror<float>();
        std::vector<sampled_token> all;
        for (const batch_entry& entry : work.entries) {
            if (!entry.samples) continue;
            const std::size_t row = all.size();
            sampled_token& one = all.emplace_back(sampled_token{.token = numbers[row]});
            const auto asked = static_cast<std::size_t>(entry.sequence->sampling.logprobs);
            if (asked == 0) continue;
            one.logprob = floats[count + row];
            for (std::size_t i = 0; i < asked; ++i) {
                const int token = numbers[2 * count + row * each + i];
                if (token >= 0) one.likeliest.push_back({token, floats[(2 + each) * count + row * each + i]});
            }
        }
        return all;
    }

  private:
    // Of four bytes: a token, and where they are asked for its log-probability and the likeliest.
    static std::size_t words_of_row(int likeliest) {
        return likeliest == 0 ? 1 : 2 + 2 * static_cast<std::size_t>(likeliest);
    }

    // Where the next array begins: at a multiple of 16 bytes.
    template <class T>
    static std::size_t behind(std::size_t begin, std::span<const T> values) {
        return (begin + values.size_bytes() + 15) / 16 * 16;
    }

    void place_results(int likeliest) {
        const auto count = static_cast<std::size_t>(rows_) * sizeof(int);
        problem_.tokens = out_.at<int>();
        if (likeliest == 0) return;
        problem_.logprobs = out_.at<float>(count);
        problem_.likeliest = likeliest;
        problem_.likeliest_tokens = out_.at<int>(2 * count);
        problem_.likeliest_logprobs = out_.at<float>((2 + static_cast<std::size_t>(likeliest)) * count);
    }

    world where_;
    int vocabulary_, most_rows_;
    world_mirror in_, out_;
    std::size_t end_ = 0;  // of what is placed
    int rows_ = 0;         // of the batch that was sent last
    sample_problem<float> problem_;
};

}  // namespace imbrex::engine
