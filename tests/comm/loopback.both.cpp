// Loopback transport: message order, all-gather, and the errors of all ranks if one fails, ends, hangs or sends a
// mismatched message.
#include "worlds.hpp"

#include <imbrex/comm/loopback.hpp>
#include <imbrex/hw/world_stream.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

using namespace imbrex;
using namespace std::chrono_literals;
using imbrex_test::buffer;
using imbrex_test::error_message_of;
using imbrex_test::worlds;

namespace {

// Buffers of each rank in the world's memory; they outlive the ranks.
struct rank_memory {
    buffer<int> own, first, second;
    rank_memory(world where, int rank, int count)
        : own(where, count), first(where, count, -1), second(where, count, -1) {
        std::iota(own.values.begin(), own.values.end(), 1000 * rank);
    }
};
std::vector<std::unique_ptr<rank_memory>> memory_of(world where, int ranks, int count) {
    std::vector<std::unique_ptr<rank_memory>> made;
    for (int rank = 0; rank < ranks; ++rank) made.push_back(std::make_unique<rank_memory>(where, rank, count));
    return made;
}

std::string text_of(const std::exception_ptr& outcome) {
    try {
        if (outcome) std::rethrow_exception(outcome);
    } catch (const std::exception& problem) {
        return problem.what();
    }
    return "no error";
}
struct blame {
    int rank, step;
    bool operator==(const blame&) const = default;
};
blame blame_of(const std::exception_ptr& outcome) {
    try {
        if (outcome) std::rethrow_exception(outcome);
    } catch (const communication_error& problem) {
        return {problem.rank(), problem.step()};
    } catch (const std::exception&) {}
    return {-1, -1};
}

}  // namespace

TEST_CASE("data rotated around a ring through two buffers returns unchanged") {
    for (const world where : worlds()) {
        for (const int ranks : {1, 2, 3, 4, 8}) {
            for (const std::uint64_t seed : {0, 1, 2}) {
                constexpr int count = 1237;
                CAPTURE(name_of(where));
                CAPTURE(ranks);
                const auto memory = memory_of(where, ranks, count);
                loopback_group group(where, ranks, {.timeout = 20s, .seed = seed});
                run_ranks(group, [&](loopback& comm) {
                    const world_stream stream(where);
                    rank_memory& mine = *memory[comm.rank()];
                    int* const places[] = {mine.own.upload(), mine.first.upload(), mine.second.upload()};
                    const int next = (comm.rank() + 1) % ranks, before = (comm.rank() + ranks - 1) % ranks;
                    int have = 0;
                    for (int step = 0; step < ranks && ranks > 1; ++step) {
                        const int free = have == 1 ? 2 : 1;
                        const send_recv_request request = comm.start({step,
                                                                      {{next, places[have], count * sizeof(int)}},
                                                                      {{before, places[free], count * sizeof(int)}}},
                                                                     stream.get());
                        comm.wait(request, stream.get());
                        have = free;
                    }
                    comm.synchronise(stream.get());
                });
                for (int rank = 0; rank < ranks && ranks > 1; ++rank) {
                    rank_memory& mine = *memory[rank];
                    buffer<int>& last = ranks % 2 == 1 ? mine.first : mine.second;
                    last.download();
                    REQUIRE(last.values == mine.own.values);
                }
            }
        }
    }
}

TEST_CASE("messages between two ranks arrive in start order, whatever the order of the waits") {
    for (const world where : worlds()) {
        const auto memory = memory_of(where, 2, 3);
        loopback_group group(where, 2, {.timeout = 20s, .seed = 5});
        run_ranks(group, [&](loopback& comm) {
            const world_stream stream(where);
            rank_memory& mine = *memory[comm.rank()];
            int* const own = mine.own.upload();
            int* const first = mine.first.upload();
            int* const second = mine.second.upload();
            const int other = 1 - comm.rank();
            const auto one = comm.start(
                {0, {{other, own, 4}, {other, own + 2, 4}}, {{other, first, 4}, {other, first + 1, 4}}}, stream.get());
            const auto two = comm.start({1, {{other, own + 1, 8}}, {{other, second, 8}}}, stream.get());
            comm.wait(two, stream.get());
            comm.wait(one, stream.get());
            comm.wait(one, stream.get());
            comm.synchronise(stream.get());
        });
        for (int rank = 0; rank < 2; ++rank) {
            rank_memory& mine = *memory[rank];
            mine.first.download();
            mine.second.download();
            const int theirs = 1000 * (1 - rank);
            CHECK(mine.first.values == std::vector{theirs, theirs + 2, -1});
            CHECK(mine.second.values == std::vector{theirs + 1, theirs + 2, -1});
        }
    }
}

