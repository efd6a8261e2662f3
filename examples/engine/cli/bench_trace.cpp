#include "engine/cli/bench_trace.hpp"

#include <chrono>
#include <queue>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace imbrex::engine {

namespace {

class trace_run {
  public:
    trace_run(text_engine& model, const request_trace& trace, int seed) : model_(model) {
        for (const trace_conversation& one : trace) {
            due_.push({one.arrival, static_cast<int>(talks_.size())});
            talks_.emplace_back(one, static_cast<int>(talks_.size()), model.config().vocab_size, seed);
        }
    }

    request_latencies run(step_cost_file& costs) {
        began_ = statistics::steady_seconds();
        for (double step_began = 0; !due_.empty() || !model_.idle();) {
            const bool was_idle = model_.idle();
            submit_due();
            if (model_.idle()) {
                std::this_thread::sleep_for(std::chrono::duration<double>(due_.top().first - now()));
                continue;
            }
            if (was_idle) step_began = now();
            const std::vector<text_event> events = model_.step();
            // From the end of one step to that of the next: with what the caller does in between, unless it overlaps.
            const double step_ended = now();
            costs.add(model_.last_step(), step_ended - std::exchange(step_began, step_ended));
            for (const text_event& each : events) take(each, step_ended);
        }
        return std::move(latencies_);
    }

  private:
    struct running {
        int talk, request;
    };

    double now() const { return statistics::steady_seconds() - began_; }

    void submit_due() {
        for (const double until = now(); !due_.empty() && due_.top().first <= until; due_.pop()) {
            const auto [time, number] = due_.top();
            conversation_tokens& talk = talks_[static_cast<std::size_t>(number)];
            const text_options options{.max_tokens = talk.turn().output,
                                       .sampling = {.temperature = 0, .bias = {}, .stop = {}},
                                       .ends = false};
            const sequence_id id = model_.submit(talk.ask(), options);
            running_.emplace(id, running{number, latencies_.arrived(time)});
        }
    }

    void take(const text_event& event, double time) {
        const auto [number, request] = running_.at(event.id);
        conversation_tokens& talk = talks_[static_cast<std::size_t>(number)];
        talk.answer(event.sampled.token);
        latencies_.token(request, time);
        if (event.reason == finish_reason::none) return;
        latencies_.finished(request);
        running_.erase(event.id);
        if (talk.has_turn()) due_.push({time + talk.turn().think, number});
    }

    text_engine& model_;
    double began_ = 0;
    std::vector<conversation_tokens> talks_;
    using due_turn = std::pair<double, int>;  // time, conversation
    std::priority_queue<due_turn, std::vector<due_turn>, std::greater<>> due_;
    std::unordered_map<sequence_id, running> running_;
    request_latencies latencies_;
};

}  // namespace

request_latencies run_trace(text_engine& model, const request_trace& trace, int seed, step_cost_file& costs) {
    return trace_run(model, trace, seed).run(costs);
}

}  // namespace imbrex::engine
