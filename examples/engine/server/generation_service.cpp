#include "engine/server/generation_service.hpp"

#include <algorithm>
#include <imbrex/core/error.hpp>
#include <iterator>

namespace imbrex::engine::server {

std::vector<generation_event> generation::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !events_.empty() || ended_; });
    if (events_.empty() && failure_) throw *failure_;
    return std::exchange(events_, {});
}

void generation::cancel() {
    {
        const std::scoped_lock lock(mutex_);
        if (ended_) return;
        ended_ = true;
        events_.clear();
        changed_.notify_all();
    }
    service_.cancel(shared_from_this());
}

// Hands over the events of the step.
void generation::give(bool is_last) {
    const std::scoped_lock lock(mutex_);
    if (!ended_) std::ranges::move(step_events_, std::back_inserter(events_));
    step_events_.clear();
    ended_ |= is_last;
    changed_.notify_all();
}

void generation::fail(const api_error& failure) {
    const std::scoped_lock lock(mutex_);
    if (ended_) return;
    failure_ = failure;
    ended_ = true;
    changed_.notify_all();
}

void latency_histogram::add(double seconds) {
    ++counts[std::ranges::lower_bound(bounds, seconds) - std::begin(bounds)];
    ++count;
    sum += seconds;
}

generation_service::generation_service(generation_engine& engine, const service_limits& limits)
    : engine_(engine), limits_(limits), thread_([this] { run(); }) {}

generation_service::~generation_service() {
    {
        const std::scoped_lock lock(mutex_);
        draining_ = stopping_ = true;
    }
    work_.notify_all();
    thread_.join();
}

std::shared_ptr<generation> generation_service::submit(std::vector<generation_request> requests) {
    const std::shared_ptr<generation> made(new generation(*this));
    const int count = static_cast<int>(requests.size());
    made->requests_ = std::move(requests);
    made->running_ = count;
    made->arrived_ = made->last_event_ = service_clock::now();
    if (limits_.time_limit.count() > 0) made->deadline_ = made->arrived_ + limits_.time_limit;
    const std::scoped_lock lock(mutex_);
    const bool is_full = figures_.sequences + count > limits_.running + limits_.queue;
    if (draining_ || is_full) ++figures_.refused;
    if (draining_) throw api_error(503, "the server is shutting down; it takes no new requests");
    if (is_full) {
        throw api_error(429, str_cat("the queue is full: ", figures_.sequences, " sequences are served or wait, and ",
                                     limits_.running + limits_.queue, " are allowed; try again later"));
    }
    figures_.sequences += count;
    ++figures_.submitted;
    next_.added.push_back(made);
    work_.notify_all();
    return made;
}

bool generation_service::drain(std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_);
    draining_ = true;
    const auto is_idle = [&] { return figures_.sequences == 0; };
    if (idle_.wait_for(lock, at_most, is_idle)) return true;
    next_.ends_all = true;
    work_.notify_all();
    idle_.wait(lock, is_idle);
    return false;
}

service_status generation_service::status() const {
    const std::scoped_lock lock(mutex_);
    return {draining_, figures_.failed_steps};
}

service_figures generation_service::figures() const {
    std::unique_lock lock(mutex_);
    wants_summary_ = true;
    work_.notify_all();
    summary_made_.wait(lock, [&] { return !wants_summary_ || stopping_; });
    service_figures result = figures_;
    result.is_draining = draining_;
    return result;
}

void generation_service::cancel(pointer one) {
    const std::scoped_lock lock(mutex_);
    next_.cancelled.push_back(std::move(one));
    work_.notify_all();
}

void generation_service::run() {
    work next;
    while (take_work(next)) {
        for (const pointer& one : next.added) start(one);
        for (const pointer& one : next.cancelled) end(*one, &service_figures::cancelled);
        if (next.ends_all)
            end_all(api_error(503, "the server is shutting down; the request took too long"), &service_figures::failed);
        expire();
        step();
    }
    end_all(api_error(503, "the server has stopped"), &service_figures::failed);
}

// Waits until there is something to do; false at the end.
bool generation_service::take_work(work& next) {
    std::unique_lock lock(mutex_);
    const bool has_sequences = !sequences_.empty();
    work_.wait(lock, [&] {
        return has_sequences || stopping_ || wants_summary_ || next_.ends_all || !next_.added.empty() ||
               !next_.cancelled.empty();
    });
    next = std::exchange(next_, {});
    if (std::exchange(wants_summary_, false)) {
        figures_.engine = engine_.summary();
        summary_made_.notify_all();
    }
    if (!stopping_) return true;
    for (const pointer& one : next.added) active_.emplace(one.get(), one);  // to be ended
    summary_made_.notify_all();
    return false;
}

