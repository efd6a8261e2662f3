// The choices of a checked run: which simulated warp runs next, and when an asynchronous operation completes. A seed
// determines them, in the same way on every platform: uniformly at random, or by the priorities of PCT (pct.hpp). Or
// they come from a list of decisions (decisions.hpp), which any run can also record.
//
//   random, seed modulo 4   asynchronous operations complete
//   0                       late: when no scope can run, or when they are waited for
//   1                       at once
//   2, 3                    at random
#pragma once

#include <imbrex/hw/host/decisions.hpp>
#include <imbrex/hw/host/options.hpp>
#include <imbrex/hw/host/pct.hpp>
#include <imbrex/hw/host/pending_operations.hpp>
#include <imbrex/hw/host/random.hpp>
#include <imbrex/hw/host/state.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace imbrex::hw {

class schedule {
  public:
    // One step: a scope runs, or an operation completes.
    struct step {
        simulated_warp* scope = nullptr;  // null: the operation
        std::size_t operation = 0;        // its position among the pending ones

        friend bool operator==(const step&, const step&) = default;
    };
    using scopes = std::vector<simulated_warp*>;

    explicit schedule(const host_options& options)
        : random_(options.seed),
          priorities_(options.seed, options.bug_depth, options.pct_steps),
          record_(options.record),
          policy_(!options.replay.empty()                ? policy::replayed
                  : options.scheduler == scheduling::pct ? policy::pct
                                                         : static_cast<policy>(options.seed % 4)),
          keeps_track_(policy_ == policy::replayed || (record_ != nullptr && record_->keeps_decisions)) {
        if (policy_ == policy::replayed) decisions_ = replayed_schedule::parse(options.replay).decisions;
    }

    // A kernel begins, with its number in the stream.
    void begin(int number) {
        kernel_ = number;
        for (const schedule_decision& one : decisions_) {
            if (one.kernel == number) replayed_[key_of(one)] = {one.scope, one.operation};
        }
    }

    // A scope issues an operation: whether it completes at once. It must not if its queue has others pending.
    bool completes_at_once(const void* queue, const pending_operations& pending, operation_id& id) {
        if (policy_ == policy::pct) id.thread = thread_of_queue(queue);
        if (!keeps_track_) return policy_ == policy::eager;
        const int issuer = id.issuer->number;
        id.number = count_of(operations_, issuer)++;
        if (pending.has_queue(queue)) return false;
        const bool at_once =
            policy_ == policy::replayed ? !replayed_.contains({issuer, id.number, -1}) : policy_ == policy::eager;
        if (!at_once) keep({kernel_, -1, -1, 0, issuer, id.number});
        return at_once;
    }

    // The next step. There is at least one scope that can run or one pending operation.
    step next(const scopes& candidates, const pending_operations& pending, int steps_without_progress) {
        ++steps_;
        const bool spins = std::min(in_a_row_, steps_without_progress) > most_idle_steps || in_a_row_ > most_in_a_row;
        step chosen;
        if (policy_ == policy::pct) {
            chosen = of_highest_priority(candidates, pending, spins);
        } else if (policy_ == policy::replayed) {
            chosen = replayed(candidates, pending, spins);
        } else {
            chosen = drawn(candidates, pending);
        }
        if (record_ != nullptr && record_->keeps_decisions)
            record(chosen, by_default(candidates, pending, spins), pending);
        pass(chosen);
        return chosen;
    }

    int steps() const { return steps_; }
    void end() const {
        if (record_ == nullptr) return;
        record_->threads = std::max(record_->threads, priorities_.threads());
        record_->steps = std::max(record_->steps, steps_);
    }

  private:
    enum class policy { late, eager, random, random_again, pct, replayed };
    static constexpr int most_idle_steps = 8;   // of a scope, one after the other, before it counts as spinning
    static constexpr int most_in_a_row = 1000;  // the same if each of them writes, such as a compare-exchange

    static int& count_of(std::vector<int>& counts, int scope) {
        if (static_cast<std::size_t>(scope) >= counts.size()) counts.resize(scope + 1);
        return counts[scope];
    }

    step drawn(const scopes& candidates, const pending_operations& pending) {
        const bool runs_scope =
            !candidates.empty() && (pending.empty() || policy_ == policy::late || random_.below(2) == 0);
        if (runs_scope) return {candidates[random_.below(static_cast<int>(candidates.size()))], 0};
        return {nullptr, pending.first_of_its_queue(random_.below(static_cast<int>(pending.size())))};
    }

