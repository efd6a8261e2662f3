#include "runner.hpp"

#include <imbrex/core/error.hpp>

#include "device_runner.hpp"
#include "model_runner.hpp"
#include "row_kernels.hpp"

namespace imbrex::engine {

std::unique_ptr<runner> make_runner(const model_files& files, const runner_options& options,
                                    const loading_progress& progress) {
    require(options.block_size > 0 && options.block_size % 16 == 0, "block_size: ", options.block_size,
            "; it must be a positive multiple of 16");
    require(options.blocks > 0, "blocks: ", options.blocks, "; the cache must have a block");
    require(options.most_sequences > 0, "most_sequences: ", options.most_sequences, "; there must be room for one");
    require(options.most_tokens >= options.most_sequences, "most_tokens: ", options.most_tokens, "; each of ",
            options.most_sequences, " sequences must have room for a token");
    if (options.where == world::device) return make_device_runner(files, options, progress);
    return std::make_unique<model_runner<row_kernels>>(files, options, progress);
}

std::int64_t cache_bytes_of_block(const model_config& config, const runner_options& options) {
    const std::int64_t element = options.where == world::device ? 2 : 4;
    return 2 * element * config.layers * config.key_heads * config.head_depth * options.block_size;
}

}  // namespace imbrex::engine
