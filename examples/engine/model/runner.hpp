// The runner interface: computes batches with a model, its weights and its KV cache in the memory of one world.
// Programs see only this interface; kernels and element types are chosen at construction.
#pragma once

#include <imbrex/hw/world.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/loading/model_files.hpp"
#include "engine/model/kv_cache_format.hpp"
#include "engine/model/weight_format.hpp"
#include "engine/serving/batch.hpp"
#include "engine/serving/sampled_token.hpp"

namespace imbrex::engine {

struct runner_options {
    world where = world::host;
    weight_format weights = weight_format::as_in_file;
    double bits_per_weight = usual_bits_per_weight;  // of mixed weights
    kv_cache_format kv_cache = kv_cache_format::by_device;
    int block_size = 16;
    int num_kv_blocks = 0;             // blocks of the KV cache, in each cache group (kv_cache_layout.hpp)
    int num_window_kv_blocks = 0;      // the same in groups with a window; 0: as many as in the others
    int max_num_batched_tokens = 512;  // maximum tokens of a batch
    int max_num_seqs = 64;
    int max_num_draft_tokens = 0;   // speculative decoding: draft tokens of a batch
    std::vector<int> host_slots{};  // of each cache group: host memory for evicted blocks (serving/block_moves.hpp)
    int context = 0;                // maximum tokens of a sequence; 0: the model's. RoPE scalings may depend on it
    // On a GPU: the logits of a sequence have the same bits in every batch. A batch then has either prompt tokens or
    // generated tokens. (On a CPU logits never depend on the batch.)
    bool batch_invariant = false;

    int max_samples() const { return max_num_seqs + max_num_draft_tokens; }  // rows of logits of a batch
};

// Called with the loaded and the total bytes of the weights.
using loading_progress = std::function<void(std::int64_t, std::int64_t)>;

class runner : public block_store {
  public:
    // Begins to move the blocks of a batch and to compute it, which stays as it is until wait(); on a CPU it is done when
    // launch() returns. Two batches may be in flight. The input of the newer one may be sampled tokens of the older one
    // (batch_entry::input_row), which stay in the memory of the world.
    virtual void launch(const batch& work) = 0;
    // One token per sampled position of the oldest batch in flight, as engine<runner> requires.
    virtual std::vector<int> wait() = 0;
    std::vector<int> run(const batch& work) {
        launch(work);
        return wait();
    }

    // On a GPU: how long it had nothing to do before the batch that was waited for last.
    virtual std::optional<double> idle_seconds() const { return std::nullopt; }

    // The tokens of that batch with the requested log-probabilities.
    virtual const std::vector<sampled_token>& last_sampled() const = 0;

    // Logits of that batch, [sampled positions, vocabulary], if no other one is in flight.
    virtual std::vector<float> last_logits() const = 0;
};

// Loads the weights and converts them to the requested format. Throws if this world cannot run the model.
std::unique_ptr<runner> make_runner(const model_files& files, const runner_options& options,
                                    const loading_progress& progress = {});
}  // namespace imbrex::engine
