// A runner for benchmarks of speculative decoding: it runs batches as another one does, and then replaces the sampled
// tokens so that each draft token is accepted with a given probability. The steps take as long as those of a real text;
// the text is noise. One batch is in flight at a time: drafts need the tokens of the one before.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/splitmix64.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/model/runner.hpp"

namespace imbrex::engine {

class steered_runner final : public runner {
  public:
    steered_runner(std::unique_ptr<runner> with, double acceptance) : with_(std::move(with)), acceptance_(acceptance) {
        require(acceptance >= 0 && acceptance <= 1, "acceptance: ", acceptance, "; it must be from 0 to 1");
    }

    void launch(const batch& work) override {
        work_ = &work;
        with_->launch(work);
    }

    std::vector<int> wait() override {
        std::vector<int> tokens = with_->wait();
        sampled_ = with_->last_sampled();
        std::size_t first = 0;
        for (const batch_entry& entry : work_->entries) {
            bool accepted = true;
            for (std::size_t i = 0; i < entry.draft.size() && accepted; ++i) {
                accepted = chance() < acceptance_;
                int& token = tokens[first + i];
                if (accepted) {
                    token = entry.draft[i];
                } else if (token == entry.draft[i]) {
                    token = token > 0 ? token - 1 : token + 1;
                }
                sampled_[first + i].token = token;
            }
            first += static_cast<std::size_t>(entry.num_samples());
        }
        return tokens;
    }

    std::optional<double> idle_seconds() const override { return with_->idle_seconds(); }
    const std::vector<sampled_token>& last_sampled() const override { return sampled_; }
    std::vector<float> last_logits() const override { return with_->last_logits(); }
    std::span<std::byte> slot(int group, int number) override { return with_->slot(group, number); }

  private:
    double chance() { return static_cast<double>(splitmix64(++draws_ * splitmix64_step) >> 11) * 0x1p-53; }

    std::unique_ptr<runner> with_;
    double acceptance_;
    const batch* work_ = nullptr;
    std::uint64_t draws_ = 0;
    std::vector<sampled_token> sampled_;
};

}  // namespace imbrex::engine