TEST_CASE("all_gather gives every rank the bytes of all, repeatedly") {
    for (const world where : worlds()) {
        loopback_group group(where, 5, {.timeout = 20s});
        std::atomic<int> wrong = 0;
        run_ranks(group, [&](loopback& comm) {
            for (int round = 0; round < 50; ++round) {
                const std::int64_t mine = 100 * round + comm.rank();
                std::int64_t all[5] = {};
                comm.all_gather(&mine, all, sizeof mine);
                for (int rank = 0; rank < 5; ++rank) wrong += all[rank] != 100 * round + rank;
            }
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("a failed rank is named, with its step, to all waiting ranks") {
    for (const world where : worlds()) {
        const auto memory = memory_of(where, 4, 8);
        loopback_group group(where, 4, {.timeout = 20s});
        const auto work = [&](loopback& comm) {
            const world_stream stream(where);
            rank_memory& mine = *memory[comm.rank()];
            int* const own = mine.own.upload();
            int* const there = mine.first.upload();
            for (int step = 0; step < 6; ++step) {
                if (step == 4 && comm.rank() == 2) throw error("out of luck");
                const auto request = comm.start(
                    {step, {{(comm.rank() + 1) % 4, own, 32}}, {{(comm.rank() + 3) % 4, there, 32}}}, stream.get());
                comm.wait(request, stream.get());
            }
        };
        const auto outcomes = run_ranks_catching(group, work);
        CHECK(text_of(outcomes[2]) == "out of luck");
        for (const int rank : {0, 1, 3}) {
            CHECK(text_of(outcomes[rank]) == "rank 2 failed in step 3: out of luck");
            CHECK(blame_of(outcomes[rank]) == blame{2, 3});
        }
        loopback_group again(where, 4, {.timeout = 20s});
        CHECK(error_message_of([&] { run_ranks(again, work); }) == "out of luck");
    }
}

TEST_CASE("a rank that ends early or hangs is named") {
    for (const world where : worlds()) {
        for (const bool hangs : {false, true}) {
            const auto memory = memory_of(where, 3, 8);
            loopback_group group(where, 3, {.timeout = hangs ? 100ms : 20000ms});
            const auto outcomes = run_ranks_catching(group, [&](loopback& comm) {
                const world_stream stream(where);
                rank_memory& mine = *memory[comm.rank()];
                int* const own = mine.own.upload();
                int* const there = mine.first.upload();
                for (int step = 0; step < 4; ++step) {
                    if (step == 2 && comm.rank() == 1) {
                        if (hangs) std::this_thread::sleep_for(500ms);
                        return;
                    }
                    comm.wait(
                        comm.start({step, {{(comm.rank() + 1) % 3, own, 32}}, {{(comm.rank() + 2) % 3, there, 32}}},
                                   stream.get()),
                        stream.get());
                }
            });
            CHECK(text_of(outcomes[1]) == "no error");
            for (const int rank : {0, 2}) {
                const std::string text = text_of(outcomes[rank]);
                CAPTURE(text);
                CHECK(blame_of(outcomes[rank]).step == 2);
                CHECK(text.find(hangs ? "within 100 ms" : "rank 1 has ended") != std::string::npos);
                CHECK(text.find("step 2") != std::string::npos);
            }
        }
    }
}

TEST_CASE("mismatched sizes and steps are detected") {
    for (const world where : worlds()) {
        const auto memory = memory_of(where, 2, 8);
        for (const bool other_step : {false, true}) {
            loopback_group group(where, 2, {.timeout = 20s});
            const auto outcomes = run_ranks_catching(group, [&](loopback& comm) {
                const world_stream stream(where);
                rank_memory& mine = *memory[comm.rank()];
                int* const own = mine.own.upload();
                int* const there = mine.first.upload();
                const bool first = comm.rank() == 0;
                comm.wait(comm.start({other_step && first ? 7 : 3,
                                      {{1 - comm.rank(), own, first && !other_step ? 16u : 32u}},
                                      {{1 - comm.rank(), there, 32}}},
                                     stream.get()),
                          stream.get());
            });
            const std::string expected = other_step
                                             ? "rank 0 sends 32 bytes in step 7, and rank 1 expects 32 bytes in step 3"
                                             : "rank 0 sends 16 bytes in step 3, and rank 1 expects 32 bytes in step 3";
            const std::string all = text_of(outcomes[0]) + text_of(outcomes[1]);
            CAPTURE(all);
            CHECK((all.find(expected) != std::string::npos ||
                   all.find("rank 1 sends 32 bytes in step 3, and rank 0 expects 32 bytes in step 7") !=
                       std::string::npos));
        }
    }
}

TEST_CASE("loopback rejects invalid arguments") {
    for (const world where : worlds()) {
        CHECK(error_message_of([&] { loopback_group(where, 0); }) ==
              "ranks: 0; 1 to 4096 are allowed, one thread each");
        CHECK(error_message_of([&] {
                  loopback_group(where, 3, {.devices = {0, 0}});
              }) == "options.devices: 2 devices; must be empty or name one for each of the 3 ranks");
        CHECK(error_message_of([&] { loopback_group(where, 3, {.timeout = 0ms}); }) ==
              "options.timeout: 0 ms; it must be positive");
        loopback_group group(where, 2);
        CHECK(error_message_of([&] { loopback(group, 2); }) == "rank: 2; there are 2 ranks, 0 is the first");
        loopback comm(group, 1);
        CHECK(error_message_of([&] {
                  comm.start({0, {{1, nullptr, 0}}, {}});
              }) == "sends.to: 1; rank 1 of 2 can send to and receive from the other ranks, 0 to 1");
        CHECK(error_message_of([&] {
                  comm.start({0, {}, {{2, nullptr, 0}}});
              }) == "receives.from: 2; rank 1 of 2 can send to and receive from the other ranks, 0 to 1");
        CHECK(error_message_of([&] { comm.wait(0); }) == "request: 0; rank 1 has started 0 send/recv groups");
    }
}

#if !defined(__CUDACC__)
TEST_CASE("the checked world reports writes to buffers of a group in flight") {
    constexpr int count = 16;
    for (const bool sender : {false, true}) {
        bool detected = false;
        for (std::uint64_t seed = 0; seed < 20 && !detected; ++seed) {
            const auto memory = memory_of(world::host_checked, 2, count);
            loopback_group group(world::host_checked, 2, {.timeout = 20s, .seed = seed});
            const auto outcomes = run_ranks_catching(group, [&](loopback& comm) {
                rank_memory& mine = *memory[comm.rank()];
                const auto request = comm.start({3,
                                                 {{1 - comm.rank(), mine.own.values.data(), count * sizeof(int)}},
                                                 {{1 - comm.rank(), mine.first.values.data(), count * sizeof(int)}}});
                if (comm.rank() == 0) (sender ? mine.own : mine.first).values[count - 1] = 5;
                comm.wait(request);
            });
            const std::string all = text_of(outcomes[0]) + text_of(outcomes[1]);
            detected =
                all.find(
                    sender
                        ? "hazard: rank 0 writes its send buffer for rank 1 in step 3 before it waits for the request"
                        : "hazard: rank 0 writes its receive buffer for rank 1 in step 3 before it waits for the "
                          "request") != std::string::npos;
        }
        CHECK(detected);
    }
}

TEST_CASE("the checked world poisons receive buffers until the wait") {
    int poisoned = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const auto memory = memory_of(world::host_checked, 2, 4);
        loopback_group group(world::host_checked, 2, {.timeout = 20s, .seed = seed});
        std::atomic<int> found = 0;
        run_ranks(group, [&](loopback& comm) {
            rank_memory& mine = *memory[comm.rank()];
            const auto request = comm.start({0,
                                             {{1 - comm.rank(), mine.own.values.data(), 16}},
                                             {{1 - comm.rank(), mine.first.values.data(), 16}}});
            found += mine.first.values[0] == -1;  // all bits set
            comm.wait(request);
            if (mine.first.values[0] != 1000 * (1 - comm.rank())) throw error("it did not arrive");
        });
        poisoned += found;
    }
    CHECK(poisoned > 10);
    CHECK(poisoned < 40);
}
#endif
