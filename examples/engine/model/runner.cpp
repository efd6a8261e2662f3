#include "engine/model/runner.hpp"

#include <imbrex/core/error.hpp>

#include "engine/model/cpu_kernels.hpp"
#include "engine/model/cuda_runner.hpp"
#include "engine/model/model_runner.hpp"

namespace imbrex::engine {

std::unique_ptr<runner> make_runner(const model_files& files, const runner_options& options,
                                    const loading_progress& progress) {
    require(options.block_size > 0 && options.block_size % 16 == 0, "block_size: ", options.block_size,
            "; it must be a positive multiple of 16");
    require(options.num_kv_blocks > 0, "num_kv_blocks: ", options.num_kv_blocks, "; the cache must have a block");
    require(options.max_num_seqs > 0, "max_num_seqs: ", options.max_num_seqs, "; there must be room for one");
    require(options.max_num_batched_tokens >= options.max_num_seqs,
            "max_num_batched_tokens: ", options.max_num_batched_tokens, "; each of ", options.max_num_seqs,
            " sequences must have room for a token");
    require(options.weights != weight_format::mixed, "weights: mixed; mix_weights makes the mixture before");
    kv_cache_format_on(options.where, options.kv_cache);  // throws for one that the device does not have
    if (options.where == world::device) return make_cuda_runner(files, options, progress);
    return std::make_unique<model_runner<cpu_kernels>>(files, options, progress);
}

}  // namespace imbrex::engine
