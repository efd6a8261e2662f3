// The thread pool that runs the blocks of a grid.
#include <doctest/doctest.h>

#include <imbrex/hw/host/thread_pool.hpp>

#include <atomic>
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