void generation_service::start(const pointer& one) {
    active_.emplace(one.get(), one);
    std::int64_t prompt_tokens = 0;
    try {
        for (const generation_request& each : one->requests_) {
            const sequence_id id = engine_.submit(each);
            sequences_.emplace(id, place{one, static_cast<int>(one->sequences_.size())});
            one->sequences_.push_back(id);
            prompt_tokens += static_cast<std::int64_t>(each.prompt.size());
        }
        const std::scoped_lock lock(mutex_);
        figures_.prompt_tokens += prompt_tokens;
    } catch (const invalid_argument& failure) {
        one->fail(api_error(400, failure.what()));
        end(*one, &service_figures::failed);
    } catch (const std::exception& failure) {
        one->fail(api_error(500, failure.what()));
        end(*one, &service_figures::failed);
    }
}

void generation_service::expire() {
    if (limits_.time_limit.count() == 0) return;
    const service_clock::time_point now = service_clock::now();
    std::vector<pointer> late;
    for (const auto& [key, one] : active_) {
        if (now >= one->deadline_) late.push_back(one);
    }
    for (const pointer& one : late) {
        one->fail(api_error(504, str_cat("the request took longer than the server's limit of ",
                                         static_cast<double>(limits_.time_limit.count()) / 1000, " seconds")));
        end(*one, &service_figures::timed_out);
    }
}

void generation_service::step() {
    if (sequences_.empty()) return;
    std::string failure;
    try {
        deliver(engine_.step());
        return;
    } catch (const std::exception& error) {
        failure = error.what();
    }
    end_failed_batch("the step failed: " + failure);
}

void generation_service::deliver(std::vector<text_event> events) {
    std::vector<pointer> receivers;
    int ended = 0;
    const auto generated =
        std::ranges::count_if(events, [](const text_event& one) { return one.sampled.embedding.empty(); });
    for (text_event& each : events) {
        const auto found = sequences_.find(each.id);
        if (found == sequences_.end()) continue;
        const auto [owner, index] = found->second;
        if (owner->step_events_.empty()) receivers.push_back(owner);
        if (each.reason != finish_reason::none) {
            sequences_.erase(found);
            --owner->running_;
            ++ended;
        }
        owner->step_events_.push_back(
            {index, std::move(each.text), std::move(each.sampled), each.reason, each.cached_tokens});
    }
    int completed = 0;
    for (const pointer& one : receivers) {
        const bool is_last = one->running_ == 0;
        completed += is_last ? 1 : 0;
        if (is_last) active_.erase(one.get());
        one->give(is_last);
    }
    const service_clock::time_point now = service_clock::now();
    const std::scoped_lock lock(mutex_);
    for (const pointer& one : receivers) measure(*one, now);
    figures_.generated_tokens += generated;
    figures_.completed += completed;
    figures_.failed_steps = 0;
    figures_.sequences -= ended;
    if (figures_.sequences == 0) idle_.notify_all();
}

void generation_service::measure(generation& one, service_clock::time_point now) {
    const auto seconds_since = [&](service_clock::time_point past) {
        return std::chrono::duration<double>(now - past).count();
    };
    const bool is_first = one.last_event_ == one.arrived_;
    (is_first ? figures_.time_to_first_token : figures_.inter_token_latency).add(seconds_since(one.last_event_));
    one.last_event_ = now;
    if (one.running_ == 0) figures_.duration.add(seconds_since(one.arrived_));
}

// The sequences of the batch, or all if the engine failed before it made one: a failure must not repeat for ever.
void generation_service::end_failed_batch(const std::string& message) {
    {
        const std::scoped_lock lock(mutex_);
        ++figures_.failed_steps;
    }
    const api_error failure(500, message);
    std::vector<pointer> failed;
    for (const sequence_id id : engine_.failed_batch()) {
        if (const auto found = sequences_.find(id); found != sequences_.end()) failed.push_back(found->second.owner);
    }
    if (failed.empty()) end_all(failure, &service_figures::failed);
    for (const pointer& one : failed) {
        one->fail(failure);
        end(*one, &service_figures::failed);
    }
}

// Frees what an active generation has; nothing for one that has ended.
void generation_service::end(generation& one, std::int64_t service_figures::*outcome) {
    const auto found = active_.find(&one);
    if (found == active_.end()) return;
    const pointer kept = found->second;
    active_.erase(found);
    for (const sequence_id id : one.sequences_) {
        if (sequences_.erase(id) > 0) engine_.cancel(id);
    }
    const std::scoped_lock lock(mutex_);
    ++(figures_.*outcome);
    figures_.sequences -= one.running_;
    if (figures_.sequences == 0) idle_.notify_all();
}

void generation_service::end_all(const api_error& failure, std::int64_t service_figures::*outcome) {
    const auto all = active_;
    for (const auto& [key, one] : all) {
        one->fail(failure);
        end(*one, outcome);
    }
}

}  // namespace imbrex::engine::server
