// A model that runs batches: the steps between the scheduler and the kernels. A decode is the same launches over and over: from the second
// time on they are replayed (imbrex/hw/world_stream.hpp).
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_stream.hpp>

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "model.hpp"
#include "runner.hpp"
#include "sampler.hpp"
#include "step.hpp"

namespace imbrex::engine {

template <class Kernels>
class model_runner final : public runner {
  public:
    model_runner(const model_files& files, const runner_options& options, const loading_progress& progress)
        : options_(options),
          stream_(options.where),
          model_(files, options, progress, stream_.get()),
          step_(options.where, options.most_tokens, options.most_sequences, options.blocks),
          sampler_(options.where, files.config.vocabulary, options.most_sequences) {}

    std::vector<int> run(const batch& work) override {
        model_.copy_blocks(work.copies);
        sampler_.place(work);
        const int entries = static_cast<int>(work.entries.size()), generated = work.generated();
        require(!options_.invariant || generated == 0 || generated == entries, "batch: ", generated, " of its ",
                entries, " entries have tokens that were generated; in an invariant runner's all have, or none");
        step now = step_.place(arrays_of(work, options_.block_size));
        now.generated = generated == entries;
        // Where sequences ask for what changes from step to step, the sampling is not recorded with the rest.
        const bool samples_too = sampler_.launches() != nullptr;
        const auto launches = [&] {
            step_.send(stream_.get());
            if (samples_too) sampler_.send(stream_.get());
            logits_ = &model_.forward(now);
            if (samples_too) sampler_.launch(logits_->data(), stream_.get());
        };
        const bool decodes =
            now.tokens == now.samples && now.samples <= most_recorded && (now.generated || !options_.invariant);
        const step_shape shape{now.sequences, now.table_width, sampler_.launches()};
        if (decodes && were_made_.contains(shape)) {
            recorded_[shape].replay(stream_, launches);
        } else {
            launches();
            if (decodes) were_made_.insert(shape);
        }
        if (!samples_too) {
            sampler_.send(stream_.get());
            sampler_.launch(logits_->data(), stream_.get());
        }
        stream_.wait();
        sampled_ = sampler_.results(work);
        std::vector<int> tokens;
        for (const sampled_token& one : sampled_) tokens.push_back(one.token);
        return tokens;
    }

    const std::vector<sampled_token>& last_sampled() const override { return sampled_; }

    std::vector<float> last_logits() const override {
        if (logits_ == nullptr) return {};
        return logits_->read(static_cast<std::int64_t>(sampled_.size()) * model_.config().vocabulary, stream_.get());
    }

  private:
    // Of two steps of the same shape all launches are the same, and what they read lies in the same places.
    using step_shape = std::tuple<int, int, const void*>;  // sequences, width of their tables, what the sampler says

    // With more sequences a step takes so long that its launches cost nothing.
    static constexpr int most_recorded = 64;

    runner_options options_;
    world_stream stream_;
    model<Kernels> model_;
    step_memory step_;
    sampler sampler_;
    const numbers<float>* logits_ = nullptr;  // of the last run
    std::set<step_shape> were_made_;          // once, without a recording: what is prepared then must not be recorded
    std::map<step_shape, recorded_launches> recorded_;
    std::vector<sampled_token> sampled_;
};

}  // namespace imbrex::engine
