// The host world's machine: it simulates thread block clusters on one OS thread. It owns their blocks, the simulated
// warps (one per running scope: a fiber with the checker's clocks) and the asynchronous operations in flight, and it
// schedules them. In plain mode it runs one cluster (all clusters of a cooperative grid); a simulated warp runs until
// it must wait, and operations complete when issued. In checked mode it runs a grid, of which some clusters are
// resident at a time. A seed determines the schedule: at every synchronisation and asynchronous operation, which
// simulated warp runs next and whether an operation completes early, late or in between; and the order in which
// clusters start.
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/core/owned.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/barrier_counters.hpp>
#include <imbrex/hw/host/cluster_source.hpp>
#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/hw/host/liveness.hpp>
#include <imbrex/hw/host/options.hpp>
#include <imbrex/hw/host/pending_operations.hpp>
#include <imbrex/hw/host/schedule.hpp>
#include <imbrex/hw/host/state.hpp>
#include <imbrex/hw/host/timeline.hpp>
#include <imbrex/hw/host/trace.hpp>

#include <sched.h>
#include <time.h>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace imbrex::hw {

class machine;
class global_memory;  // hw/host/global_memory.hpp

// hw/host/deadlock.hpp
void report_deadlock(machine& m);
void report_livelock(machine& m);
void report_not_resident(machine& m, const simulated_warp& one, source where);

class machine {
  public:
    machine(const char* kernel, const host_options& options, global_memory* global = nullptr)
        : options(options),
          checked(options.mode == host_mode::checked),
          global(global),
          kernel_(kernel),
          schedule_(options) {
        if (!options.trace_file.empty()) trace.enable();
    }

    static machine*& running() {
        static thread_local machine* one = nullptr;
        return one;
    }
    static simulated_warp*& running_simulated_warp() {
        static thread_local simulated_warp* one = nullptr;
        return one;
    }

    const host_options& options;
    const bool checked;
    global_memory* const global;  // its history, if it is tracked
    kernel_state kernel;
    trace_writer trace;
    timeline* events = nullptr;  // of the stream, if they are recorded
    std::map<const barrier_word*, barrier_state> barriers;

    const std::optional<hazard>& found() const { return found_; }
    bool stopping() const { return stopping_; }
    const std::vector<owned<simulated_warp>>& simulated_warps() const { return simulated_warps_; }
    // Those that have not ended.
    const std::vector<simulated_warp*>& running_warps() const { return running_; }
    const std::vector<owned<cluster_state>>& clusters() const { return clusters_; }

    // A cluster without blocks yet.
    cluster_state& add_cluster(int number) {
        clusters_.push_back(make_owned<cluster_state>());
        cluster_state& made = *clusters_.back();
        made.number = number;
        made.kernel = &kernel;
        made.started_late = stalled_ != nullptr;
        ++resident_;
        return made;
    }
    block_state& add_block(cluster_state& cluster) {
        blocks_.push_back(make_owned<block_state>());
        block_state& made = *blocks_.back();
        made.cluster = &cluster;
        made.cluster_rank = cluster.running++;
        cluster.blocks.push_back(&made);
        return made;
    }

    // Creates a simulated warp that will run `body`.
    simulated_warp& start(block_state& block, simulated_warp* parent, const char* role, int index, int warps,
                          warp_body body) {
        simulated_warp& one = add(block, parent, role, index, warps);
        one.context = make_owned<fiber>([this, &one, body] {
            if (!stopping_) body(one);
        });
        return one;
    }

    // The same if no other simulated warp could run meanwhile: it runs now, on the caller's stack.
    void run_in_place(block_state& block, simulated_warp* parent, const char* role, int index, int warps,
                      warp_body body) {
        simulated_warp& one = add(block, parent, role, index, warps);
        running_simulated_warp() = &one;
        body(one);
        running_simulated_warp() = parent;
        one.ended = true;
        std::erase(running_, &one);
        if (parent != nullptr) --parent->children;
    }

