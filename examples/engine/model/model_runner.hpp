// Runs batches: stages the inputs, launches the model and samples. A decode step launches the same kernels each time;
// from the second time on they are replayed as a CUDA graph (imbrex/hw/world_stream.hpp).
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_stream.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "engine/model/model.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/sampler.hpp"
#include "engine/model/step_inputs.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

template <class Kernels>
class model_runner final : public runner {
  public:
    model_runner(const model_files& files, const runner_options& options, const loading_progress& progress)
        : options_(options),
          stream_(options.where),
          model_(files, options, progress, stream_.get()),
          staging_(options.where, options.max_num_batched_tokens, options.max_num_seqs,
                   max_blocks_per_seq(files.config, options), model_.cache_groups()),
          sampler_(options.where, files.config.vocab_size, options.max_samples()) {
        if (options.where != world::device) owners_ = files.weights.owners();
    }

    void launch(const batch& work) override {
        work_ = &work;
        model_.kv_cache().move(work, stream_.get());
        if (work.entries.empty()) return;
        sampler_.stage(work);
        const int entries = static_cast<int>(work.entries.size()), generated = work.generated();
        require(!options_.batch_invariant || generated == 0 || generated == entries, "batch: ", generated, " of its ",
                entries, " entries have tokens that were generated; in an invariant runner's all have, or none");
        inputs_ = staging_.stage(pack_batch(work, options_.block_size, model_.cache_groups()));
        inputs_.is_decode = generated == entries;
        launch_inputs();
    }

    std::vector<int> wait() override {
        stream_.wait();
        if (work_->entries.empty()) return {};
        if (options_.where != world::device) require_finite_logits(inputs_);
        sampled_ = sampler_.results(*work_);
        std::vector<int> tokens;
        for (const sampled_token& one : sampled_) tokens.push_back(one.token);
        return tokens;
    }

    const std::vector<sampled_token>& last_sampled() const override { return sampled_; }

    std::vector<float> last_logits() const override {
        if (logits_ == nullptr) return {};
        return logits_->read(static_cast<std::int64_t>(sampled_.size()) * model_.config().vocab_size, stream_.get());
    }

    std::span<std::byte> slot(int group, int number) override { return model_.kv_cache().slot(group, number); }

  private:
    void launch_inputs() {
        // Penalties, bias and logprobs change the sampling arguments between steps; sampling then stays outside the
        // CUDA graph.
        const bool graph_samples = sampler_.graph_key().first != nullptr;
        const auto launches = [&] {
            staging_.copy_to_device(stream_.get());
            if (graph_samples) sampler_.copy_to_device(stream_.get());
            logits_ = &model_.forward(inputs_);
            if (graph_samples) sampler_.launch(logits_->data(), stream_.get());
        };
        const bool decodes = inputs_.tokens == inputs_.samples && inputs_.samples <= max_graph_rows &&
                             (inputs_.is_decode || !options_.batch_invariant);
        const graph_key key{inputs_.sequences, inputs_.tokens, inputs_.has_few_tokens, inputs_.max_blocks_per_seq,
                            sampler_.graph_key()};
        if (decodes && warmed_up_.contains(key)) {
            if (graphs_.size() >= max_graphs && !graphs_.contains(key)) graphs_.clear();
            graphs_[key].replay(stream_, launches);
        } else {
            launches();
            if (decodes) warmed_up_.insert(key);
        }
        if (!graph_samples) {
            sampler_.copy_to_device(stream_.get());
            sampler_.launch(logits_->data(), stream_.get());
        }
    }

    // A broken file or an overflow. Text drawn from such logits would be noise.
    void require_finite_logits(const step_inputs& now) {
        if (now.samples == 0) return;
        const float* const all = logits_->data();
        const auto count = static_cast<std::size_t>(now.samples) * static_cast<std::size_t>(model_.config().vocab_size);
        bool finite = true;
        for (std::size_t i = 0; i < count; ++i) finite &= std::fabs(all[i]) <= std::numeric_limits<float>::max();
        if (finite) return;
        require(false, "the logits have a NaN or an infinity; the first part of the model with one is ",
                model_.first_part_with_nan(now));
    }

    // Steps with equal keys have the same launches and the same buffer addresses.
    // Sequences, tokens, has_few_tokens, max_blocks_per_seq, the sampler's graph key.
    using graph_key = std::tuple<int, int, bool, int, sampler::graph_key_type>;

    // With more rows the launch overhead is negligible.
    static constexpr int max_graph_rows = 64;
    // Numbers of draft tokens vary: with many sequences there are many keys.
    static constexpr std::size_t max_graphs = 512;

    runner_options options_;
    std::vector<std::shared_ptr<const void>> owners_;  // of the weights, which a CPU reads where they lie
    world_stream stream_;
    model<Kernels> model_;
    step_staging staging_;
    sampler sampler_;
    const batch* work_ = nullptr;  // of the last step, as are these
    step_inputs inputs_;
    const world_buffer<float>* logits_ = nullptr;
    std::set<graph_key> warmed_up_;  // ran once without capture: lazy allocations must not be captured
    std::map<graph_key, cuda_graph> graphs_;
    std::vector<sampled_token> sampled_;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
