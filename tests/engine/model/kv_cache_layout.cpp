// The cache groups of a model and the division of the memory between them.
#include "engine/model/kv_cache_layout.hpp"

#include <numeric>

#include "engine/loading/random_model.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

std::int64_t bytes_of(const std::vector<cache_group>& groups) {
    std::int64_t all = 0;
    for (const cache_group& each : groups) all += each.blocks * each.block_bytes;
    return all;
}

model_config with_windows(const std::vector<int>& windows) {
    model_config config = config_of_known_model("tiny");
    config.layers = static_cast<int>(windows.size());
    config.attention_layers.resize(windows.size());
    for (std::size_t i = 0; i < windows.size(); ++i) config.attention_layers[i].window = windows[i];
    return config;
}

}  // namespace

TEST_CASE("Layers with equal windows are a group; a window of the whole context is none") {
    const model_config config = with_windows({0, 100, 0, 30, 100, 500});
    const kv_cache_layout layout = kv_cache_layout_of(config, 500);
    CHECK(layout.windows == std::vector<int>{0, 100, 30});
    CHECK(layout.group_of_layer == std::vector<int>{0, 1, 0, 2, 1, 0});
    CHECK(layout.layers_of(0) == 3);
    CHECK(kv_cache_layout_of(config, 100).windows == std::vector<int>{0, 30});
    CHECK(kv_cache_layout_of(config_of_known_model("tiny"), 500).windows == std::vector<int>{0});
}

TEST_CASE("Bytes of the real layout: 22 of 26 layers of Gemma 3 1B keep 512 tokens") {
    const model_config config = config_of_known_model("gemma-3-1b");
    const runner_options options = with_kv_blocks(config, {.max_num_seqs = 1, .context = 32768}, 0);
    const std::vector<cache_group> groups = kv_cache_groups(config, options);
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].window == 512);
    CHECK(groups[0].block_bytes == 22 * 1024 * 16);  // keys and values of 256 columns in 16 bits
    CHECK(groups[1].window == 0);
    CHECK(groups[1].block_bytes == 4 * 1024 * 16);
    CHECK(groups[1].blocks == 32768 / 16 + 1);
    // Twice a window, a spare block on both sides, and a batch of 512 tokens.
    CHECK(groups[0].blocks == 2 * (512 / 16 + 2 + 512 / 16));
    runner_options f32 = options;
    f32.kv_cache = kv_cache_format::f32;
    CHECK(bytes_of(kv_cache_groups(config, f32)) == 2 * bytes_of(groups));
    runner_options e4m3 = options;
    e4m3.kv_cache = kv_cache_format::e4m3;
    CHECK(2 * bytes_of(kv_cache_groups(config, e4m3)) == bytes_of(groups));
}

TEST_CASE("A GPU has a KV cache in bf16 only") {
    CHECK(kv_cache_format_on(world::device, kv_cache_format::by_device) == kv_cache_format::bf16);
    check_error_message("KV cache: e4m3; on a GPU it is bf16",
                        [] { kv_cache_format_on(world::device, kv_cache_format::e4m3); });
}

TEST_CASE("A limit of the memory is kept, and used") {
    for (const auto& windows : {std::vector{0, 0}, {0, 100, 0, 30}, {100, 100}, {0, 500}}) {
        const model_config config = with_windows(windows);
        for (const std::int64_t limit : {100'000, 300'000, 1'000'000, 10'000'000}) {
            CAPTURE(limit);
            const runner_options made =
                with_kv_blocks(config, {.max_num_batched_tokens = 64, .max_num_seqs = 4, .context = 1000}, limit);
            const std::vector<cache_group> groups = kv_cache_groups(config, made);
            const std::int64_t block =
                std::accumulate(groups.begin(), groups.end(), std::int64_t{0},
                                [](std::int64_t sum, const cache_group& each) { return sum + each.block_bytes; });
            CHECK(bytes_of(groups) <= limit);
            // Never more than the sequences can use.
            const bool is_complete = made.num_kv_blocks == 4 * (1000 / 16 + 2) || windows == std::vector{100, 100};
            CHECK((is_complete || bytes_of(groups) > limit - block));
        }
    }
    check_error_message("memory: 1000 bytes; a block of 16 tokens of this model's cache takes 8192", [] {
        with_kv_blocks(with_windows({0, 100}), {.context = 1000}, 1000);
    });
}

}  // namespace imbrex::engine::test
