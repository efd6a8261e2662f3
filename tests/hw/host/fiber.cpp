// Fibers: functions that suspend and resume.
#include <doctest/doctest.h>

#include <imbrex/hw/host/fiber.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using imbrex::hw::fiber;

TEST_CASE("fibers alternate and keep their stacks") {
    std::string log;
    std::vector<std::unique_ptr<fiber>> fibers;
    for (int i = 0; i < 3; ++i) {
        fibers.push_back(std::make_unique<fiber>([&log, &fibers, i] {
            const std::string own(2, static_cast<char>('a' + i));
            for (int turn = 0; turn < 3; ++turn) {
                log += own + std::to_string(turn) + " ";
                fibers[i]->suspend();
            }
        }));
    }
    int rounds = 0;
    for (bool alive = true; alive; ++rounds) {
        alive = false;
        for (auto& one : fibers) {
            if (one->finished()) continue;
            one->resume();
            alive = true;
        }
    }
    CHECK(log == "aa0 bb0 cc0 aa1 bb1 cc1 aa2 bb2 cc2 ");
    CHECK(rounds == 5);
    for (auto& one : fibers) CHECK(!one->failure());
}

TEST_CASE("an exception ends a fiber and is kept") {
    std::unique_ptr<fiber> one;
    one = std::make_unique<fiber>([&one] {
        const std::vector<int> owned(10);
        one->suspend();
        throw std::runtime_error("from inside");
    });
    one->resume();
    CHECK(!one->finished());
    one->resume();
    CHECK(one->finished());
    CHECK_THROWS_WITH(std::rethrow_exception(one->failure()), "from inside");
}

TEST_CASE("exceptions are thrown and caught on either side of a switch") {
    std::unique_ptr<fiber> one;
    int caught = 0;
    one = std::make_unique<fiber>([&] {
        for (int i = 0; i < 3; ++i) {
            try {
                throw i;
            } catch (int) {
                ++caught;
            }
            one->suspend();
        }
    });
    while (!one->finished()) {
        one->resume();
        try {
            throw std::string("outside");
        } catch (const std::string&) {
            ++caught;
        }
    }
    CHECK(caught == 7);
}

int sum_by_recursion(int depth) {
    volatile int block[256] = {};
    block[depth % 256] = depth;
    return depth == 0 ? 0 : block[depth % 256] - depth + 1 + sum_by_recursion(depth - 1);
}

TEST_CASE("a fiber's stack is large, and stacks are reused") {
    for (int i = 0; i < 200; ++i) {
        int result = 0;
        fiber one([&result] { result = sum_by_recursion(800); });
        one.resume();
        CHECK(one.finished());
        CHECK(result == 800);
    }
}

TEST_CASE("a stack whose function was suspended runs the next function from its beginning") {
    for (int i = 0; i < 20; ++i) {
        std::string log;
        {
            std::unique_ptr<fiber> one;
            one = std::make_unique<fiber>([&] {
                log += "begun ";
                one->suspend();
                log += "never ";
            });
            one->resume();
            CHECK(!one->finished());
        }
        fiber next([&log] { log += "next"; });
        next.resume();
        CHECK(next.finished());
        CHECK(log == "begun next");
    }
}

TEST_CASE("values in registers survive a switch") {
    std::unique_ptr<fiber> one;
    double inside = 0;
    one = std::make_unique<fiber>([&] {
        double a = 1, b = 2, c = 3, d = 5;
        long e = 7, f = 11, g = 13;
        for (int i = 0; i < 10; ++i) {
            one->suspend();
            a += b, b += c, c += d, d += 1;
            e += f, f += g, g += 1;
        }
        inside = a + static_cast<double>(e);
    });
    double a = 1, b = 3;
    long c = 5, d = 7;
    for (; !one->finished(); a += b, c += d) {
        one->resume();
        b += 1, d += 1;
    }
    // Eleven resumptions: the last one ends it.
    CHECK(inside == 1 + 10 * 2 + 45 * 3 + 120 * 5 + 210 + 7 + 10 * 11 + 45 * 13 + 120);
    CHECK(a == 1 + 11 * 3 + 66);
    CHECK(c == 5 + 11 * 7 + 66);
}

TEST_CASE("a fiber may resume another, and suspend while that one waits") {
    std::string log;
    std::unique_ptr<fiber> outer, inner;
    inner = std::make_unique<fiber>([&] {
        log += "inner ";
        inner->suspend();
        log += "inner-again ";
    });
    outer = std::make_unique<fiber>([&] {
        inner->resume();
        log += "outer ";
        outer->suspend();
        inner->resume();
        log += "end";
    });
    outer->resume();
    log += "between ";
    outer->resume();
    CHECK(log == "inner outer between inner-again end");
    CHECK(inner->finished());
    CHECK(outer->finished());
}

TEST_CASE("a fiber that was never resumed ends without effect") {
    const auto kept = std::make_shared<int>(1);
    {
        fiber one([kept] {});
        CHECK(kept.use_count() == 2);
    }
    CHECK(kept.use_count() == 1);
}

}  // namespace
