// Drafts without a second model (prompt lookup): the last tokens of a sequence are searched in what precedes them, and
// the tokens that followed there are the draft. This finds quotations, code, lists and repetitions.
//
//   tokens    the cat sat on the mat . the dog sat on the        match: "sat on the", at most max_ngram tokens
//                         ^^^^^^^^^^               ^^^^^^^^^^
//   draft                            mat . the dog ...           a draft may run into itself, so that cycles go on
#pragma once

#include "engine/serving/draft_proposer.hpp"

#include <span>
#include <vector>

namespace imbrex::engine {

struct ngram_options {
    int min_ngram = 2;  // shorter matches propose nothing; 0: there is always a draft
    int max_ngram = 4;  // longer matches count as this long; of equals, the most recent one
};

// `count` tokens that may follow; empty without a match.
std::vector<int> ngram_draft(std::span<const int> tokens, int count, const ngram_options& options = {});

class ngram_proposer final : public draft_proposer {
  public:
    explicit ngram_proposer(const ngram_options& options = {});

    void propose(batch& next) override;

  private:
    ngram_options options_;
};

}  // namespace imbrex::engine
