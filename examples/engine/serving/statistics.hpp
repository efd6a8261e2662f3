// Serving statistics: time to first token (TTFT), throughput, batch sizes, KV cache usage, prefix cache hit rate,
// preemptions. The clock is an argument, so that tests can control it.
#pragma once

#include "engine/cache/level_counts.hpp"
#include "engine/serving/sequence.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace imbrex::engine {

// A level of the prefix cache below the KV cache.
struct cache_level_summary {
    bool exists = false;
    std::int64_t tokens = 0;  // initial tokens found there, and not on a higher level
    double hit_rate = 0;      // of all initial tokens
    level_counts counts{};
};

struct statistics_summary {
    std::int64_t arrived = 0, finished = 0, cancelled = 0;  // sequences
    std::int64_t steps = 0;
    std::int64_t steps_ahead = 0;                 // of these, launched while the one before ran
    std::optional<double> device_idle_seconds{};  // between steps, while there was work; absent: not a GPU
    std::int64_t computed_tokens = 0;             // prompt and generated tokens
    std::int64_t generated_tokens = 0;
    double busy_seconds = 0;                                   // in steps
    double ttft_mean = 0, ttft_median = 0, ttft_max = 0;       // seconds since arrival; the median of the latest 10,000
    double generated_per_second = 0, computed_per_second = 0;  // per busy second
    double batch_mean = 0;                                     // sequences per step
    int batch_max = 0;
    double kv_cache_usage_mean = 0, kv_cache_usage_max = 0;  // fraction of bytes held, 0 to 1
    std::int64_t kv_cache_bytes_max = 0;                     // held
    std::int64_t initial_tokens = 0;                         // of sequences when they started or resumed
    std::int64_t cached_tokens = 0;                          // of these, found in the prefix cache
    double prefix_cache_hit_rate = 0;                // fraction of initial tokens found in the cache, on any level
    cache_level_summary host_cache{}, disk_cache{};  // below the KV cache
    std::int64_t disk_waits = 0;                     // sequences that have waited for files
    double disk_wait_seconds = 0;                    // of all of them
    std::int64_t preemptions = 0;
    std::int64_t drafted_tokens = 0, accepted_tokens = 0;  // speculative decoding
    double acceptance_rate = 0;                            // accepted / drafted
    double tokens_per_step = 0;                            // of a sequence that samples
    std::optional<double> gpu_joules{}, cpu_joules{};      // of the whole devices, since the start; absent: no counter

    std::string text() const;  // several lines
    std::string json() const;  // one object, on one line
};

struct step_statistics {
    int sequences = 0;
    int sampling = 0;  // sequences that sample
    int tokens = 0;
    std::int64_t used_bytes = 0, cache_bytes = 1;                        // of the KV cache
    std::int64_t prompt_tokens = 0, cached_tokens = 0, preemptions = 0;  // since the start
    std::int64_t drafted_tokens = 0, accepted_tokens = 0;                // the same
    std::int64_t host_tokens = 0, disk_tokens = 0;                       // of the cached ones
    std::optional<level_counts> host_cache{}, disk_cache{};
    std::int64_t disk_waits = 0;   // since the start
    double disk_wait_seconds = 0;  // the same
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
    void launched_ahead() { ++sums_.steps_ahead; }
    void device_idled(double seconds) { sums_.device_idle_seconds = sums_.device_idle_seconds.value_or(0) + seconds; }

    statistics_summary summary() const;

    static double steady_seconds();

  private:
    seconds_clock clock_;
    double step_began_ = 0;
    statistics_summary sums_;  // the counts; means are kept as sums
    step_statistics latest_;
    std::unordered_map<sequence_id, double> without_token_;  // arrival times
    std::vector<double> ttfts_;                              // the latest, for the median; a server runs for months
    std::size_t ttft_count_ = 0;
};

}  // namespace imbrex::engine
