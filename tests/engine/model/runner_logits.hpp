// Handwritten batches and their logits, for comparisons of a runner with the float64 reference.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "engine/model/kv_cache_layout.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/model/runner.hpp"
#include "engine/serving/batch.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

// Tolerances of logits by distance(), with the KV cache in f32. With int8 dot products, an input on a rounding boundary may round the other way;
// later values then differ by up to the cost of quantising inputs.
inline constexpr double fp32_rounding = 1e-5, input_rounding = 0.1;

// Of the models in the tests.
inline constexpr std::size_t most_cache_groups = 3;

inline std::unique_ptr<runner> runner_of(const model_files& files, weight_format weights = weight_format::f32,
                                         kv_cache_format kv_cache = kv_cache_format::f32) {
    return make_runner(files, {.weights = weights,
                               .kv_cache = kv_cache,
                               .num_kv_blocks = 24,
                               .max_num_batched_tokens = 128,
                               .max_num_seqs = 8,
                               .host_slots = std::vector<int>(most_cache_groups, 4)});
}

// A greedy sequence with these tokens and blocks, the same in all cache groups.
inline std::shared_ptr<sequence> sequence_in(std::vector<int> tokens, const std::vector<int>& blocks) {
    auto made = std::make_shared<sequence>();
    made->num_prompt_tokens = static_cast<int>(tokens.size());
    made->tokens = std::move(tokens);
    made->block_table.groups.assign(most_cache_groups, blocks);
    made->sampling.temperature = 0;
    return made;
}

inline int cache_groups_of(const model_files& files) {
    return kv_cache_layout_of(files.config, files.config.context).groups();
}

inline std::vector<block_copy> copies_in_all_groups(const model_files& files, int from, int to) {
    std::vector<block_copy> copies;
    for (int group = 0; group < cache_groups_of(files); ++group)
        copies.push_back({.from = from, .to = to, .group = group});
    return copies;
}

inline std::vector<int> blocks_from(int first, int count) {
    std::vector<int> blocks(static_cast<std::size_t>(count));
    std::iota(blocks.begin(), blocks.end(), first);
    return blocks;
}

// Logits of the entries that sample; checks that the sampled tokens are the best.
inline rows run_logits(runner& with, const batch& work, int vocabulary) {
    const std::vector<int> chosen = with.run(work);
    const std::vector<float> all = with.last_logits();
    REQUIRE(static_cast<int>(chosen.size()) == work.samples());
    REQUIRE(all.size() == chosen.size() * static_cast<std::size_t>(vocabulary));
    rows result;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i) * vocabulary;
        result.emplace_back(begin, begin + vocabulary);
        CHECK(chosen[i] == best_token(result.back()));
    }
    return result;
}

// Logits at the last position of each chunk.
inline rows logits_of_chunks(runner& with, const std::shared_ptr<sequence>& of, std::span<const int> chunks,
                             int vocabulary) {
    rows result;
    int first = 0;
    for (const int count : chunks) {
        batch work;
        work.entries.push_back({of, first, count, true});
        result.push_back(run_logits(with, work, vocabulary).front());
        first += count;
    }
    return result;
}

// Reference logits at the ends of chunks.
inline rows at_ends(const rows& all, std::span<const int> chunks) {
    rows result;
    std::size_t last = 0;
    for (const int count : chunks) result.push_back(all[(last += static_cast<std::size_t>(count)) - 1]);
    return result;
}

inline std::vector<double> distances(const rows& logits, const rows& expected) {
    REQUIRE(logits.size() == expected.size());
    std::vector<double> all;
    for (std::size_t i = 0; i < logits.size(); ++i) all.push_back(distance(logits[i], expected[i]));
    return all;
}

inline double largest_distance(const rows& logits, const rows& expected) {
    const std::vector<double> all = distances(logits, expected);
    return all.empty() ? 0 : std::ranges::max(all);
}

}  // namespace imbrex::engine::test
