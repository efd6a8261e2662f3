#include "engine/serving/statistics.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace imbrex::engine {

namespace {

constexpr std::size_t latest_ttfts = 10'000;

double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

cache_level_summary level_of(const std::optional<level_counts>& counts, std::int64_t tokens, std::int64_t of) {
    if (!counts) return {};
    return {.exists = true,
            .tokens = tokens,
            .hit_rate = ratio(static_cast<double>(tokens), static_cast<double>(of)),
            .counts = *counts};
}

}  // namespace

double statistics::steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void statistics::arrived(sequence_id id) {
    ++sums_.arrived;
    without_token_.emplace(id, clock_());
}

void statistics::token(sequence_id id) {
    ++sums_.generated_tokens;
    const auto first = without_token_.find(id);
    if (first == without_token_.end()) return;
    const double ttft = clock_() - first->second;
    sums_.ttft_mean += ttft;
    sums_.ttft_max = std::max(sums_.ttft_max, ttft);
    if (ttft_count_ < latest_ttfts) ttfts_.emplace_back();
    ttfts_[ttft_count_++ % latest_ttfts] = ttft;
    without_token_.erase(first);
}

void statistics::ended(sequence_id id, finish_reason reason) {
    ++(reason == finish_reason::cancelled ? sums_.cancelled : sums_.finished);
    without_token_.erase(id);
}

void statistics::step_begins() {
    step_began_ = clock_();
}

void statistics::step_ends(const step_statistics& figures) {
    latest_ = figures;
    ++sums_.steps;
    sums_.busy_seconds += clock_() - step_began_;
    sums_.computed_tokens += figures.tokens;
    sums_.batch_mean += figures.sequences;
    sums_.tokens_per_step += figures.sampling;
    sums_.batch_max = std::max(sums_.batch_max, figures.sequences);
    const double held = ratio(static_cast<double>(figures.used_bytes), static_cast<double>(figures.cache_bytes));
    sums_.kv_cache_bytes_max = std::max(sums_.kv_cache_bytes_max, figures.used_bytes);
    sums_.kv_cache_usage_mean += held;
    sums_.kv_cache_usage_max = std::max(sums_.kv_cache_usage_max, held);
}

statistics_summary statistics::summary() const {
    statistics_summary all = sums_;
    const auto steps = static_cast<double>(all.steps);
    all.batch_mean = ratio(all.batch_mean, steps);
    all.kv_cache_usage_mean = ratio(all.kv_cache_usage_mean, steps);
    all.generated_per_second = ratio(static_cast<double>(all.generated_tokens), all.busy_seconds);
    all.computed_per_second = ratio(static_cast<double>(all.computed_tokens), all.busy_seconds);
    all.initial_tokens = latest_.prompt_tokens;
    all.cached_tokens = latest_.cached_tokens;
    all.prefix_cache_hit_rate =
        ratio(static_cast<double>(latest_.cached_tokens), static_cast<double>(latest_.prompt_tokens));
    all.preemptions = latest_.preemptions;
    all.drafted_tokens = latest_.drafted_tokens;
    all.accepted_tokens = latest_.accepted_tokens;
    all.acceptance_rate = ratio(static_cast<double>(all.accepted_tokens), static_cast<double>(all.drafted_tokens));
    all.tokens_per_step = ratio(static_cast<double>(all.generated_tokens), sums_.tokens_per_step);
    all.host_cache = level_of(latest_.host_cache, latest_.host_tokens, latest_.prompt_tokens);
    all.disk_cache = level_of(latest_.disk_cache, latest_.disk_tokens, latest_.prompt_tokens);
    all.disk_waits = latest_.disk_waits;
    all.disk_wait_seconds = latest_.disk_wait_seconds;
    if (ttfts_.empty()) return all;
    std::vector<double> sorted = ttfts_;
    std::ranges::sort(sorted);
    all.ttft_mean /= static_cast<double>(ttft_count_);
    all.ttft_median = sorted[(sorted.size() - 1) / 2];
    return all;
}

