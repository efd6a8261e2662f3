// The host world's machine: it simulates one thread block cluster on one OS thread. It owns the blocks' shared memory,
// the simulated warps (one per running scope: a fiber with the checker's clocks) and the asynchronous operations in
// flight, and it schedules them. In plain mode a simulated warp runs until it must wait, and operations complete when
// issued. In checked mode a seed determines the schedule: at every synchronisation and asynchronous operation, which
// simulated warp runs next and whether an operation completes early, late or in between.
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/core/owned.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/barrier_counters.hpp>
#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/hw/host/options.hpp>
#include <imbrex/hw/host/random.hpp>
#include <imbrex/hw/host/state.hpp>
#include <imbrex/hw/host/trace.hpp>

#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace imbrex::hw {

class machine {
  public:
    machine(const char* kernel, const host_options& options)
        : options(options), checked(options.mode == host_mode::checked), kernel_(kernel), random_(options.seed) {
        if (!options.trace_file.empty()) trace.enable();
        policy_ = static_cast<policy>(options.seed % 4);
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
    trace_writer trace;
    std::vector<owned<block_state>> blocks;
    std::map<const barrier_word*, barrier_state> barriers;
    named_barrier_state cluster_barrier;

    const std::optional<hazard>& found() const { return found_; }
    bool stopping() const { return stopping_; }
    int new_actor() { return actors_++; }
    const std::vector<owned<simulated_warp>>& simulated_warps() const { return simulated_warps_; }

    // Creates a simulated warp that will run `body(simulated warp)`.
    template <class Body>
    simulated_warp& start(block_state& block, simulated_warp* parent, const char* role, int index, int warps,
                          Body body) {
        simulated_warp& one = add(block, parent, role, index, warps);
        one.context = make_owned<fiber>([this, &one, body] {
            if (!stopping_) body(one);
        });
        return one;
    }

    // The same if no other simulated warp could run meanwhile: it runs now, on the caller's stack.
    template <class Body>
    void run_in_place(block_state& block, simulated_warp* parent, const char* role, int index, int warps,
                      const Body& body) {
        simulated_warp& one = add(block, parent, role, index, warps);
        running_simulated_warp() = &one;
        body(one);
        running_simulated_warp() = parent;
        one.ended = true;
        if (parent != nullptr) --parent->children;
    }

    // Runs all simulated warps to their end. A hazard or an exception ends them early.
    void run() {
        run_as_this_machine([this] {
            while (step()) {}
            if (stopping_) unwind();
        });
    }

    // Runs an unchecked block of one warp, which never needs to be suspended.
    template <class Body>
    void run_alone(block_state& block, const Body& body) {
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

    // In checked mode, lets the seed select the next simulated warp.
    void pause(simulated_warp& one) {
        if ((checked || trace.enabled()) && !stopping_) suspend(one);
    }

    // Issues an asynchronous operation. Operations with the same `in_order_with` complete in the order of issue;
    // `group` is the group of that queue that it belongs to.
    template <class Perform>
    void ask(const void* in_order_with, std::uint32_t group, Perform perform) {
        if (!checked || policy_ == policy::eager) {
            perform();
            return;
        }
        struct closure final : operation {
            explicit closure(Perform p) : perform_it(std::move(p)) {}
            void perform() override { perform_it(); }
            Perform perform_it;
        };
        auto made = make_owned<closure>(std::move(perform));
        made->in_order_with = in_order_with;
        made->group = group;
        pending_.push_back(std::move(made));
    }

    // Completes the operations of one queue up to a group now.
    void finish(const void* in_order_with, std::uint32_t group) {
        for (std::size_t i = 0; i < pending_.size();) {
            if (pending_[i]->in_order_with == in_order_with && pending_[i]->group <= group) {
                perform(i);
            } else {
                ++i;
            }
        }
    }

    // Records a hazard and ends the run. Only the first is kept: later ones may be its consequences.
    void report(hazard_kind kind, const block_state& block, std::string detail,
                std::vector<hazard_location> locations) {
        if (!stopping_) {
            found_ = hazard{kind, kernel_, block.index, options.seed, std::move(detail), std::move(locations)};
            stopping_ = true;
        }
        throw stopped{};
    }

    // The mutation operator to apply at this synchronisation, if it is the site of the mutation under test. `which`
    // distinguishes several sites on one line.
    mutation_operator pass_site(const simulated_warp& one, synchronisation kind, source where, int which = 0) {
        if (!checked) return mutation_operator::none;
        if (options.sites == nullptr && !options.mutate) return mutation_operator::none;
        const synchronisation_site site{kind, where.file, where.line, one.role, which};
        if (options.sites != nullptr) {
            bool known = false;
            for (const synchronisation_site& old : *options.sites) known = known || old == site;
            if (!known) options.sites->push_back(site);
        }
        return options.mutate && options.mutate->site == site ? options.mutate->how : mutation_operator::none;
    }

    // The location of a past access, for a report.
    hazard_location location_of(const access& past) const {
        hazard_location location{past.by != nullptr ? past.by->name() : "no scope", past.what, past.where.file,
                                 past.where.line};
        location.stage = past.stage;
        return location;
    }

  private:
    enum class policy { late, eager, random, random_again };

    simulated_warp& add(block_state& block, simulated_warp* parent, const char* role, int index, int warps) {
        auto made = make_owned<simulated_warp>();
        simulated_warp& one = *made;
        one.block = &block;
        one.parent = parent;
        one.role = role;
        one.index = index;
        one.warps = warps;
        if (checked) {
            one.actor = new_actor();
            one.copies.actor = new_actor();
            one.stores.actor = new_actor();
            one.mmas.actor = new_actor();
        }
        if (parent != nullptr) {
            ++parent->children;
            one.time = parent->time;
        }
        simulated_warps_.push_back(std::move(made));
        return one;
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
        } else {
            report_deadlock();  // no other simulated warp can run
        }
        running_simulated_warp() = &one;
        if (stopping_) throw stopped{};
    }

    void resume(simulated_warp& one) {
        running_simulated_warp() = &one;
        one.context->resume();
        running_simulated_warp() = nullptr;
        if (!one.finished()) return;
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
    }

    bool can_go(const simulated_warp& one) const {
        return !one.finished() && (one.may_go_on == nullptr || one.may_go_on(one.may_go_on_data));
    }

    // Advances one simulated warp or operation; false if there is nothing left to do.
    bool step() {
        if (stopping_) return false;
        candidates_.clear();
        bool alive = false;
        for (auto& one : simulated_warps_) {
            if (one->finished()) continue;
            alive = true;
            if (can_go(*one)) candidates_.push_back(one.get());
        }
        const bool operations = !pending_.empty();
        if (candidates_.empty() && !operations) {
            if (alive) report_deadlock();
            return false;
        }
        if (!checked) {
            resume(*next_in_plain_mode());
        } else if (!candidates_.empty() && (!operations || policy_ == policy::late || random_.below(2) == 0)) {
            resume(*candidates_[random_.below(static_cast<int>(candidates_.size()))]);
        } else {
            perform_one();
        }
        return true;
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

    void perform_one() {
        std::size_t chosen = random_.below(static_cast<int>(pending_.size()));
        for (std::size_t i = 0; i < chosen; ++i) {
            if (pending_[i]->in_order_with != nullptr &&
                pending_[i]->in_order_with == pending_[chosen]->in_order_with) {
                chosen = i;
            }
        }
        perform(chosen);
    }

    void perform(std::size_t at) {
        owned<operation> one = std::move(pending_[at]);
        pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
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

    // Deadlock. If one scope's mistake explains it, reports that; otherwise where each scope waits and for what.
    void report_deadlock() {
        std::vector<hazard_location> waiting;
        const block_state* block = blocks.front().get();
        for (auto& one : simulated_warps_) {
            if (!stuck(*one)) continue;
            block = one->block;
            waiting.push_back(
                {one->name(), "waits for " + one->waiting_for, one->waiting_at.file, one->waiting_at.line});
        }
        try {
            report_wrong_byte_count();
            report_incomplete_collective();
            report(hazard_kind::deadlock, *block, "no scope can proceed", waiting);
        } catch (const stopped&) {}
    }

    // A simulated warp that waits, other than for its children.
    static bool stuck(const simulated_warp& one) { return !one.finished() && one.children == 0; }

    // A barrier expects more warps than are left: a scope has ended without arriving.
    void report_incomplete_collective() {
        for (const auto& one : simulated_warps_) {
            if (!stuck(*one) || one->waiting_on == nullptr) continue;
            const bool of_cluster = one->waiting_on == &cluster_barrier;
            const barrier_word* word = word_of(one->waiting_on);
            int missing = 0;
            if (word != nullptr) {
                missing = barrier_counters::of(*word).pending;
            } else {
                const auto& state = *static_cast<const named_barrier_state*>(one->waiting_on);
                missing = state.expected - state.arrived;
            }
            int left = 0;
            std::vector<hazard_location> locations{
                {one->name(), "waits for " + one->waiting_for, one->waiting_at.file, one->waiting_at.line}};
            for (const auto& other : simulated_warps_) {
                const bool of_block = word == nullptr && !of_cluster;
                if (other->waiting_on == one->waiting_on || (of_block && other->block != one->block)) continue;
                // A warp may arrive more than once at a transaction barrier.
                if (stuck(*other)) left += word != nullptr ? missing : other->warps;
                if (!other->finished()) continue;
                if (word != nullptr || of_cluster == (other->parent == nullptr)) {
                    locations.push_back({other->name(), "has ended", "", 0});
                }
            }
            if (missing == 0 || left >= missing || locations.size() == 1) continue;
            report(hazard_kind::incomplete_collective, *one->block,
                   str_cat("warps still expected: ", missing, "; that could arrive: ", left), locations);
        }
    }

    const barrier_word* word_of(const void* state) const {
        for (const auto& [word, one] : barriers) {
            if (&one == state) return word;
        }
        return nullptr;
    }

    // A barrier with all its arrivals that still expects bytes was armed with more than was copied.
    void report_wrong_byte_count() {
        for (const auto& [word, state] : barriers) {
            const barrier_counters counters = barrier_counters::of(*word);
            if (counters.pending != 0 || counters.bytes == 0) continue;
            report(hazard_kind::wrong_byte_count, *state.block,
                   str_cat("all copies have landed and the barrier still waits for ", counters.bytes, " bytes"),
                   {location_of(state.last_arrive), location_of(state.last_copy)});
        }
    }

    std::string kernel_;
    schedule_rng random_;
    policy policy_ = policy::late;
    std::size_t turn_ = 0;
    int actors_ = 0;
    std::vector<owned<simulated_warp>> simulated_warps_;
    std::vector<simulated_warp*> candidates_;
    std::vector<owned<operation>> pending_;
    std::optional<hazard> found_;
    std::exception_ptr failure_;
    bool stopping_ = false;
    int exceptions_outside_ = 0;
};

}  // namespace imbrex::hw
