// Decides how many draft tokens each sequence gets in a step, so that speculation switches itself off where it does not
// pay. It measures two things: which fraction of a sequence's drafts was accepted lately, and how long steps with so many
// rows take. A draft token i of a sequence whose drafts are accepted with probability p yields p^i tokens; rows are
// added in order of this yield, and the number of rows with the most tokens per second is taken:
//
//   tokens per second = (sequences + sum of p^i) / (step(rows) + depth * draft)      depth: the longest draft
//
// Rows are nearly free while a step is bound by reading the weights (few rows on a GPU), so even poor drafts pay there;
// with many sequences, or on a CPU, only good ones do. What is not measured yet is taken to be free, and so is tried;
// estimates drift back while they are not used, so that they are tried again. Decisions change the speed, never a text.
#pragma once

#include "engine/serving/batch.hpp"

#include <array>
#include <cstdint>
#include <unordered_map>

namespace imbrex::engine {

// Seconds of steps by their number of rows.
class step_costs {
  public:
    void observe(int rows, double seconds);

    // Interpolated between measured numbers of rows. Otherwise as little as it may be, so that it is tried: in proportion
    // for fewer rows, the same for more. 0 if nothing is measured.
    double of(int rows) const;

    static constexpr int trials = 3;        // the fastest of so many steps is the first measurement
    static constexpr int forgotten = 1000;  // steps after which a measurement is made again

  private:
    static constexpr int groups = 40;
    struct measurement {
        double seconds = 0;
        double rows = 0;  // on average
        int count = 0;
        std::int64_t last = 0;  // step
    };

    static int group_of(int rows);
    bool is_known(const measurement& one) const { return one.count >= trials && steps_ - one.last < forgotten; }

    std::array<measurement, groups> all_{};
    std::int64_t steps_ = 0;
};

// The probability that a draft token is accepted if those before it are.
class acceptance_estimate {
  public:
    void observe(int drafted, int accepted);
    void unused();  // a step without a draft
    double value(double expected) const { return (accepted_ + weight * expected) / (tried_ + weight); }

  private:
    static constexpr double weight = 2;  // of what is expected without observations, in draft tokens

    double accepted_ = 0, tried_ = 0;
};

class speculation_control {
  public:
    // Lowers max_draft of the entries to what pays.
    void choose(batch& next) const;

    // After the step: the seconds that proposing and running it took.
    void observe(const batch& done, double draft_seconds, double run_seconds);
    void accepted(sequence_id id, int drafted, int accepted);
    void forget(sequence_id id) { sequences_.erase(id); }

  private:
    static constexpr double first_expectation = 0.6;

    double probability(sequence_id id) const;

    step_costs costs_;
    double draft_seconds_ = 0;  // of a draft token: proposers compute those of all sequences at once
    std::int64_t drafts_ = 0;   // steps with drafts
    acceptance_estimate all_;
    std::unordered_map<sequence_id, acceptance_estimate> sequences_;
};

}  // namespace imbrex::engine