std::string statistics_summary::json() const {
    std::string all;
    const auto add = [&](const char* name, double value) {
        char number[64];
        std::snprintf(number, sizeof number, "%s\"%s\":%.9g", all.empty() ? "{" : ",", name, value);
        all += number;
    };
    add("arrived", static_cast<double>(arrived));
    add("finished", static_cast<double>(finished));
    add("cancelled", static_cast<double>(cancelled));
    add("steps", static_cast<double>(steps));
    add("computed_tokens", static_cast<double>(computed_tokens));
    add("generated_tokens", static_cast<double>(generated_tokens));
    add("steps_ahead", static_cast<double>(steps_ahead));
    if (device_idle_seconds) add("device_idle_seconds", *device_idle_seconds);
    add("busy_seconds", busy_seconds);
    add("ttft_mean", ttft_mean);
    add("ttft_median", ttft_median);
    add("ttft_max", ttft_max);
    add("generated_per_second", generated_per_second);
    add("computed_per_second", computed_per_second);
    add("batch_mean", batch_mean);
    add("batch_max", batch_max);
    add("kv_cache_usage_mean", kv_cache_usage_mean);
    add("kv_cache_usage_max", kv_cache_usage_max);
    add("kv_cache_bytes_max", static_cast<double>(kv_cache_bytes_max));
    add("initial_tokens", static_cast<double>(initial_tokens));
    add("cached_tokens", static_cast<double>(cached_tokens));
    add("prefix_cache_hit_rate", prefix_cache_hit_rate);
    add("drafted_tokens", static_cast<double>(drafted_tokens));
    add("accepted_tokens", static_cast<double>(accepted_tokens));
    add("acceptance_rate", acceptance_rate);
    add("tokens_per_step", tokens_per_step);
    add("preemptions", static_cast<double>(preemptions));
    const auto add_level = [&](const std::string& name, const cache_level_summary& level) {
        if (!level.exists) return;
        add((name + "_tokens").c_str(), static_cast<double>(level.tokens));
        add((name + "_hit_rate").c_str(), level.hit_rate);
        const std::pair<const char*, std::int64_t> counts[]{
            {"_capacity_bytes", level.counts.capacity_bytes}, {"_held_bytes", level.counts.held_bytes},
            {"_saved_blocks", level.counts.saved_blocks},     {"_saved_bytes", level.counts.saved_bytes},
            {"_loaded_blocks", level.counts.loaded_blocks},   {"_loaded_bytes", level.counts.loaded_bytes},
            {"_evicted_blocks", level.counts.evicted_blocks}, {"_lost_blocks", level.counts.lost_blocks},
            {"_damaged_blocks", level.counts.damaged_blocks}};
        for (const auto& [end, value] : counts) add((name + end).c_str(), static_cast<double>(value));
    };
    add_level("host_cache", host_cache);
    add_level("disk_cache", disk_cache);
    if (disk_cache.exists) {
        add("disk_cache_waits", static_cast<double>(disk_waits));
        add("disk_cache_wait_seconds", disk_wait_seconds);
    }
    for (const auto& [name, joules] : {std::pair("gpu_joules", gpu_joules), std::pair("cpu_joules", cpu_joules)}) {
        if (joules) add(name, *joules);
    }
    return all + "}";
}

std::string statistics_summary::text() const {
    std::string all;
    const auto line = [&](const char* format, auto... values) {
        char text[256];
        std::snprintf(text, sizeof text, format, values...);
        all += text;
    };
    const auto count = [](std::int64_t value) { return static_cast<long long>(value); };
    line("sequences       %lld arrived, %lld finished, %lld cancelled\n", count(arrived), count(finished),
         count(cancelled));
    line("first token     %.1f ms on average, %.1f median, %.1f at worst\n", ttft_mean * 1e3, ttft_median * 1e3,
         ttft_max * 1e3);
    line("generated       %lld tokens, %.1f a second\n", count(generated_tokens), generated_per_second);
    line("computed        %lld tokens, %.1f a second, in %.2f s\n", count(computed_tokens), computed_per_second,
         busy_seconds);
    line("batch           %.1f sequences on average, %d at most, %lld steps\n", batch_mean, batch_max, count(steps));
    if (device_idle_seconds) {
        line("GPU             idle for %.1f us between steps on average, %.1f %% of the time; %.1f %% of steps ahead\n",
             ratio(*device_idle_seconds, static_cast<double>(steps)) * 1e6,
             ratio(*device_idle_seconds, busy_seconds) * 100,
             ratio(static_cast<double>(steps_ahead), static_cast<double>(steps)) * 100);
    }
    line("cache           %.1f %% held on average, %.1f %% at most (%.1f MB); %.1f %% of tokens found\n",
         kv_cache_usage_mean * 100, kv_cache_usage_max * 100, static_cast<double>(kv_cache_bytes_max) / 1e6,
         prefix_cache_hit_rate * 100);
    const auto level_line = [&](const char* name, const cache_level_summary& level) {
        if (!level.exists) return;
        const auto megabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
        line("%s %.1f of %.1f MB held, %.1f MB saved, %.1f MB loaded; %.1f %% of tokens found\n", name,
             megabytes(level.counts.held_bytes), megabytes(level.counts.capacity_bytes),
             megabytes(level.counts.saved_bytes), megabytes(level.counts.loaded_bytes), level.hit_rate * 100);
    };
    level_line("host cache     ", host_cache);
    level_line("disk cache     ", disk_cache);
    if (disk_waits > 0)
        line("disk waits      %lld sequences, %.1f ms each\n", count(disk_waits),
             disk_wait_seconds * 1e3 / static_cast<double>(disk_waits));
    line("preemptions     %lld\n", count(preemptions));
    if (drafted_tokens > 0) {
        line("drafts          %lld tokens, %lld accepted (%.1f %%); %.2f tokens a step and sequence\n",
             count(drafted_tokens), count(accepted_tokens), acceptance_rate * 100, tokens_per_step);
    }
    const auto energy = [&](const char* device, std::optional<double> joules) {
        if (!joules) return;
        line("energy          %.1f J by the %s, %.3f J per generated token, %.0f W\n", *joules, device,
             ratio(*joules, static_cast<double>(generated_tokens)), ratio(*joules, busy_seconds));
    };
    energy("GPU", gpu_joules);
    energy("CPU", cpu_joules);
    return all;
}

}  // namespace imbrex::engine
