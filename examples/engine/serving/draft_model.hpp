// Drafts of a second, smaller model with the same vocabulary. It has a runner and a KV cache of its own, and follows each
// sequence: it computes the tokens that it has not seen and samples the next ones, all sequences in one batch.
//
//   target    a b c d e            a b c d e x y z            two of four draft tokens accepted, and z instead of w
//   draft     a b c d e x y w v    a b c d e x y | z          keys and values of w and v are overwritten
//
// Tokens are sampled with the sequence's own parameters, seed and positions. A draw is the Gumbel-max of random numbers
// that depend on seed, position and token only, so both models draw with the same numbers: the drafts are accepted often
// at any temperature, and the text is the one without drafts.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/model/runner.hpp"
#include "engine/serving/block_manager.hpp"
#include "engine/serving/draft_proposer.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

// Throws unless both have the same tokens: a draft of other tokens would never be accepted.
void require_same_vocabulary(const tokenizer& target, const tokenizer& draft);

struct draft_model_options {
    int context = 0;                 // of the draft model: longer sequences get no drafts
    int max_num_batched_tokens = 0;  // of its runner
    int vocab_size = 0;              // of the target: larger tokens are never drafted
};

class draft_model final : public draft_proposer {
  public:
    draft_model(std::unique_ptr<runner> model, block_manager blocks, const draft_model_options& options);

    void propose(batch& next) override;
    void ended(sequence_id id) override;

    const block_manager& blocks() const { return blocks_; }

  private:
    struct follower {
        std::shared_ptr<sequence> own = std::make_shared<sequence>();
        int verified = 0;            // leading tokens that are those of the target
        std::int64_t last_used = 0;  // step
    };
    // A sequence that gets a draft now.
    struct drafting {
        batch_entry* entry;
        follower* with;
        std::vector<int> tokens{};
    };

    void draft_all(batch& next);
    bool follow(follower& it, const sequence& target, int depth);
    bool free_an_unused_follower();
    void catch_up(std::vector<drafting>& all);
    void draft_next(std::vector<drafting*>& all);
    void take(drafting& it, int token) const;
    void forget_all();

    std::unique_ptr<runner> model_;
    block_manager blocks_;
    draft_model_options options_;
    std::int64_t steps_ = 0;
    std::unordered_map<sequence_id, follower> followers_;
};

}  // namespace imbrex::engine
