// The thread pool that runs the blocks of a grid in plain mode. Its threads start once. Between launches they spin for
// some microseconds, since launches come in sequences and waking up takes longer than a small launch; then they sleep.
// It uses POSIX threads: <thread> and <mutex> would cost nvcc a second per file.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>
#include <cstddef>
#include <exception>
#include <vector>

namespace imbrex::hw {

// The cores that this process may use, possibly fewer than the machine has.
inline int usable_cores() {
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
    return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

class thread_pool {
  public:
    static thread_pool& shared() {
        static thread_pool one(usable_cores());
        return one;
    }

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls work(i) for 0 <= i < count on up to `threads` threads including this one (0: all cores). An exception stops
    // the distribution. That of the lowest i is rethrown here, the same for any number of threads.
    template <class Work>
    void for_each(int count, int threads, Work work) {
        int next = 0, failed = count;
        std::exception_ptr failure;
        pthread_mutex_t failing = PTHREAD_MUTEX_INITIALIZER;
        auto run = [&] {
            for (int i = take(next); i < count; i = take(next)) {
                try {
                    work(i);
                } catch (...) {
                    __atomic_store_n(&next, count, __ATOMIC_RELAXED);
                    const turn hold(failing);
                    if (i < failed) failure = std::current_exception();
                    failed = i < failed ? i : failed;
                }
            }
        };
        const int wanted = threads > 0 && threads < this->threads() ? threads : this->threads();
        // A launch from inside a block, or concurrent with another launch, runs on its own thread only.
        const bool have_turn = !__atomic_exchange_n(&taken_, true, __ATOMIC_ACQUIRE);
        const int helpers = have_turn ? (count < wanted ? count : wanted) - 1 : 0;
        if (helpers > 0)
            start(
                helpers, [](void* data) { (*static_cast<decltype(run)*>(data))(); }, &run);
        run();
        if (helpers > 0) finish();
        if (have_turn) __atomic_store_n(&taken_, false, __ATOMIC_RELEASE);
        if (failure) std::rethrow_exception(failure);
    }

    thread_pool(const thread_pool&) = delete;
    thread_pool& operator=(const thread_pool&) = delete;

  private:
    // Holds the pool's lock.
    class turn {
      public:
        explicit turn(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
        ~turn() { pthread_mutex_unlock(&mutex_); }
        turn(const turn&) = delete;
        turn& operator=(const turn&) = delete;

      private:
        pthread_mutex_t& mutex_;
    };

    // If the system grants fewer threads, the pool uses those.
    explicit thread_pool(int threads) {
        for (int i = 1; i < threads; ++i) {
            pthread_t worker;
            if (pthread_create(&worker, nullptr, &thread_pool::serve, this) != 0) break;
            workers_.push_back(worker);
        }
    }
    ~thread_pool() {
        {
            const turn hold(mutex_);
            ending_ = true;
        }
        pthread_cond_broadcast(&wake_);
        for (const pthread_t worker : workers_) pthread_join(worker, nullptr);
    }

    static int take(int& next) { return __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED); }

    void start(int helpers, void (*job)(void*), void* data) {
        {
            const turn hold(mutex_);
            job_ = job;
            data_ = data;
            put(to_start_, helpers);
            put(at_work_, helpers);
        }
        pthread_cond_broadcast(&wake_);
    }

    void finish() {
        {
            const turn hold(mutex_);
            // Helpers that have not started are no longer needed.
            put(at_work_, at_work_ - to_start_);
            put(to_start_, 0);
        }
        look_out([&] { return __atomic_load_n(&at_work_, __ATOMIC_RELAXED) == 0; });
        const turn hold(mutex_);
        while (at_work_ > 0) pthread_cond_wait(&done_, &mutex_);
    }

    // The counts are changed under the lock and read without it.
    static void put(int& count, int value) { __atomic_store_n(&count, value, __ATOMIC_RELAXED); }

    // Spins until the condition is true or the spin time is over.
    template <class Condition>
    static void look_out(const Condition& condition) {
        constexpr long patience = 50000;
        for (const long begin = nanoseconds(); !condition() && nanoseconds() - begin < patience;) {}
    }
    static long nanoseconds() {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1000000000L + now.tv_nsec;
    }

    static void* serve(void* pool) {
        auto& self = *static_cast<thread_pool*>(pool);
        while (self.begin_job()) {
            self.job_(self.data_);
            self.end_job();
        }
        return nullptr;
    }

    // Waits for a job; false when the pool ends.
    bool begin_job() {
        look_out([&] { return __atomic_load_n(&to_start_, __ATOMIC_RELAXED) > 0; });
        const turn hold(mutex_);
        while (!ending_ && to_start_ == 0) pthread_cond_wait(&wake_, &mutex_);
        if (ending_) return false;
        put(to_start_, to_start_ - 1);
        return true;
    }
    void end_job() {
        const turn hold(mutex_);
        put(at_work_, at_work_ - 1);
        if (at_work_ == 0) pthread_cond_signal(&done_);
    }

    std::vector<pthread_t> workers_;
    bool taken_ = false;  // a launch is using the helpers
    // Held for some nanoseconds at a time, so a thread spins before it sleeps.
    pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    pthread_cond_t wake_ = PTHREAD_COND_INITIALIZER;
    pthread_cond_t done_ = PTHREAD_COND_INITIALIZER;
    void (*job_)(void*) = nullptr;
    void* data_ = nullptr;
    int to_start_ = 0;
    int at_work_ = 0;
    bool ending_ = false;
};

}  // namespace imbrex::hw
