#include "serving/fleet_simulation.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace bench {

using namespace imbrex::engine;
using imbrex::require;

namespace {

constexpr int vocab_size = 1 << 20;

class fleet_run {
  public:
    fleet_run(const fleet_options& options, const request_trace& trace)
        : policy_(make_policy(options.policy, options.replicas, options.bounded)),
          trace_(trace),
          overlaps_(options.replica.overlaps),
          outstanding_(static_cast<std::size_t>(options.replicas)),
          running_(static_cast<std::size_t>(options.replicas)),
          routed_(static_cast<std::size_t>(options.replicas)) {
        for (int i = 0; i < options.replicas; ++i) replicas_.emplace_back(options.replica, options.costs);
        for (std::size_t i = 0; i < trace.size(); ++i) push(trace[i].arrival, static_cast<int>(i), kind::arrival);
    }

    fleet_result run(const latency_limits& limits) {
        while (!events_.empty()) {
            const auto [time, order, what, number] = events_.top();
            events_.pop();
            now_ = time;
            if (what == kind::arrival) {
                arrive(number, time);
            } else {
                finish_step(number);
            }
        }
        return result(limits);
    }

  private:
    enum class kind { arrival, step };
    struct running {
        int talk, request;
        std::int64_t left;  // outstanding tokens
    };

    void push(double time, int number, kind what) { events_.emplace(time, ++order_, what, number); }

    void arrive(int number, double due) {
        const trace_conversation& conversation = trace_[static_cast<std::size_t>(number)];
        conversation_tokens& talk = talks_.try_emplace(number, conversation, number, vocab_size).first->second;
        const int output = talk.turn().output;
        const auto tokens = static_cast<std::int64_t>(talk.ask().size()) + output;
        const int chosen = policy_(
            {.conversation = static_cast<std::uint64_t>(number), .system = conversation.system, .tokens = tokens},
            outstanding_);
        const auto at = static_cast<std::size_t>(chosen);
        outstanding_[at] += tokens;
        routed_[at].push_back({number, latencies_.arrived(due), tokens});
        if (!overlaps_ || !replicas_[at].is_busy()) submit_routed(at);
        begin_step(chosen);
    }

    void submit_routed(std::size_t at) {
        for (const running& each : std::exchange(routed_[at], {})) {
            const conversation_tokens& talk = talks_.at(each.talk);
            running_[at].emplace(replicas_[at].add(talk.tokens(), talk.last_turn().output), each);
        }
    }

    void begin_step(int number) {
        const auto seconds = replicas_[static_cast<std::size_t>(number)].begin_step();
        if (seconds) push(now_ + *seconds, number, kind::step);
    }

    void finish_step(int number) {
        const auto at = static_cast<std::size_t>(number);
        for (const progress& each : replicas_[at].end_step()) take(at, each);
        begin_step(number);
        submit_routed(at);  // there are some if steps overlap: they missed the step that has just begun
        begin_step(number);
    }

    void take(std::size_t at, const progress& each) {
        running& it = running_[at].at(each.id);
        conversation_tokens& talk = talks_.at(it.talk);
        talk.answer(each.token);
        latencies_.token(it.request, now_);
        // The first token ends the prompt; each token is one of the output.
        const trace_turn& turn = talk.last_turn();
        const std::int64_t left = std::min<std::int64_t>(it.left, turn.output) - 1;
        outstanding_[at] -= std::exchange(it.left, left) - left;
        if (each.reason == finish_reason::none) return;
        latencies_.finished(it.request);
        const int number = it.talk;
        running_[at].erase(each.id);
        if (talk.has_turn()) {
            push(now_ + talk.turn().think, number, kind::arrival);
        } else {
            talks_.erase(number);
        }
    }

    fleet_result result(const latency_limits& limits) const {
        fleet_result made{.latencies = latencies_.summary(limits)};
        double busy = 0, prompt = 0, cached = 0;
        for (const replica& one : replicas_) {
            busy += one.busy_seconds();
            made.steps += one.steps();
            made.preemptions += one.state().counts().preemptions;
            prompt += static_cast<double>(one.state().counts().prompt_tokens);
            cached += static_cast<double>(one.state().counts().cached_tokens);
        }
        const double all = made.latencies.seconds * static_cast<double>(replicas_.size());
        made.utilisation = all > 0 ? busy / all : 0;
        made.hit_rate = prompt > 0 ? cached / prompt : 0;
        return made;
    }

    routing_policy policy_;
    const request_trace& trace_;
    bool overlaps_;
    std::vector<replica> replicas_;
    std::vector<std::int64_t> outstanding_;  // tokens of each replica
    std::vector<std::unordered_map<sequence_id, running>> running_;
    std::vector<std::vector<running>> routed_;            // requests that the scheduler does not have yet
    std::unordered_map<int, conversation_tokens> talks_;  // that go on
    request_latencies latencies_;
    double now_ = 0;
    std::int64_t order_ = 0;  // events of the same time come in the order in which they were made
    using event = std::tuple<double, std::int64_t, kind, int>;
    std::priority_queue<event, std::vector<event>, std::greater<>> events_;
};

}  // namespace

replica::replica(const replica_options& options, const step_costs& costs)
    : scheduler_(block_manager(options.groups, options.block_size), options.scheduler), costs_(costs) {}

sequence_id replica::add(std::vector<int> prompt, int output) {
    request wanted{.prompt = std::move(prompt), .max_new_tokens = output, .eos_tokens = {}, .sampling = {}};
    return scheduler_.add(wanted).front();
}

std::optional<double> replica::begin_step() {
    if (!work_.entries.empty() || scheduler_.idle()) return std::nullopt;
    work_ = scheduler_.schedule();
    require(!work_.entries.empty(), "replica: ", scheduler_.waiting(), " sequences wait and none can run");
    const double seconds = costs_.seconds(load_of(work_));
    busy_seconds_ += seconds;
    ++steps_;
    return seconds;
}

std::vector<progress> replica::end_step() {
    std::vector<int> sampled;
    for (const batch_entry& entry : work_.entries) {
        if (!entry.samples) continue;
        const auto made = static_cast<std::uint64_t>(entry.sequence->id) * 7919 +
                          static_cast<std::uint64_t>(entry.sequence->length());
        sampled.push_back(static_cast<int>(made % vocab_size));
    }
    return scheduler_.finish(std::exchange(work_, {}), sampled);
}

fleet_result simulate(const fleet_options& options, const request_trace& trace, const latency_limits& limits) {
    return fleet_run(options, trace).run(limits);
}

fleet_size smallest_fleet(fleet_options options, const request_trace& trace, const latency_limits& limits,
                          double goodput, int most) {
    require(goodput > 0 && goodput <= 1, "goodput: ", goodput, "; it must be more than 0 and at most 1");
    require(most >= 1, "most: ", most, "; it must be at least one replica");
    fleet_size best;
    const auto is_enough = [&](int replicas) {
        options.replicas = replicas;
        const fleet_result made = simulate(options, trace, limits);
        const bool enough = made.latencies.goodput >= goodput;
        if (enough) best = {replicas, made};
        return enough;
    };
    int high = 1;
    while (!is_enough(high)) {
        if (high == most) return best;
        high = std::min(2 * high, most);
    }
    for (int low = high / 2; high - low > 1;) {
        const int middle = low + (high - low) / 2;
        (is_enough(middle) ? high : low) = middle;
    }
    return best;
}

}  // namespace bench
