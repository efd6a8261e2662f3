// The thread pool that runs the blocks of a grid in plain mode. Its threads start once. Between launches they spin for a
// moment, since launches come in sequences and waking up takes longer than a small launch; then they sleep.
//
// A launch is a static partition with work stealing. Each thread begins with its own contiguous range of block numbers, the
// same in every launch of a size, so that it reads the same weights for each token. A thread that finishes its range
// steals from the ranges of the others. The caller starts each worker through a flag in a cache line of that worker. When
// no work is left it resets the flags of workers that have not started, and does not wait for them: a worker whose core is
// busy with another program delays nobody.
// It uses POSIX threads: <thread> and <mutex> would cost nvcc a second per file.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>

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

    // The calling thread counts as one. If the system grants fewer threads, the pool uses those.
    explicit thread_pool(int threads) : workers_(new worker[static_cast<std::size_t>(threads > 1 ? threads : 1)]) {
        for (; threads_ < threads; ++threads_) {
            worker& one = workers_[threads_];
            one.pool = this;
            if (pthread_create(&one.thread, nullptr, &thread_pool::serve, &one) != 0) break;
        }
    }
    ~thread_pool() {
        {
            const scoped_lock hold(mutex_);
            ending_ = true;
        }
        pthread_cond_broadcast(&wake_);
        for (int i = 1; i < threads_; ++i) pthread_join(workers_[i].thread, nullptr);
    }
    thread_pool(const thread_pool&) = delete;
    thread_pool& operator=(const thread_pool&) = delete;

    int threads() const { return threads_; }

    // Calls work(i) for 0 <= i < count on up to `threads` threads including this one (0: all cores). After an exception
    // greater numbers are left out. That of the lowest number is rethrown here, the same for any number of threads.
    template <class Work>
    void for_each(int count, int threads, Work work) {
        const int wanted = threads > 0 && threads < threads_ ? threads : threads_;
        // A launch from inside a block, or concurrent with another launch, runs on its own thread only.
        const bool is_free = wanted > 1 && count > 1 && !__atomic_exchange_n(&taken_, true, __ATOMIC_ACQUIRE);
        if (!is_free) {
            for (int i = 0; i < count; ++i) work(i);
            return;
        }
        job<Work> now(work, count);
        const int parts = count < wanted ? count : wanted;
        start(count, parts, now);
        now.run(*this, 0);
        finish();
        __atomic_store_n(&taken_, false, __ATOMIC_RELEASE);
        now.rethrow();
    }

  private:
    enum state : int { idle, offered, running };  // int, since device compilers have atomic operations for these only

    // What belongs to a thread, in cache lines of its own; 0 is the caller. Its range is next to end.
    struct alignas(128) worker {
        int now = idle;
        int next = 0, end = 0;
        thread_pool* pool = nullptr;
        pthread_t thread{};
    };

    // Holds a lock.
    class scoped_lock {
      public:
        explicit scoped_lock(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
        ~scoped_lock() { pthread_mutex_unlock(&mutex_); }
        scoped_lock(const scoped_lock&) = delete;
        scoped_lock& operator=(const scoped_lock&) = delete;

      private:
        pthread_mutex_t& mutex_;
    };

    struct any_job {
        virtual void run(thread_pool& pool, int part) = 0;

      protected:
        ~any_job() = default;
    };

    template <class Work>
    class job final : public any_job {
      public:
        job(Work& work, int count) : work_(work), failed_(count) {}

        void run(thread_pool& pool, int part) override {
            for (int i = 0; i < pool.parts_; ++i) {
                worker& owner = pool.workers_[(part + i) % pool.parts_];
                while (__atomic_load_n(&owner.next, __ATOMIC_RELAXED) < owner.end) {
                    const int number = __atomic_fetch_add(&owner.next, 1, __ATOMIC_RELAXED);
                    if (number >= owner.end || number >= __atomic_load_n(&failed_, __ATOMIC_RELAXED)) break;
                    run(number);
                }
            }
        }
        void rethrow() const {
            if (failure_) std::rethrow_exception(failure_);
        }

      private:
        void run(int number) {
            try {
                work_(number);
            } catch (...) {
                const scoped_lock hold(failing_);
                if (number > failed_) return;
                failure_ = std::current_exception();
                __atomic_store_n(&failed_, number, __ATOMIC_RELAXED);
            }
        }

        Work& work_;
        pthread_mutex_t failing_ = PTHREAD_MUTEX_INITIALIZER;
        int failed_;  // the lowest number that has failed
        std::exception_ptr failure_;
    };

    void start(int count, int parts, any_job& now) {
        job_ = &now;
        parts_ = parts;
        for (int i = 0; i < parts; ++i) {
            worker& one = workers_[i];
            one.next = range_begin(count, parts, i);
            one.end = range_begin(count, parts, i + 1);
        }
        for (int i = 1; i < parts; ++i) __atomic_store_n(&workers_[i].now, offered, __ATOMIC_RELEASE);
        // Two read-modify-writes of one variable have an order: either a sleeper sees its offer, or it is seen here.
        if ((__atomic_fetch_or(&sleepers_, 0, __ATOMIC_ACQ_REL) & bits_below(parts)) == 0) return;
        const scoped_lock hold(mutex_);
        pthread_cond_broadcast(&wake_);
    }
    static int range_begin(int count, int parts, int part) {
        return static_cast<int>(static_cast<long long>(count) * part / parts);
    }

    // All numbers are taken: withdraws offers, and waits for the helpers that came.
    void finish() {
        for (int i = 1; i < parts_; ++i) {
            int expected = offered;
            __atomic_compare_exchange_n(&workers_[i].now, &expected, idle, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
        }
        if (spin_until([&] { return is_done(); })) return;
        const scoped_lock hold(mutex_);
        __atomic_fetch_add(&caller_sleeps_, 1, __ATOMIC_ACQ_REL);
        while (!is_done()) pthread_cond_wait(&done_, &mutex_);
        __atomic_fetch_sub(&caller_sleeps_, 1, __ATOMIC_ACQ_REL);
    }
    bool is_done() const {
        for (int i = 1; i < parts_; ++i) {
            if (__atomic_load_n(&workers_[i].now, __ATOMIC_ACQUIRE) != idle) return false;
        }
        return true;
    }

    // The last bit stays set once one of the helpers from the 64th on has slept.
    static constexpr int last_bit = 63;
    int number_of(const worker& one) const { return static_cast<int>(&one - workers_.get()); }
    bool bit_is_shared(const worker& one) const { return number_of(one) >= last_bit; }
    std::uint64_t bit_of(const worker& one) const {
        return std::uint64_t{1} << (bit_is_shared(one) ? last_bit : number_of(one));
    }
    static std::uint64_t bits_below(int parts) {
        return parts > last_bit ? ~std::uint64_t{0} : (std::uint64_t{1} << parts) - 1;
    }

    static void* serve(void* data) {
        auto& self = *static_cast<worker*>(data);
        while (self.pool->begin(self)) {
            self.pool->job_->run(*self.pool, self.pool->number_of(self));
            self.pool->end(self);
        }
        return nullptr;
    }

    // Waits for a job; false when the pool ends.
    bool begin(worker& self) {
        const auto has_offer = [&] { return __atomic_load_n(&self.now, __ATOMIC_ACQUIRE) == offered; };
        for (;;) {
            if (!spin_until(has_offer)) {
                const scoped_lock hold(mutex_);
                __atomic_fetch_or(&sleepers_, bit_of(self), __ATOMIC_ACQ_REL);
                while (!ending_ && !has_offer()) pthread_cond_wait(&wake_, &mutex_);
                if (!bit_is_shared(self)) __atomic_fetch_and(&sleepers_, ~bit_of(self), __ATOMIC_ACQ_REL);
                if (ending_) return false;
            }
            int expected = offered;
            if (__atomic_compare_exchange_n(&self.now, &expected, running, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
                return true;
        }
    }
    void end(worker& self) {
        __atomic_store_n(&self.now, idle, __ATOMIC_RELEASE);
        if (__atomic_fetch_add(&caller_sleeps_, 0, __ATOMIC_ACQ_REL) == 0) return;
        const scoped_lock hold(mutex_);
        pthread_cond_signal(&done_);
    }

    // Spins until the condition is true, after a while with a yield to other programs. False if the time is over.
    template <class Condition>
    static bool spin_until(const Condition& condition) {
        constexpr long alone = 50'000, together = 200'000;  // nanoseconds
        const long began = nanoseconds();
        for (long waited = 0; waited < together; waited = nanoseconds() - began) {
            for (int i = 0; i < 16; ++i) {
                if (condition()) return true;
                relax();
            }
            if (waited > alone) sched_yield();
        }
        return false;
    }
    static void relax() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    static long nanoseconds() {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * 1'000'000'000L + now.tv_nsec;
    }

    std::unique_ptr<worker[]> workers_;
    int threads_ = 1;
    bool taken_ = false;  // a launch is using the helpers
    any_job* job_ = nullptr;
    int parts_ = 0;
    std::uint64_t sleepers_ = 0;  // bits of helpers that wait for wake_
    int caller_sleeps_ = 0;       // 1 while it waits for done_
    bool ending_ = false;
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t wake_ = PTHREAD_COND_INITIALIZER;
    pthread_cond_t done_ = PTHREAD_COND_INITIALIZER;
};

}  // namespace imbrex::hw
