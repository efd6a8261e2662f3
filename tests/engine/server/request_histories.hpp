// Random histories of requests through the generation service: clients submit generations of one to three sequences, read
// them to the end, leave after some events, lose their connection, or ask for what cannot be served. The texts of each
// request alone are known: a generation that ends gets them, any other a part of them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/server/generation_service.hpp"

namespace imbrex::engine::server {

struct known_request {
    generation_request request;
    std::string text;  // alone
    finish_reason reason = finish_reason::none;
};

// The environment variable IMBREX_HISTORIES; the preset "full" sets it to 10,000. With IMBREX_FIRST_HISTORY several processes
// share the work.
inline int number_of_environment(const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::max(0, std::atoi(text));
}
inline int histories_to_run(int usual) {
    return number_of_environment("IMBREX_HISTORIES", usual);
}
inline int first_history() {
    return number_of_environment("IMBREX_FIRST_HISTORY", 0);
}

// Over all histories; each must occur, or the test covers nothing.
struct outcomes_met {
    std::atomic<int> complete = 0, left = 0, disconnected = 0, bad = 0, late = 0, failed = 0, full = 0, wrong = 0;
};

class request_history {
  public:
    // Bad requests end with status 400, whatever else they are asked with.
    request_history(generation_service& service, const std::vector<known_request>& known, generation_request bad,
                    unsigned seed, outcomes_met& met)
        : service_(service), known_(known), bad_(std::move(bad)), seed_(seed), met_(met) {}

    // Afterwards no sequence is left, and every generation is counted once.
    void run() {
        const service_figures before = service_.figures();
        std::vector<std::thread> clients;
        const unsigned count = 1 + seed_ % 3;
        for (unsigned i = 0; i < count; ++i) clients.emplace_back([this, i] { act(4 * seed_ + i); });
        std::thread network([this] { cut_connections(); });
        for (std::thread& each : clients) each.join();
        clients_are_gone_ = true;
        network.join();
        service_figures now = service_.figures();
        for (int i = 0; i < 10000 && now.sequences > 0; ++i) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
            now = service_.figures();
        }
        CHECK(now.sequences == 0);
        const auto ended = [](const service_figures& all) {
            return all.completed + all.cancelled + all.failed + all.timed_out;
        };
        CHECK(now.submitted == ended(now));
        CHECK(now.submitted - before.submitted == submitted_);
        CHECK(now.refused - before.refused == refused_);
    }

  private:
    struct expected_texts {
        std::vector<const known_request*> all;
        bool is_bad = false;
        bool matches(const std::vector<std::string>& texts, const std::vector<finish_reason>& reasons) const {
            for (std::size_t i = 0; i < all.size(); ++i) {
                if (texts[i] != all[i]->text || reasons[i] != all[i]->reason) return false;
            }
            return true;
        }
        bool begins(const std::vector<std::string>& texts) const {
            for (std::size_t i = 0; i < all.size(); ++i) {
                if (!all[i]->text.starts_with(texts[i])) return false;
            }
            return true;
        }
    };

    void act(unsigned seed) {
        std::mt19937 chance(seed);
        for (auto left = 1 + chance() % 5; left > 0; --left) {
            if (chance() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(chance() % 300));
            expected_texts expected;
            std::vector<generation_request> requests;
            for (auto i = 1 + chance() % 3 * (chance() % 2); i > 0; --i) {
                expected.all.push_back(&known_[chance() % known_.size()]);
                requests.push_back(expected.all.back()->request);
            }
            expected.is_bad = chance() % 10 == 0;
            if (expected.is_bad) requests.back() = bad_;
            try {
                const std::shared_ptr<generation> work = service_.submit(std::move(requests));
                ++submitted_;
                follow(work, expected, chance);
            } catch (const api_error& failure) {
                ++refused_;
                (failure.status() == 429 ? met_.full : met_.wrong) += 1;
            }
        }
    }

    void follow(const std::shared_ptr<generation>& work, const expected_texts& expected, std::mt19937& chance) {
        const unsigned kind = chance() % 4;
        unsigned events_until_leaving = kind == 0 ? chance() % 12 : ~0u;
        if (kind == 1) lose_soon(work);
        std::vector<std::string> texts(expected.all.size());
        std::vector<finish_reason> reasons(expected.all.size());
        try {
            for (;;) {
                if (events_until_leaving-- == 0) {
                    work->cancel();
                    ++met_.left;
                    break;
                }
                const std::vector<generation_event> events = work->wait();
                if (events.empty()) break;
                for (const generation_event& each : events) {
                    texts[static_cast<std::size_t>(each.index)] += each.text;
                    reasons[static_cast<std::size_t>(each.index)] = each.reason;
                }
            }
        } catch (const api_error& failure) {
            const int status = failure.status();
            if (expected.is_bad && status == 400) return void(++met_.bad);
            const bool is_known =
                status == 504 || (status == 500 && std::string(failure.what()).ends_with("on purpose"));
            if (!is_known || !expected.begins(texts)) ++met_.wrong;
            ++(status == 504 ? met_.late : met_.failed);
            return;
        }
        if (expected.is_bad && kind > 1) ++met_.wrong;  // it cannot end well
        if (expected.is_bad) return;
        if (expected.matches(texts, reasons)) return void(++met_.complete);
        if (kind > 1 || !expected.begins(texts)) ++met_.wrong;
    }

    void lose_soon(const std::shared_ptr<generation>& work) {
        const std::scoped_lock lock(mutex_);
        connections_.push_back(work);
    }

    // Cancels from another thread, as the server does when a connection breaks.
    void cut_connections() {
        std::mt19937 chance(seed_);
        while (!clients_are_gone_) {
            std::this_thread::sleep_for(std::chrono::microseconds(50 + chance() % 1000));
            std::vector<std::shared_ptr<generation>> lost;
            {
                const std::scoped_lock lock(mutex_);
                std::swap(lost, connections_);
            }
            for (const auto& each : lost) each->cancel();
            met_.disconnected += static_cast<int>(lost.size());
        }
    }

    generation_service& service_;
    const std::vector<known_request>& known_;
    generation_request bad_;
    unsigned seed_;
    outcomes_met& met_;
    std::atomic<int> submitted_ = 0, refused_ = 0;
    std::atomic<bool> clients_are_gone_ = false;
    std::mutex mutex_;
    std::vector<std::shared_ptr<generation>> connections_;
};

// An engine of which some steps fail before they begin.
class failing_engine final : public generation_engine {
  public:
    // One step of `one_in`; 0: none.
    failing_engine(generation_engine& inner, unsigned one_in, unsigned seed)
        : inner_(inner), one_in_(one_in), chance_(seed) {}

    sequence_id submit(const generation_request& request) override { return inner_.submit(request); }
    void cancel(sequence_id id) override { inner_.cancel(id); }
    std::vector<text_event> step() override {
        has_failed_ = one_in_ > 0 && chance_() % one_in_ == 0;
        if (has_failed_) throw error("on purpose");
        return inner_.step();
    }
    std::vector<sequence_id> failed_batch() const override {
        return has_failed_ ? std::vector<sequence_id>{} : inner_.failed_batch();
    }
    statistics_summary summary() const override { return inner_.summary(); }

  private:
    generation_engine& inner_;
    unsigned one_in_;
    std::mt19937 chance_;
    bool has_failed_ = false;
};

}  // namespace imbrex::engine::server
