// The prefix cache on host memory and disk, with a real model on a CPU: texts are those without it, blocks survive a
// restart, and options are checked.
#include "engine/serving/text_engine.hpp"

#include <fstream>
#include <string>
#include <vector>

#include "engine/golden_tales.hpp"
#include "engine/loading/random_model.hpp"
#include "engine/model/kv_cache_layout.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

using tokens = std::vector<int>;

model_files tiny() {
    return random_model(config_of_known_model("tiny"), 1);
}

model_files tales() {
    return open_model(tales_folder());
}

using opened = model_files (*)();

// Room for one sequence and a few blocks more: a prompt finds little of the one before the last.
engine_options small_cache(opened open, const prefix_cache_options& cache) {
    const std::int64_t block = kv_cache_groups(open().config, {})[0].block_bytes;
    return {
        .kv_cache_bytes = 10 * block, .context = 128, .max_num_batched_tokens = 32, .max_num_seqs = 2, .cache = cache};
}

// Texts of 12 tokens after five prompts, in two rounds.
std::vector<tokens> texts(text_engine& model, int prompts = 10) {
    std::vector<tokens> all;
    for (int i = 0; i < prompts; ++i) {
        tokens prompt;
        for (int j = 0; j < 80; ++j) prompt.push_back((j < 20 ? j : j * (i % 5 + 3)) % 256);
        const sequence_id id =
            model.submit(prompt, {.max_tokens = 12, .sampling = {.bias = {}, .seed = 3, .stop = {}}, .ends = false});
        all.emplace_back();
        while (!model.idle()) {
            for (const text_event& each : model.step()) {
                CHECK(each.id == id);
                all.back().push_back(each.sampled.token);
            }
        }
        CHECK(all.back().size() == 12);
    }
    return all;
}

// Host memory for less than a prompt and its text.
prefix_cache_options on_disk(opened open, const temporary_folder& folder) {
    const std::int64_t block = kv_cache_groups(open().config, {})[0].block_bytes;
    return {.host_bytes = 5 * block, .disk_bytes = 1 << 26, .directory = folder.path().string()};
}

std::vector<opened> models() {
    if (!std::filesystem::exists(tales_folder() / "config.json")) return {tiny};
    return {tiny, tales};
}

}  // namespace

TEST_CASE("Texts with lower levels are those without, and prompts return from them") {
    for (const opened open : models()) {
        CAPTURE(open().name);
        const engine_options without = small_cache(open, {});
        text_engine alone(open(), without);
        const std::vector<tokens> expected = texts(alone);
        CHECK_FALSE(alone.summary().host_cache.exists);

        text_engine host(open(), small_cache(open, {.host_bytes = 1 << 26, .policy = cache_policy::lfu}));
        CHECK(texts(host) == expected);
        const statistics_summary figures = host.summary();
        CHECK(figures.prefix_cache_hit_rate > alone.summary().prefix_cache_hit_rate + 0.25);
        CHECK(figures.host_cache.hit_rate > 0.25);
        CHECK(figures.host_cache.counts.loaded_bytes > 0);
        CHECK(figures.host_cache.counts.held_bytes <= figures.host_cache.counts.capacity_bytes);
        CHECK_FALSE(figures.disk_cache.exists);

        for (const auto method : {cache_compression::none, cache_compression::zlib, cache_compression::zstd}) {
            if (!is_available(method) || (open == tales && method != cache_compression::none)) continue;
            const temporary_folder folder;
            prefix_cache_options options = on_disk(open, folder);
            options.compression = method;
            text_engine disk(open(), small_cache(open, options));
            CHECK(texts(disk) == expected);
            disk.save_cache();
            CHECK(texts(disk) == expected);
            CHECK(disk.summary().disk_cache.tokens > 0);
        }
    }
}

