// The engine as a service: one thread owns it and steps it; any thread submits generations and waits for their events.
//
//   submit --> queue --> [engine thread: start, cancel, expire, step] --> events of each generation --> wait
//
// A generation is the work of one API request: one or more sequences, whose events carry the index of the sequence. It
// ends when all its sequences have ended, when it is cancelled, at its time limit, or with the step that fails; the
// service goes on. Nothing here knows HTTP; failures carry the status that a server answers with.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/server/api_error.hpp"
#include "engine/server/generation_engine.hpp"

namespace imbrex::engine::server {

using service_clock = std::chrono::steady_clock;

struct generation_event {
    int index = 0;  // of the sequence in its generation
    std::string text{};
    sampled_token sampled{};
    finish_reason reason = finish_reason::none;
    int cached_tokens = 0;  // of the prompt, from the prefix cache
};

class generation_service;

class generation : public std::enable_shared_from_this<generation> {
  public:
    // Waits for events and returns all that have come; none after the last sequence has ended, or after cancel(). Throws
    // the api_error that ended the generation, after the events before it.
    std::vector<generation_event> wait();

    // From any thread. The blocks are freed before the next step.
    void cancel();

  private:
    friend class generation_service;

    explicit generation(generation_service& service) : service_(service) {}
    void give(bool is_last);
    void fail(const api_error& failure);

    generation_service& service_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<generation_event> events_;
    std::optional<api_error> failure_;
    bool ended_ = false;

    // Of the engine thread.
    std::vector<generation_request> requests_;  // until they are submitted
    std::vector<sequence_id> sequences_;
    int running_ = 0;
    std::vector<generation_event> step_events_;  // of this step
    service_clock::time_point arrived_{}, deadline_ = service_clock::time_point::max(), last_event_{};
};

struct service_limits {
    int running = 64;                         // sequences that the engine runs at once
    int queue = 256;                          // sequences that wait, beyond these
    std::chrono::milliseconds time_limit{0};  // of a generation; 0: none
};

// Cumulative counts, with upper bounds in seconds as in Prometheus.
struct latency_histogram {
    static constexpr double bounds[] = {.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60};
    std::int64_t counts[std::size(bounds) + 1] = {};
    std::int64_t count = 0;
    double sum = 0;

    void add(double seconds);
};

struct service_figures {
    std::int64_t submitted = 0, completed = 0, cancelled = 0, failed = 0, timed_out = 0, refused = 0;  // generations
    std::int64_t prompt_tokens = 0, generated_tokens = 0;
    int sequences = 0;     // in flight: running and waiting
    int failed_steps = 0;  // in a row
    bool is_draining = false;
    latency_histogram time_to_first_token{}, inter_token_latency{}, duration{};
    statistics_summary engine{};
};

struct service_status {
    bool is_draining = false;
    int failed_steps = 0;  // in a row
};

class generation_service {
  public:
    generation_service(generation_engine& engine, const service_limits& limits);
    ~generation_service();  // ends what runs
    generation_service(const generation_service&) = delete;
    generation_service& operator=(const generation_service&) = delete;

    // Throws api_error 429 if the queue is full, 503 while draining.
    std::shared_ptr<generation> submit(std::vector<generation_request> requests);

    // From now on submit() throws. Waits until nothing runs; after this time, what still runs ends with an error. True if
    // nothing had to be ended.
    bool drain(std::chrono::milliseconds at_most);

    service_status status() const;
    service_figures figures() const;  // waits for the step that runs
    const service_limits& limits() const { return limits_; }

  private:
    friend class generation;
    using pointer = std::shared_ptr<generation>;
    struct place {  // of a sequence
        pointer owner;
        int index = 0;
    };

    struct work {
        std::vector<pointer> added{}, cancelled{};
        bool ends_all = false;
    };

    void run();
    bool take_work(work& next);
    void start(const pointer& one);
    void expire();
    void step();
    void deliver(std::vector<text_event> events);
    void measure(generation& one, service_clock::time_point now);
    void end_failed_batch(const std::string& message);
    void end(generation& one, std::int64_t service_figures::*outcome);
    void end_all(const api_error& failure, std::int64_t service_figures::*outcome);
    void cancel(pointer one);

    generation_engine& engine_;
    const service_limits limits_;

    mutable std::mutex mutex_;
    mutable std::condition_variable work_;
    std::condition_variable idle_;
    mutable std::condition_variable summary_made_;
    work next_;
    bool draining_ = false, stopping_ = false;
    mutable bool wants_summary_ = false;
    service_figures figures_;

    // Of the engine thread.
    std::unordered_map<generation*, pointer> active_;
    std::unordered_map<sequence_id, place> sequences_;

    std::thread thread_;  // the last member: it uses the others
};

}  // namespace imbrex::engine::server
