// The levels of the prefix cache below the KV cache, as a program asks for them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/cache/disk_level.hpp"
#include "engine/loading/model_files.hpp"
#include "engine/model/runner.hpp"

namespace imbrex::engine {

struct prefix_cache_options {
    std::int64_t host_bytes = 0;  // host memory; 0: none, or what the disk level needs to pass blocks on
    std::int64_t disk_bytes = 0;  // files; 0: none
    std::string directory{};      // for them
    cache_policy policy = cache_policy::lru;
    cache_compression compression = cache_compression::none;  // of files
    bool quantised = false;                                   // files have 8-bit numbers instead of 16-bit ones
    std::function<void(const std::string&)> report{};         // gets messages of the disk level
};

// Throws for options that do not fit together.
void check(const prefix_cache_options& options);

// Host memory for the levels: with a disk level alone an eighth of it, at most 1 GB.
std::int64_t host_cache_bytes(const prefix_cache_options& options);

// Everything that the content of a block depends on besides its tokens: the numbers of the configuration, the format
// and a sample of all weights, and the kernels. Weights of up to 64 kB are hashed whole, of larger ones 16 pages.
std::string describe_cache(const model_files& files, const runner_options& options, bool quantised);

// Null without a disk level.
std::shared_ptr<disk_level> make_disk_level(const prefix_cache_options& options, const model_config& config,
                                            const runner_options& runner);

}  // namespace imbrex::engine