    step by_default(const scopes& candidates, const pending_operations& pending, bool spins) const {
        if (candidates.empty() || (spins && !pending.empty())) return {};
        simulated_warp* following = nullptr;
        for (simulated_warp* one : candidates) {
            if (one->number == last_ && !spins) return {one, 0};
            if (one->number > last_ && following == nullptr) following = one;
        }
        return {following != nullptr ? following : candidates.front(), 0};
    }

    step replayed(const scopes& candidates, const pending_operations& pending, bool spins) const {
        const auto found = replayed_.find(here());
        if (found != replayed_.end()) {
            const auto [scope, number] = found->second;
            for (std::size_t i = 0; number >= 0 && i < pending.size(); ++i) {
                if (pending[i].id.issuer->number == scope && pending[i].id.number == number) {
                    return {nullptr, pending.first_of_its_queue(i)};
                }
            }
            for (simulated_warp* one : candidates) {
                if (number < 0 && one->number == scope) return {one, 0};
            }
        }
        return by_default(candidates, pending, spins);
    }

    step of_highest_priority(const scopes& candidates, const pending_operations& pending, bool spins) {
        if (spins) priorities_.put_below_all(thread_of(last_));
        step best = highest(candidates, pending);
        if (priorities_.falls_at(steps_, thread_of(best, pending))) best = highest(candidates, pending);
        return best;
    }
    step highest(const scopes& candidates, const pending_operations& pending) {
        step best;
        int thread = -1;
        for (simulated_warp* one : candidates) {
            const int other = thread_of(one->number);
            if (thread >= 0 && !priorities_.is_higher(other, thread)) continue;
            best.scope = one;
            thread = other;
        }
        for (std::size_t i = 0; i < pending.size(); ++i) {
            if (thread >= 0 && !priorities_.is_higher(pending[i].id.thread, thread)) continue;
            best = {nullptr, i};
            thread = pending[i].id.thread;
        }
        return best;
    }
    int thread_of(const step& one, const pending_operations& pending) {
        return one.scope != nullptr ? thread_of(one.scope->number) : pending[one.operation].id.thread;
    }
    int thread_of(int scope) {
        int& thread = count_of(thread_of_scope_, scope);  // counted from 1
        if (thread == 0) thread = priorities_.add() + 1;
        return thread - 1;
    }
    int thread_of_queue(const void* queue) {
        if (queue == nullptr) return priorities_.add();
        const auto found = thread_of_queue_.find(queue);
        if (found != thread_of_queue_.end()) return found->second;
        return thread_of_queue_[queue] = priorities_.add();
    }

    // Where the run is: the last scope, its steps, and the completions since. A late completion is {scope, number, -1}.
    std::array<int, 3> here() const {
        return {last_, last_ < 0 ? 0 : taken_[static_cast<std::size_t>(last_)], completions_};
    }
    static std::array<int, 3> key_of(const schedule_decision& one) {
        if (one.is_late_completion()) return {one.scope, one.operation, -1};
        return {one.after, one.step, one.completions};
    }
    void keep(const schedule_decision& one) {
        if (record_ != nullptr && record_->keeps_decisions) record_->decisions.push_back(one);
    }
    void record(const step& chosen, const step& usual, const pending_operations& pending) {
        if (chosen == usual) return;
        const auto [after, steps, completions] = here();
        if (chosen.scope != nullptr) {
            keep({kernel_, after, steps, completions, chosen.scope->number, -1});
        } else {
            const operation_id& one = pending[chosen.operation].id;
            keep({kernel_, after, steps, completions, one.issuer->number, one.number});
        }
    }

    void pass(const step& chosen) {
        if (chosen.scope == nullptr) {
            ++completions_;
            in_a_row_ = 0;
            return;
        }
        in_a_row_ = chosen.scope->number == last_ && completions_ == 0 ? in_a_row_ + 1 : 0;
        completions_ = 0;
        last_ = chosen.scope->number;
        if (keeps_track_) ++count_of(taken_, last_);
    }

    schedule_rng random_;
    pct_priorities priorities_;
    schedule_record* record_;
    policy policy_;
    bool keeps_track_;
    int kernel_ = 0;
    int steps_ = 0;
    int last_ = -1;                        // the scope that ran last
    int in_a_row_ = 0;                     // how often it ran again
    int completions_ = 0;                  // since then
    std::vector<int> taken_, operations_;  // steps and operations of each scope
    std::vector<int> thread_of_scope_;
    std::map<const void*, int> thread_of_queue_;
    std::vector<schedule_decision> decisions_;
    std::map<std::array<int, 3>, std::pair<int, int>> replayed_;
};

}  // namespace imbrex::hw