TEST_CASE("The files of a process serve the next one, of the same model only") {
    const temporary_folder folder;
    for (const opened open : models()) {
        CAPTURE(open().name);
        const engine_options options = small_cache(open, on_disk(open, folder));
        std::vector<tokens> expected;
        {
            text_engine first(open(), options);
            expected = texts(first);
        }
        text_engine again(open(), options);
        CHECK(texts(again) == expected);
        // Four of five blocks of each prompt, and the text after it in the second round.
        CHECK(again.summary().prefix_cache_hit_rate > 0.75);
        CHECK(again.summary().disk_cache.hit_rate > 0.3);
        CHECK(again.summary().disk_cache.counts.damaged_blocks == 0);
    }
    // Other weights, and another format of the cache.
    constexpr opened other = [] { return random_model(config_of_known_model("tiny"), 2); };
    text_engine stranger(other(), small_cache(other, on_disk(other, folder)));
    texts(stranger, 1);
    CHECK(stranger.summary().cached_tokens == 0);
    engine_options bf16 = small_cache(tiny, {});
    bf16.kv_cache = kv_cache_format::bf16;
    text_engine alone(tiny(), bf16);
    const std::vector<tokens> expected = texts(alone);
    bf16.cache = on_disk(tiny, folder);
    text_engine other_format(tiny(), bf16);
    CHECK(texts(other_format) == expected);
}

TEST_CASE("Damaged files do not change a text") {
    const temporary_folder folder;
    constexpr opened open = tiny;
    std::vector<std::string> messages;
    engine_options options = small_cache(open, on_disk(open, folder));
    options.cache.report = [&](const std::string& message) { messages.push_back(message); };
    std::vector<tokens> expected;
    {
        text_engine first(open(), options);
        expected = texts(first);
    }
    CHECK(messages.empty());
    int number = 0;
    for (const auto& each : std::filesystem::recursive_directory_iterator(folder.path())) {
        if (each.path().extension() != ".kv") continue;
        if (++number % 3 == 0) std::filesystem::resize_file(each.path(), 100);
        if (number % 3 == 1)
            std::fstream(each.path(), std::ios::in | std::ios::out | std::ios::binary).seekp(700).put(1);
    }
    text_engine again(open(), options);
    CHECK(texts(again) == expected);
    again.save_cache();
    CHECK(again.summary().disk_cache.counts.damaged_blocks > 0);
    CHECK_FALSE(messages.empty());
    CHECK(messages.front().find("it is removed") != std::string::npos);
}

TEST_CASE("8-bit files: half the size, used apart from exact ones") {
    const temporary_folder folder;
    constexpr opened open = tiny;
    engine_options options = small_cache(open, on_disk(open, folder));
    const auto bytes_of_all = [&](bool quantised) {
        options.cache.quantised = quantised;
        {
            text_engine first(open(), options);
            texts(first);
        }
        text_engine again(open(), options);
        texts(again);
        CHECK(again.summary().disk_cache.hit_rate > 0.3);
        const level_counts counts = again.summary().disk_cache.counts;
        return static_cast<double>(counts.loaded_bytes) / static_cast<double>(counts.loaded_blocks);
    };
    const double exact = bytes_of_all(false);
    CHECK(bytes_of_all(true) < 0.62 * exact);
    options.kv_cache = kv_cache_format::f32;
    check_error_message("cache-8bit: the KV cache is not of 16-bit numbers", [&] { text_engine(open(), options); });
}

TEST_CASE("Options of the levels that do not fit together are refused") {
    constexpr opened open = tiny;
    const auto refused = [&](const char* message, const prefix_cache_options& cache) {
        check_error_message(message, [&] { text_engine(open(), {.context = 64, .max_num_seqs = 1, .cache = cache}); });
    };
    refused("cache-host: -1; it must be positive", {.host_bytes = -1});
    refused("cache-host: 10 bytes; with a block of each cache group it takes at least", {.host_bytes = 10});
    refused("cache-disk: -1; it must be positive", {.disk_bytes = -1});
    refused("cache-dir: none; cache-disk, 1000 bytes, needs a directory", {.disk_bytes = 1000});
    refused("cache-disk: 0; cache-dir, x, needs its size", {.directory = "x"});
    refused("cache-compress: zlib; it is for files", {.compression = cache_compression::zlib});
    refused("cache-8bit: it is for files", {.quantised = true});
}

}  // namespace imbrex::engine::test
