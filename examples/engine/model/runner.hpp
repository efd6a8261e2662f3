// What computes a batch: a model with its weights and its cache, in the memory of a world. Programs see this interface alone; which kernels
// and which types are behind it is chosen when it is made.
#pragma once

#include <imbrex/hw/world.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/loading/model_files.hpp"
#include "engine/model/weight_format.hpp"
#include "engine/serving/batch.hpp"
#include "engine/serving/sampled_token.hpp"

namespace imbrex::engine {

struct runner_options {
    world where = world::host;
    weight_format weights = weight_format::as_in_file;
    int block_size = 16;
    int num_kv_blocks = 0;             // of the cache
    int max_num_batched_tokens = 512;  // in one batch
    int max_num_seqs = 64;
    // On a GPU: what comes of a sequence has the same bits whatever else is in its batches. A batch then has tokens of prompts or generated
    // ones, not both. (On a CPU it is so anyway.)
    bool batch_invariant = false;
};

// Bytes of weights that are loaded, and of all.
using loading_progress = std::function<void(std::int64_t, std::int64_t)>;

class runner {
  public:
    virtual ~runner() = default;

    // A token for each entry that samples, as engine<runner> wants it.
    virtual std::vector<int> run(const batch& work) = 0;

    // The same with the log-probabilities that were asked for.
    virtual const std::vector<sampled_token>& last_sampled() const = 0;

    // Of the last run, a row of the vocabulary's size for each entry that samples.
    virtual std::vector<float> last_logits() const = 0;
};

// Loads the weights and makes them into what is asked for. A model that this world cannot run is refused.
std::unique_ptr<runner> make_runner(const model_files& files, const runner_options& options,
                                    const loading_progress& progress = {});

// Of the cache, for all layers.
std::int64_t kv_block_bytes(const model_config& config, const runner_options& options);

}  // namespace imbrex::engine
