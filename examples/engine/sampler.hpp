// The next token of each sequence of a batch, by the library's kernel (kernels/sample.hpp), in the memory of a world. What a sequence
// asks for, and which tokens it has seen, goes there in one copy, and what was sampled comes back in one. The draw depends on the
// sequence's seed and its number of tokens alone: a text is the same whatever else is in the batch, and after a preemption.
//
//     sampler next(world::host, vocabulary, most_sequences);
//     const std::vector<sampled_token> tokens = next.sample(work, logits);      // [work.samples(), vocabulary]
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/kernels/sample.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "batch.hpp"
#include "sampled_token.hpp"

namespace imbrex::engine {

// What the kernel reads besides logits, for the entries that sample, in their order.
struct sampling_arrays {
    std::vector<sample_options> options;
    std::vector<int> change_starts{0};
    std::vector<token_change> changes;  // tokens with a bias, and where there are penalties those of the sequence
    int likeliest = 0;                  // the most that any of them asks for
};

sampling_arrays sampling_arrays_of(const batch& work, int vocabulary);

static_assert(most_logprobs == detail::most_likeliest);

class sampler {
  public:
    sampler(world where, int vocabulary, int most_rows)
        : where_(where),
          vocabulary_(vocabulary),
          most_rows_(most_rows),
          out_(where, static_cast<std::size_t>(most_rows) * 4 * words_of_row(most_logprobs)) {}

    // Logits in the memory of the world, a row for each entry that samples.
    std::vector<sampled_token> sample(const batch& work, const float* logits, void* stream = nullptr) {
        const int rows = work.samples();
        require(rows <= most_rows_, "batch: ", rows, " of its entries sample; this sampler was made for ", most_rows_);
        if (rows == 0) return {};
        const sampling_arrays arrays = sampling_arrays_of(work, vocabulary_);
        sample_problem<float> problem = send(arrays, stream);
        problem.logits = as_rows(logits, rows, vocabulary_);
        place_results(problem, rows, arrays.likeliest);
        sample_tokens<float>::launch(where_, problem, stream);
        return results(work, rows, arrays.likeliest, stream);
    }

  private:
    // Of four bytes: a token, and where they are asked for its log-probability and the likeliest.
    static std::size_t words_of_row(int likeliest) {
        return likeliest == 0 ? 1 : 2 + 2 * static_cast<std::size_t>(likeliest);
    }

    sample_problem<float> send(const sampling_arrays& arrays, void* stream) {
        all_.clear();
        const std::size_t options = place<sample_options>(arrays.options);
        const std::size_t starts = place<int>(arrays.change_starts);
        const std::size_t changes = place<token_change>(arrays.changes);
        if (all_.size() > in_.bytes()) in_ = world_memory(where_, 2 * all_.size());
        in_.write(0, all_.data(), all_.size(), stream);
        sample_problem<float> problem{.options = in_.at<sample_options>(options)};
        if (arrays.changes.empty()) return problem;
        problem.changes = in_.at<token_change>(changes);
        problem.change_starts = in_.at<int>(starts);
        return problem;
    }
    // Behind what is there, at a multiple of 16 bytes.
    template <class T>
    std::size_t place(std::span<const T> values) {
        const std::size_t at = (all_.size() + 15) / 16 * 16;
        all_.resize(at);
        const auto bytes = std::as_bytes(values);
        all_.insert(all_.end(), bytes.begin(), bytes.end());
        return at;
    }

    void place_results(sample_problem<float>& problem, int rows, int likeliest) const {
        const auto count = static_cast<std::size_t>(rows) * sizeof(int);
        problem.tokens = out_.at<int>();
        if (likeliest == 0) return;
        problem.logprobs = out_.at<float>(count);
        problem.likeliest = likeliest;
        problem.likeliest_tokens = out_.at<int>(2 * count);
        problem.likeliest_logprobs = out_.at<float>((2 + static_cast<std::size_t>(likeliest)) * count);
    }

    std::vector<sampled_token> results(const batch& work, int rows, int likeliest, void* stream) {
        const auto count = static_cast<std::size_t>(rows), each = static_cast<std::size_t>(likeliest);
        std::vector<std::byte> bytes(count * 4 * words_of_row(likeliest));
        out_.read(0, bytes.data(), bytes.size(), stream);
        const auto* const numbers = reinterpret_cast<const int*>(bytes.data());
        const auto* const floats = reinterpret_cast<const float*>(bytes.data());
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

    world where_;
    int vocabulary_, most_rows_;
    world_memory in_, out_;
    std::vector<std::byte> all_;
};

}  // namespace imbrex::engine
