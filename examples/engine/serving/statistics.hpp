// What a server wants to know of itself: how long requests wait for their first token, how many tokens a second there are, how full
// batches and cache are, how often the cache helps, how often sequences are preempted. The clock is given, so that tests can turn it.
#pragma once

#include "engine/serving/sequence.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace imbrex::engine {

struct statistics_summary {
    std::int64_t arrived = 0, finished = 0, cancelled = 0;  // sequences
    std::int64_t steps = 0;
    std::int64_t computed_tokens = 0;  // prompts' and generated ones
    std::int64_t generated_tokens = 0;
    double busy_seconds = 0;                                   // in steps
    double ttft_mean = 0, ttft_median = 0, ttft_max = 0;       // seconds from arrival
    double generated_per_second = 0, computed_per_second = 0;  // of the busy seconds
    double batch_mean = 0;                                     // sequences in a step
    int batch_max = 0;
    double kv_cache_usage_mean = 0, kv_cache_usage_max = 0;  // the part of the blocks that is held, from 0 to 1
    double prefix_cache_hit_rate = 0;  // the part of the tokens to begin with that was found in the cache
    std::int64_t preemptions = 0;

    std::string text() const;  // some lines to print
};

struct step_statistics {
    int sequences = 0;
    int tokens = 0;
    int used_blocks = 0, blocks = 1;
    std::int64_t prompt_tokens = 0, cached_tokens = 0, preemptions = 0;  // since the beginning
};

class statistics {
  public:
    using seconds_clock = std::function<double()>;

    explicit statistics(seconds_clock clock = steady_seconds) : clock_(std::move(clock)) {}

    void arrived(sequence_id id);
    void token(sequence_id id);
    void ended(sequence_id id, finish_reason reason);
    void step_begins();
    void step_ends(const step_statistics& figures);

    statistics_summary summary() const;

    static double steady_seconds();

  private:
    seconds_clock clock_;
    double step_began_ = 0;
    statistics_summary sums_;  // the counts; what is a mean there is a sum here
    step_statistics latest_;
    std::unordered_map<sequence_id, double> without_token_;  // when they arrived
    std::vector<double> ttfts_;
};

}  // namespace imbrex::engine
