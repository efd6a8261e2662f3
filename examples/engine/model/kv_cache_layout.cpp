#include "engine/model/kv_cache_layout.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <limits>

namespace imbrex::engine {

namespace {

int context_of(const model_config& config, const runner_options& options) {
    return options.context == 0 ? config.context : options.context;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

// Blocks of a group with a window for all running sequences and the prompts of a step, twice.
std::int64_t blocks_of_window(int window, const runner_options& options) {
    const std::int64_t of_sequence = ceil_div(window, options.block_size) + 2;
    return 2 * (of_sequence * options.max_num_seqs + ceil_div(options.max_num_batched_tokens, options.block_size));
}

}  // namespace

int kv_cache_layout::layers_of(int group) const {
    return static_cast<int>(std::ranges::count(group_of_layer, group));
}

kv_cache_layout kv_cache_layout_of(const model_config& config, int context) {
    kv_cache_layout made;
    for (int i = 0; i < config.layers; ++i) {
        const int window = config.attention_of(i).window >= context ? 0 : config.attention_of(i).window;
        const auto found = std::ranges::find(made.windows, window);
        made.group_of_layer.push_back(static_cast<int>(found - made.windows.begin()));
        if (found == made.windows.end()) made.windows.push_back(window);
    }
    return made;
}

std::int64_t kv_token_bytes(const model_config& config, const runner_options& options) {
    const std::int64_t element = element_bytes(kv_cache_format_on(options.where, options.kv_cache));
    return 2 * element * config.kv_heads * config.head_dim;
}

std::vector<cache_group> kv_cache_groups(const model_config& config, const runner_options& options) {
    const kv_cache_layout layout = kv_cache_layout_of(config, context_of(config, options));
    std::vector<cache_group> groups;
    for (int i = 0; i < layout.groups(); ++i) {
        const int window = layout.windows[static_cast<std::size_t>(i)];
        const bool is_limited = window > 0 && options.num_window_kv_blocks > 0;
        groups.push_back({.blocks = is_limited ? options.num_window_kv_blocks : options.num_kv_blocks,
                          .window = window,
                          .block_bytes = layout.layers_of(i) * kv_token_bytes(config, options) * options.block_size});
    }
    return groups;
}

int max_blocks_per_seq(const model_config& config, const runner_options& options) {
    return static_cast<int>(ceil_div(context_of(config, options), options.block_size));
}

runner_options with_kv_blocks(const model_config& config, runner_options options, std::int64_t bytes) {
    // One spare block per sequence: a new sequence allocates before a finished one frees.
    const std::int64_t of_sequence = ceil_div(context_of(config, options), options.block_size) + 1;
    const std::int64_t most =
        std::min<std::int64_t>(of_sequence * options.max_num_seqs, std::numeric_limits<int>::max());
    std::int64_t window_blocks = 0, window_bytes = 0, all_bytes = 0, full_bytes = 0;
    for (const cache_group& each : kv_cache_groups(config, options)) {
        all_bytes += each.block_bytes;
        if (each.window == 0) {
            full_bytes += each.block_bytes;
        } else {
            window_bytes += each.block_bytes;
            window_blocks = std::max(window_blocks, blocks_of_window(each.window, options));
        }
    }
    // Few blocks: the same number in all groups. Else as many as the windows need, and the rest for the other layers.
    const std::int64_t limit = bytes == 0 ? std::numeric_limits<std::int64_t>::max() : bytes;
    std::int64_t blocks = std::min(most, limit / all_bytes);
    window_blocks = std::min(window_blocks, most);
    if (blocks > window_blocks && full_bytes > 0)
        blocks = std::min(most, (limit - window_blocks * window_bytes) / full_bytes);
    require(blocks >= 1, "memory: ", bytes, " bytes; a block of ", options.block_size,
            " tokens of this model's cache takes ", all_bytes);
    options.num_kv_blocks = static_cast<int>(blocks);
    options.num_window_kv_blocks = static_cast<int>(std::min(blocks, window_blocks));
    return options;
}

runner_options with_host_slots(const model_config& config, runner_options options, std::int64_t bytes) {
    options.host_slots.clear();
    if (bytes == 0) return options;
    const std::vector<cache_group> groups = kv_cache_groups(config, options);
    double all = 0;
    for (const cache_group& each : groups) all += static_cast<double>(each.blocks * each.block_bytes);
    for (const cache_group& each : groups) {
        const double slots = static_cast<double>(bytes) * each.blocks / all;
        require(slots >= 1, "cache-host: ", bytes, " bytes; with a block of each cache group it takes at least ",
                static_cast<std::int64_t>(all / each.blocks) + 1);
        options.host_slots.push_back(static_cast<int>(std::min<double>(slots, std::numeric_limits<int>::max())));
    }
    return options;
}

}  // namespace imbrex::engine