    // Runs all simulated warps to their end, and starts clusters of the source such that `resident` of them run at a
    // time. A hazard or an exception ends them early.
    void run(cluster_source& source, int resident) {
        source_ = &source;
        resident_limit_ = resident;
        schedule_.begin(kernel.number);
        run_as_this_machine([this] {
            while (step()) {}
            if (stopping_) unwind();
        });
        schedule_.end();
        source_ = nullptr;
    }

    // Runs an unchecked block of one warp, which never needs to be suspended.
    void run_alone(block_state& block, warp_body body) {
        run_as_this_machine([&] {
            try {
                run_in_place(block, nullptr, "block", -1, 1, body);
            } catch (const stopped&) {
            } catch (...) {
                failure_ = std::current_exception();
            }
        });
    }

    // True while an exception from the kernel unwinds a simulated warp. Destructors must then neither wait nor throw.
    bool unwinding() const { return std::uncaught_exceptions() > exceptions_outside_; }

    // Suspends until `ready()`. A deadlock report names what it waits for. `waiting_on` is the state of the barrier, if
    // it waits at one.
    template <class Ready>
    void wait_until(simulated_warp& one, Ready ready, std::string waiting_for, source where,
                    const void* waiting_on = nullptr) {
        one.may_go_on = [](void* data) { return (*static_cast<Ready*>(data))(); };
        one.may_go_on_data = &ready;
        one.waiting_for = std::move(waiting_for);
        one.waiting_at = where;
        one.waiting_on = waiting_on;
        while (!ready()) suspend(one);
        one.may_go_on = nullptr;
        one.waiting_on = nullptr;
    }

    // Suspends until `ready()`, which depends on a value in global memory that another block may write.
    template <class Ready>
    void wait_for_memory(simulated_warp& one, Ready ready, source where) {
        one.waiting_for_memory = true;
        wait_until(one, ready, "a value in global memory", where);
        one.waiting_for_memory = false;
        polling_since_ = 0;
        if (one.block->cluster == stalled_) report_not_resident(*this, one, where);
    }

    // Something has happened that may allow a waiting or spinning scope to proceed.
    void progress() { live_.progress(); }
    void atomic_write() { live_.atomic_write(); }

    // In checked mode, lets the seed select the next simulated warp.
    void pause(simulated_warp& one) {
        if ((checked || trace.enabled()) && !stopping_) suspend(one);
    }

    // Issues an asynchronous operation. Operations with the same `in_order_with` complete in the order of issue;
    // `group` is the group of that queue that it belongs to.
    template <class Perform>
    void ask(const void* in_order_with, std::uint32_t group, Perform perform) {
        if (!checked) return perform();
        const simulated_warp& one = *running_simulated_warp();
        operation_id id{&one, one.last_operation, one.last_where};
        if (schedule_.completes_at_once(in_order_with, pending_, id)) return perform();
        pending_.add(in_order_with, group, id, std::move(perform));
    }

    // Completes the operations of one queue up to a group now.
    void finish(const void* in_order_with, std::uint32_t group) {
        while (auto one = pending_.take_of(in_order_with, group)) perform(std::move(one));
    }

    // Records a hazard and ends the run. Only the first is kept: later ones may be its consequences.
    void report(hazard_kind kind, const block_state& block, std::string detail,
                std::vector<hazard_location> locations) {
        if (!stopping_) {
            found_ = hazard{kind, kernel_, block.index, options.seed, std::move(detail), std::move(locations)};
            describe_schedule(*found_);
            stopping_ = true;
        }
        throw stopped{};
    }

    // The mutation operator to apply at this synchronisation, if it is the site of the mutation under test. `which`
    // distinguishes several sites on one line.
    mutation_operator pass_site(const simulated_warp& one, synchronisation kind, source where, int which = 0) {
        if (checked && options.sites != nullptr) {
            add_site(*options.sites, {kind, where.file, where.line, one.role, which});
        }
        return operator_at(one, kind, where, which);
    }
    // The same for a site that is listed only when another access relies on it (hw/host/reliance.hpp).
    mutation_operator operator_at(const simulated_warp& one, synchronisation kind, source where, int which = 0) const {
        if (!checked || !options.mutate) return mutation_operator::none;
        const synchronisation_site site{kind, where.file, where.line, one.role, which};
        return options.mutate->site == site ? options.mutate->how : mutation_operator::none;
    }

