// An engine without a model: each sequence gets tokens "0 ", "1 ", ... until max_tokens. It can be slow, and a step can fail.
#pragma once

#include <imbrex/core/error.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine/server/generation_engine.hpp"

namespace imbrex::engine::server {

class fake_engine final : public generation_engine {
  public:
    std::atomic<int> step_microseconds = 0;
    std::atomic<int> failing_steps = 0;  // the next ones
    std::atomic<int> batch_size = 1000;  // sequences of a step, in the order of arrival
    std::atomic<int> running = 0, steps = 0;
    std::atomic<bool> forgets_batch = false;  // fails before it has a batch

    sequence_id submit(const generation_request& request) override {
        require(!request.prompt.empty(), "prompt: it has no tokens");
        sequences_[next_] = {request.options.max_tokens, 0};
        running = static_cast<int>(sequences_.size());
        return next_++;
    }

    void cancel(sequence_id id) override {
        sequences_.erase(id);
        running = static_cast<int>(sequences_.size());
    }

    std::vector<text_event> step() override {
        std::this_thread::sleep_for(std::chrono::microseconds(step_microseconds));
        ++steps;
        batch_.clear();
        for (const auto& [id, state] : sequences_) {
            if (batch_.size() < static_cast<std::size_t>(batch_size.load())) batch_.push_back(id);
        }
        if (failing_steps > 0) {
            --failing_steps;
            if (forgets_batch) batch_.clear();
            throw error("the kernel failed");
        }
        std::vector<text_event> events;
        for (const sequence_id id : batch_) {
            auto& [most, made] = sequences_.at(id);
            text_event one{.id = id, .text = std::to_string(made) + " ", .sampled = {.token = made}};
            if (++made == most) {
                one.reason = finish_reason::length;
                sequences_.erase(id);
            }
            events.push_back(one);
        }
        running = static_cast<int>(sequences_.size());
        return events;
    }

    std::vector<sequence_id> failed_batch() const override { return batch_; }
    statistics_summary summary() const override { return {.arrived = next_}; }

  private:
    struct state {
        int most = 0, made = 0;
    };
    std::map<sequence_id, state> sequences_;
    std::vector<sequence_id> batch_;
    sequence_id next_ = 0;
};

inline generation_request tokens_wanted(int count) {
    generation_request request{.prompt = {1, 2, 3}};
    request.options.max_tokens = count;
    return request;
}

}  // namespace imbrex::engine::server
