// Speculative decoding: where draft tokens come from. A proposer guesses the next tokens of decoding sequences; the model
// then computes all of them in one step and keeps those that it would have sampled anyway (scheduler::finish). Drafts
// change the speed of a text, never the text.
#pragma once

#include "engine/serving/batch.hpp"

namespace imbrex::engine {

class draft_proposer {
  public:
    virtual ~draft_proposer() = default;

    // Gives entries draft tokens with add_draft, up to max_draft each. Entries with max_draft 0 get none.
    virtual void propose(batch& next) = 0;

    // Nothing will be proposed for this sequence any more.
    virtual void ended(sequence_id) {}
};

}  // namespace imbrex::engine