    // The location of a past access, for a report.
    hazard_location location_of(const access& past) const {
        hazard_location location{"no scope", past.what, past.where.file, past.where.line};
        if (past.by != nullptr) location.who = name_seen_from(running_simulated_warp(), *past.by);
        location.stage = past.stage;
        return location;
    }
    // A simulated warp that waits, other than for its children.
    static bool stuck(const simulated_warp& one) { return !one.finished() && one.children == 0; }

  private:
    static constexpr int seconds_until_deadlock = 10;

    simulated_warp& add(block_state& block, simulated_warp* parent, const char* role, int index, int warps) {
        auto made = make_owned<simulated_warp>();
        simulated_warp& one = *made;
        one.block = &block;
        one.parent = parent;
        one.role = role;
        one.index = index;
        one.warps = warps;
        one.number = static_cast<int>(simulated_warps_.size());
        if (checked) {
            for (int* actor : {&one.actor, &one.copies.actor, &one.stores.actor, &one.mmas.actor, &one.written.actor}) {
                *actor = block.cluster->new_actor();
            }
            one.knows.grid = kernel.known_at_start;
        }
        if (parent != nullptr) {
            ++parent->children;
            one.time = parent->time;
        }
        simulated_warps_.push_back(std::move(made));
        running_.push_back(&one);
        block.cluster->warps.push_back(&one);
        progress();
        return one;
    }

    void describe_schedule(hazard& found) {
        found.scheduler = options.scheduler_text();
        found.replay = options.replay;
        if (events == nullptr) return;
        found.timeline = events->text(found, running_simulated_warp());
        events->add_to(trace, found, running_simulated_warp());
    }

    template <class Work>
    void run_as_this_machine(const Work& work) {
        // A simulated warp of another machine may have made this launch: it continues afterwards.
        machine* const outer = std::exchange(running(), this);
        simulated_warp* const outer_simulated_warp = std::exchange(running_simulated_warp(), nullptr);
        exceptions_outside_ = std::uncaught_exceptions();
        work();
        running() = outer;
        running_simulated_warp() = outer_simulated_warp;
        if (failure_) std::rethrow_exception(failure_);
    }

    void suspend(simulated_warp& one) {
        if (one.context) {
            one.context->suspend();
        } else if (!poll_memory()) {
            report_deadlock(*this);  // no other simulated warp can run
        }
        running_simulated_warp() = &one;
        if (stopping_) throw stopped{};
        if (events != nullptr) events->resumed(one);
    }

    void resume(simulated_warp& one) {
        running_simulated_warp() = &one;
        one.context->resume();
        running_simulated_warp() = nullptr;
        if (!one.finished()) return;
        progress();
        if (one.parent != nullptr) --one.parent->children;
        if (one.context->failure()) {
            try {
                std::rethrow_exception(one.context->failure());
            } catch (const stopped&) {
            } catch (...) {
                if (!failure_) failure_ = std::current_exception();
            }
            stopping_ = true;
        }
        one.ended = true;
        one.context = {};  // its stack serves another
        if (one.parent == nullptr && --one.block->cluster->running == 0) end_cluster(*one.block->cluster);
    }

    void end_cluster(cluster_state& cluster) {
        --resident_;
        std::erase_if(barriers, [&](const auto& one) {
            return one.second.block == nullptr || one.second.block->cluster == &cluster;
        });
        for (block_state* block : cluster.blocks) block->shadow.reset();
        if (source_ != nullptr) source_->ended(cluster);
    }

    bool can_go(const simulated_warp& one) const {
        return !one.finished() && (one.may_go_on == nullptr || one.may_go_on(one.may_go_on_data));
    }

