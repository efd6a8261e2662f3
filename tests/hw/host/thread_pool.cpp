// The thread pool that runs the blocks of a grid.
#include <doctest/doctest.h>

#include <imbrex/hw/host/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using imbrex::hw::thread_pool;

TEST_CASE("calls the function once for every number") {
    for (const int count : {0, 1, 2, 7, 1000}) {
        for (const int threads : {0, 1, 2, 50, -3}) {
            std::vector<std::atomic<int>> times(count);
            thread_pool::shared().for_each(count, threads, [&](int i) { ++times[i]; });
            bool once = true;
            for (const auto& one : times) once = once && one == 1;
            CHECK(once);
        }
    }
}

TEST_CASE("pools of any size: more threads than cores or numbers, and threads that fell asleep between") {
    for (const int threads : {1, 2, 3, 9, 70}) {
        thread_pool pool(threads);
        CHECK(pool.threads() == threads);
        for (const int count : {3, 70, 5000, 2, 400}) {
            std::vector<std::atomic<int>> times(count);
            for (int repeat = 0; repeat < 20; ++repeat) pool.for_each(count, 0, [&](int i) { ++times[i]; });
            bool every_time = true;
            for (const auto& one : times) every_time = every_time && one == 20;
            CHECK(every_time);
            if (count == 70) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    }
}

TEST_CASE("a caller that sleeps while a helper works is woken") {
    thread_pool pool(2);
    for (int i = 0; i < 3; ++i) {
        std::atomic<bool> began{false}, slow{false};
        const auto caller = std::this_thread::get_id();
        pool.for_each(2, 0, [&](int) {
            if (std::this_thread::get_id() == caller) {
                while (!began) std::this_thread::yield();
            } else {
                began = true;
                std::this_thread::sleep_for(std::chrono::milliseconds(3));
                slow = true;
            }
        });
        CHECK(slow);
    }
}

TEST_CASE("with few numbers left, a thread takes those of others") {
    thread_pool pool(2);
    std::atomic<int> done{0};
    std::set<int> by_caller;
    const auto caller = std::this_thread::get_id();
    pool.for_each(10, 0, [&](int number) {
        if (std::this_thread::get_id() == caller) {
            by_caller.insert(number);
        } else {
            while (done < 9) std::this_thread::yield();  // this helper has one number and keeps it
        }
        ++done;
    });
    CHECK(done == 10);
    CHECK(by_caller.size() >= 9);
}

TEST_CASE("one thread means the calling thread") {
    std::set<std::thread::id> used;
    thread_pool::shared().for_each(100, 1, [&](int) { used.insert(std::this_thread::get_id()); });
    CHECK(used == std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST_CASE("the first exception stops the work and reaches the caller") {
    for (int i = 0; i < 20; ++i) {
        std::atomic<int> done{0};
        const auto work = [&](int number) {
            if (number == 10) throw std::runtime_error("at ten");
            ++done;
        };
        // So many that other threads are still busy while the exception propagates.
        constexpr int count = 1'000'000'000;
        CHECK_THROWS_WITH_AS(thread_pool::shared().for_each(count, 0, work), "at ten", std::runtime_error);
        CHECK(done < count - 1);
    }
    std::atomic<int> done{0};
    thread_pool::shared().for_each(10, 0, [&](int) { ++done; });
    CHECK(done == 10);
}

TEST_CASE("of several exceptions, that of the lowest number reaches the caller") {
    for (int i = 0; i < 20; ++i) {
        std::atomic<bool> failed{false};
        const auto work = [&](int number) {
            if (number == 1) {
                failed = true;
                throw std::runtime_error("at one");
            }
            // The work of number 0 ends last if it has a thread of its own.
            while (thread_pool::shared().threads() > 1 && !failed) std::this_thread::yield();
            throw std::runtime_error("at zero");
        };
        CHECK_THROWS_WITH_AS(thread_pool::shared().for_each(2, 0, work), "at zero", std::runtime_error);
    }
}

TEST_CASE("work may start nested work") {
    std::atomic<int> done{0};
    thread_pool::shared().for_each(8, 0, [&](int) { thread_pool::shared().for_each(5, 0, [&](int) { ++done; }); });
    CHECK(done == 40);
}

TEST_CASE("several threads may start work at once") {
    std::atomic<int> done{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i) {
        callers.emplace_back([&] {
            for (int j = 0; j < 50; ++j) thread_pool::shared().for_each(10, 0, [&](int) { ++done; });
        });
    }
    for (std::thread& one : callers) one.join();
    CHECK(done == 4 * 50 * 10);
}

}  // namespace
