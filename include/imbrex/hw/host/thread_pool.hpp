// The threads that share out the blocks of a grid in plain mode. They are started once and sleep between launches.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace imbrex::hw {

class thread_pool {
  public:
    static thread_pool& shared() {
        static thread_pool one(static_cast<int>(std::thread::hardware_concurrency()));
        return one;
    }

    // Calls work(i) for 0 <= i < count on up to `threads` threads, this one among them (0: all cores). The first
    // exception stops the handing out and is thrown here.
    template <class Work>
    void for_each(int count, int threads, Work work) {
        struct shared_state {
            std::atomic<int> next{0};
            std::mutex hold;
            std::exception_ptr failure;
        } state;
        auto run = [&] {
            for (int i = state.next++; i < count; i = state.next++) {
                try {
                    work(i);
                } catch (...) {
                    const std::lock_guard<std::mutex> lock(state.hold);
                    if (!state.failure) state.failure = std::current_exception();
                    state.next = count;
                }
            }
        };
        const int available = static_cast<int>(workers_.size()) + 1;
        const int wanted = threads > 0 && threads < available ? threads : available;
        // A launch from inside a block, or beside another launch, runs on its own thread alone.
        const bool have_turn = !taken_.exchange(true, std::memory_order_acquire);
        const int helpers = have_turn ? (count < wanted ? count : wanted) - 1 : 0;
        if (helpers > 0)
            start(
                helpers, [](void* data) { (*static_cast<decltype(run)*>(data))(); }, &run);
        run();
        if (helpers > 0) finish();
        if (have_turn) taken_.store(false, std::memory_order_release);
        if (state.failure) std::rethrow_exception(state.failure);
    }

    thread_pool(const thread_pool&) = delete;
    thread_pool& operator=(const thread_pool&) = delete;

  private:
    explicit thread_pool(int threads) {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { serve(); });
    }
    ~thread_pool() {
        {
            const std::lock_guard<std::mutex> lock(hold_);
            ending_ = true;
        }
        wake_.notify_all();
        for (std::thread& worker : workers_) worker.join();
    }

    void start(int helpers, void (*job)(void*), void* data) {
        {
            const std::lock_guard<std::mutex> lock(hold_);
            job_ = job;
            data_ = data;
            to_start_ = helpers;
            at_work_ = helpers;
        }
        wake_.notify_all();
    }

    void finish() {
        std::unique_lock<std::mutex> lock(hold_);
        // Helpers that have not begun are not needed any more.
        at_work_ -= to_start_;
        to_start_ = 0;
        done_.wait(lock, [this] { return at_work_ == 0; });
    }

    void serve() {
        std::unique_lock<std::mutex> lock(hold_);
        while (true) {
            wake_.wait(lock, [this] { return ending_ || to_start_ > 0; });
            if (ending_) return;
            --to_start_;
            lock.unlock();
            job_(data_);
            lock.lock();
            if (--at_work_ == 0) done_.notify_one();
        }
    }

    std::vector<std::thread> workers_;
    std::atomic<bool> taken_{false};  // by the launch that the helpers work for
    std::mutex hold_;
    std::condition_variable wake_, done_;
    void (*job_)(void*) = nullptr;
    void* data_ = nullptr;
    int to_start_ = 0;
    int at_work_ = 0;
    bool ending_ = false;
};

}  // namespace imbrex::hw