    // Starts a cluster, or advances one simulated warp or operation; false if there is nothing left to do.
    bool step() {
        if (stopping_) return false;
        if (source_ != nullptr && source_->left() > 0 && resident_ < resident_limit_) {
            source_->start_next();
            return true;
        }
        candidates_.clear();
        std::erase_if(running_, [](const simulated_warp* one) { return one->finished(); });
        for (simulated_warp* one : running_) {
            if (can_go(*one)) candidates_.push_back(one);
        }
        if (candidates_.empty() && pending_.empty()) return !running_.empty() && resolve_stall();
        polling_since_ = 0;
        const bool too_long = options.most_steps > 0 && schedule_.steps() > options.most_steps;
        const bool endless = too_long || live_.only_atomic();
        if (!live_.step() || endless) {
            if (checked && !endless && source_ != nullptr && start_more(*running_.front(), source_->left()))
                return true;
            report_livelock(*this);
            return false;
        }
        if (!checked) {
            resume(*next_in_plain_mode());
            return true;
        }
        const schedule::step next = schedule_.next(candidates_, pending_, live_.idle());
        if (next.scope != nullptr) {
            resume(*next.scope);
        } else {
            perform(pending_.take(next.operation));
        }
        return true;
    }

    // No scope can proceed. A block may wait for a value that a cluster writes which has not started yet: it starts now,
    // and if the value comes, the block depends on a block that need not be resident.
    bool resolve_stall() {
        for (const simulated_warp* one : running_) {
            if (!one->waiting_for_memory) continue;
            if (start_more(*one, 1)) return true;
            if (!checked && poll_memory()) return true;
        }
        report_deadlock(*this);
        return false;
    }

    // Allows more clusters to be resident, if any are left.
    bool start_more(const simulated_warp& waiting, int count) {
        if (source_ == nullptr || source_->left() == 0) return false;
        if (stalled_ == nullptr) stalled_ = waiting.block->cluster;
        resident_limit_ += count;
        progress();
        return true;
    }

    // In plain mode other threads run other blocks, so a value may still come. False after ten seconds.
    bool poll_memory() {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (checked || (running_simulated_warp() != nullptr && !running_simulated_warp()->waiting_for_memory)) {
            return false;
        }
        if (polling_since_ == 0) polling_since_ = now.tv_sec;
        sched_yield();
        return now.tv_sec - polling_since_ < seconds_until_deadlock;
    }

    // Round robin. A trace goes by time instead, so that shared units serve requests in the right order.
    simulated_warp* next_in_plain_mode() {
        if (!trace.enabled()) {
            ++turn_;
            return candidates_[turn_ % candidates_.size()];
        }
        simulated_warp* earliest = candidates_.front();
        for (simulated_warp* one : candidates_) {
            if (one->time < earliest->time) earliest = one;
        }
        return earliest;
    }

    void perform(owned<operation> one) {
        progress();
        if (events != nullptr) events->completes(*one->id.issuer, one->id.what, one->id.where);
        try {
            one->perform();
        } catch (const stopped&) {
            if (running_simulated_warp() != nullptr) throw;
        }
    }

    // Ends every suspended simulated warp, children before their parents.
    void unwind() {
        for (auto one = simulated_warps_.rbegin(); one != simulated_warps_.rend(); ++one) {
            while (!(*one)->finished()) resume(**one);
        }
        pending_.clear();
    }

    std::string kernel_;
    schedule schedule_;
    std::size_t turn_ = 0;
    std::vector<owned<cluster_state>> clusters_;
    std::vector<owned<block_state>> blocks_;
    std::vector<owned<simulated_warp>> simulated_warps_;
    std::vector<simulated_warp*> running_, candidates_;
    pending_operations pending_;
    std::optional<hazard> found_;
    std::exception_ptr failure_;
    bool stopping_ = false;
    int exceptions_outside_ = 0;
    cluster_source* source_ = nullptr;
    int resident_ = 0;
    int resident_limit_ = 1;
    const cluster_state* stalled_ = nullptr;  // waited for a cluster that had not started
    liveness live_;
    std::int64_t polling_since_ = 0;  // 0: not polling
};

}  // namespace imbrex::hw
