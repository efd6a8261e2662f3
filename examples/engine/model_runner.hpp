// A model that runs batches: the steps between the scheduler and the kernels.
#pragma once

#include <cstdint>
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
          model_(files, options, progress),
          step_(options.where, options.most_tokens, options.most_sequences, options.blocks),
          sampler_(options.where, files.config.vocabulary, options.most_sequences) {}

    std::vector<int> run(const batch& work) override {
        model_.copy_blocks(work.copies);
        logits_ = &model_.forward(step_.send(arrays_of(work, options_.block_size)));
        sampled_ = sampler_.sample(work, logits_->data());
        std::vector<int> tokens;
        for (const sampled_token& one : sampled_) tokens.push_back(one.token);
        return tokens;
    }

    const std::vector<sampled_token>& last_sampled() const override { return sampled_; }

    std::vector<float> last_logits() const override {
        if (logits_ == nullptr) return {};
        return logits_->read(static_cast<std::int64_t>(sampled_.size()) * model_.config().vocabulary);
    }

  private:
    runner_options options_;
    model<Kernels> model_;
    step_memory step_;
    sampler sampler_;
    const numbers<float>* logits_ = nullptr;  // of the last run
    std::vector<sampled_token> sampled_;
};

}  // namespace imbrex::engine
