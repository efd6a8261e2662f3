// Timelines of a few ranks against values computed by hand, and invariants of every timeline.
#include "comm/cost_model/small_machine.hpp"
#include "worlds.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

using namespace imbrex_test;

namespace {

void check_step(const timeline& line, int rank, int step, double begin, double end) {
    INFO("rank ", rank, ", step ", step);
    CHECK(line.at(rank, step).begin == begin);
    CHECK(line.at(rank, step).compute_begin == begin);
    CHECK(line.at(rank, step).end == end);
}

const transfer_times& transfer_to(const timeline& line, int to, int step, payload what = payload::kv) {
    for (const transfer_times& one : line.transfers) {
        if (one.what.to == to && one.what.post_step == step && one.what.what == what) return one;
    }
    FAIL("no such transfer");
    return line.transfers.front();
}

void check_transfer(const transfer_times& one, double posted, double begin, double end) {
    INFO("from ", one.what.from, " to ", one.what.to, ", step ", one.what.post_step);
    CHECK(one.posted == posted);
    CHECK(one.begin == begin);
    CHECK(one.end == end);
}

// Invariants of every timeline.
template <class Schedule, class Machine>
void check_rules(const Schedule& schedule, const Machine& machine) {
    const timeline line = simulate(schedule, machine);
    const double rounding = 1e-12 * line.time();
    REQUIRE(line.ranks == schedule.ranks);
    REQUIRE(line.steps == schedule.steps());

    // Every block has its time, and blocks of one rank or device do not overlap.
    using span = std::pair<double, double>;
    std::vector<std::vector<span>> work(line.ranks), sends(line.ranks), receives(line.ranks);
    for (int rank = 0; rank < line.ranks; ++rank) {
        double done = 0;
        for (int step = 0; step < line.steps; ++step) {
            const step_times& times = line.at(rank, step);
            CHECK(times.begin >= done);
            CHECK(times.compute_begin >= times.begin);
            CHECK(times.end - times.compute_begin ==
                  doctest::Approx(machine.device.time_of(schedule.block(rank, step), schedule.sizes)));
            if (times.end > times.compute_begin)
                work[machine.device_of(rank)].push_back({times.compute_begin, times.end});
            done = times.end;
        }
        CHECK(line.finished[rank] >= done);
        CHECK(line.time() >= line.finished[rank]);
    }

    // A transfer begins when both sides have begun its step and its data is ready; the receiver waits for it.
    std::vector<double> stream(line.ranks);  // the end of all transfers of earlier steps
    std::vector<double> latest(line.ranks);
    int step = 0;
    for (const transfer_times& one : line.transfers) {
        REQUIRE(one.what.post_step >= step);
        if (one.what.post_step > step) stream = latest;
        step = one.what.post_step;
        for (const int rank : {one.what.from, one.what.to}) {
            CHECK(one.posted >= line.at(rank, step).begin);
            CHECK(one.begin >= stream[rank]);
            latest[rank] = std::max(latest[rank], one.end);
        }
        CHECK(one.begin >= one.posted);
        CHECK(one.end - one.begin ==
              doctest::Approx(machine.transfer_time(one.what.from, one.what.to, one.what.bytes)));
        const bool at_the_end = one.what.needed_step == line.steps;
        CHECK((at_the_end ? line.finished[one.what.to] : line.at(one.what.to, one.what.needed_step).begin) >= one.end);
        sends[machine.device_of(one.what.from)].push_back({one.begin, one.end});
        receives[machine.device_of(one.what.to)].push_back({one.begin, one.end});
    }
    std::size_t sent = 0;
    for (int rank = 0; rank < line.ranks; ++rank) {
        for (int at = 0; at < line.steps; ++at) sent += schedule.sends(rank, at).size();
    }
    CHECK(line.transfers.size() == sent);
    for (auto* all : {&work, &sends, &receives}) {
        for (std::vector<span>& spans : *all) {
            std::sort(spans.begin(), spans.end());
            for (std::size_t i = 1; i < spans.size(); ++i) CHECK(spans[i].first >= spans[i - 1].second);
        }
    }

    // The total time is at least the compute time, and the parts of a rank add up to it.
    CHECK(line.efficiency() > 0);
    CHECK(line.efficiency() <= 1 + 1e-12);
    CHECK(line.time() * line.ranks >= line.single_device_time - rounding);
    const std::vector<time_breakdown> shares = time_breakdown_of(line);
    double attended = 0;
    for (const time_breakdown& one : shares) {
        attended += one.compute;
        CHECK(one.exposed >= 0);
        CHECK(one.hidden() >= -rounding);
        CHECK(one.idle >= -rounding);
        CHECK(one.compute + one.exposed + one.idle == doctest::Approx(line.time()));
    }
    CHECK(attended == doctest::Approx(line.compute_time()));
}

}  // namespace

TEST_CASE("ring of two ranks matches hand-computed times") {
    cluster_machine machine = slow_machine;
    machine.device.launch_time = 0.5;
    // Rank 0 has 3 unmasked scores of its own, rank 1 as many and 4 with the keys of rank 0.
    const timeline line = simulate(ring_schedule{.tokens = 4, .ranks = 2, .sizes = tiny_sizes}, machine);
    check_step(line, 0, 0, 0, 3.5);
    check_step(line, 1, 0, 0, 3.5);
    REQUIRE(line.transfers.size() == 2);
    for (const transfer_times& one : line.transfers) check_transfer(one, 0, 0, 5);
    check_step(line, 0, 1, 5, 5);  // fully masked: no launch
    check_step(line, 1, 1, 5, 9.5);
    CHECK(line.finished == std::vector<double>{5, 9.5});
    CHECK(line.time() == 9.5);
    CHECK(line.single_device_time == 10.5);
    CHECK(line.efficiency() == 10.5 / 19);
    CHECK(line.compute_time() == 11.5);

    const std::vector<time_breakdown> shares = time_breakdown_of(line);
    for (const time_breakdown& one : shares) {
        CHECK(one.communication == 5);
        CHECK(one.exposed == 1.5);
        CHECK(one.hidden() == 3.5);
    }
    CHECK(shares[0].compute == 3.5);
    CHECK(shares[0].idle == 4.5);
    CHECK(shares[1].compute == 8);
    CHECK(shares[1].idle == 0);
}

TEST_CASE("ring of three ranks in two nodes matches hand-computed times") {
    cluster_machine machine = slow_machine;
    machine.ranks_per_node = 2;  // 0 and 1, 2
    machine.within_node.bandwidth = 4;
    const timeline line = simulate(ring_schedule{.tokens = 6, .ranks = 3, .sizes = tiny_sizes}, machine);
    for (int rank = 0; rank < 3; ++rank) check_step(line, rank, 0, 0, 3);
    check_transfer(transfer_to(line, 1, 0), 0, 0, 2);
    check_transfer(transfer_to(line, 2, 0), 0, 0, 5);
    check_transfer(transfer_to(line, 0, 0), 0, 0, 5);
    check_step(line, 0, 1, 5, 5);
    check_step(line, 1, 1, 3, 7);
    check_step(line, 2, 1, 5, 9);
    // Rank 1 is ready at 3, but its first send lasts until 5, when the others arrive too.
    check_transfer(transfer_to(line, 1, 1), 5, 5, 7);
    check_transfer(transfer_to(line, 2, 1), 5, 5, 10);
    check_transfer(transfer_to(line, 0, 1), 5, 5, 10);
    check_step(line, 0, 2, 10, 10);
    check_step(line, 1, 2, 7, 7);
    check_step(line, 2, 2, 10, 14);
    CHECK(line.time() == 14);
    CHECK(line.efficiency() == 21.0 / 42);
    const std::vector<time_breakdown> shares = time_breakdown_of(line);
    CHECK(shares[0].exposed == 7);  // 3 to 5, 5 to 10
    CHECK(shares[1].exposed == 0);
    CHECK(shares[1].communication == 10);
    CHECK(shares[1].idle == 7);
    CHECK(shares[2].exposed == 3);  // 3 to 5, 9 to 10
}

TEST_CASE("a transfer starts when both its ranks are ready") {
    // Queries move and partial results return: rank 0's queries see no key of rank 1, which is early.
    const timeline line =
        simulate(ring_schedule{.tokens = 4, .ranks = 2, .q_chunks = 2, .sizes = tiny_sizes}, slow_machine);
    check_step(line, 0, 0, 0, 3);
    check_transfer(transfer_to(line, 0, 0, payload::q), 0, 0, 3);
    check_step(line, 0, 1, 3, 7);
    check_step(line, 1, 1, 3, 3);
    check_step(line, 0, 2, 7, 7);
    check_step(line, 1, 2, 3, 3);
    check_transfer(transfer_to(line, 0, 2, payload::partial_o), 7, 7, 24);
    check_transfer(transfer_to(line, 1, 2, payload::partial_o), 7, 7, 24);
    CHECK(line.finished == std::vector<double>{24, 24});
    const std::vector<time_breakdown> shares = time_breakdown_of(line);
    CHECK(shares[0].exposed == 17);
    CHECK(shares[1].exposed == 17);
    CHECK(shares[1].idle == 4);  // until rank 0 sends
}

TEST_CASE("Ulysses matches hand-computed times: sends in order, nothing hidden") {
    attention_sizes sizes = tiny_sizes;
    sizes.heads = sizes.kv_heads = 2;
    const timeline line = simulate(ulysses_schedule{.tokens = 4, .ranks = 2, .sizes = sizes}, slow_machine);
    check_transfer(transfer_to(line, 1, 0, payload::q), 0, 0, 3);
    check_transfer(transfer_to(line, 1, 0), 0, 3, 8);
    check_step(line, 0, 1, 8, 18);
    check_transfer(transfer_to(line, 1, 2, payload::o), 18, 18, 21);
    CHECK(line.time() == 21);
    CHECK(line.efficiency() == 20.0 / 42);
    for (const time_breakdown& one : time_breakdown_of(line)) {
        CHECK(one.hidden() == 0);
        CHECK(one.exposed == 11);
    }
}

TEST_CASE("virtual ranks match hand-computed times: blocks are serialised, and so are copies") {
    const shared_device machine{
        .device = {.attention_rate = 4, .launch_time = 0.5}, .memory_bandwidth = 4, .copy_latency = 1};
    const timeline line = simulate(ring_schedule{.tokens = 4, .ranks = 2, .sizes = tiny_sizes}, machine);
    check_step(line, 0, 0, 0, 3.5);
    CHECK(line.at(1, 0).begin == 0);
    CHECK(line.at(1, 0).compute_begin == 3.5);
    CHECK(line.at(1, 0).end == 7);
    check_transfer(transfer_to(line, 1, 0), 0, 0, 3);  // read and written: 2 bytes/s
    check_transfer(transfer_to(line, 0, 0), 0, 3, 6);
    check_step(line, 0, 1, 6, 6);
    check_step(line, 1, 1, 7, 11.5);
    CHECK(line.time() == 11.5);
    CHECK(line.compute_time() == 11.5);  // all copies hidden: three blocks in sequence
    CHECK(line.single_device_time == 10.5);
}

TEST_CASE("every timeline keeps the invariants") {
    const cluster_machine fast_links{.device = {.attention_rate = 4, .launch_time = 0.3},
                                     .ranks_per_node = 3,
                                     .within_node = {.bandwidth = 70, .latency = 0.1},
                                     .between_nodes = {.bandwidth = 11, .latency = 0.7}};
    cluster_machine slow_links = fast_links;
    slow_links.device.attention_rate = 400;
    const shared_device shared{.device = fast_links.device, .memory_bandwidth = 50, .copy_latency = 0.2};
    const shared_device slow_copies{.device = slow_links.device, .memory_bandwidth = 1, .copy_latency = 0.2};
    attention_sizes sizes = tiny_sizes;
    sizes.kv_heads = 12;
    sizes.heads = 24;
    sizes.batches = 2;
    const auto check_all = [&](const auto& schedule) {
        check_rules(schedule, fast_links);
        check_rules(schedule, slow_links);
        check_rules(schedule, shared);
        check_rules(schedule, slow_copies);
    };
    const window_mask masks[] = {as_window(full_mask{}), as_window(causal_mask{}), {6, 0}, {4, 3}};
    for (const int ranks : {1, 2, 3, 4, 6, 12}) {
        for (const int tokens : {0, 5, 67}) {
            for (const token_placement placement :
                 {token_placement::contiguous, token_placement::zigzag, token_placement::striped}) {
                for (const window_mask& mask : masks) {
                    for (int a = 1; a <= ranks; ++a) {
                        if (ranks % a != 0) continue;
                        INFO(name_of(placement), ", ", ranks, " ranks, ", a, " q_chunks, ", tokens, " tokens");
                        ring_schedule schedule{.tokens = tokens,
                                               .ranks = ranks,
                                               .q_chunks = a,
                                               .placement = placement,
                                               .mask = mask,
                                               .sizes = sizes};
                        check_all(schedule);
                        schedule.rotation = kv_rotation::while_visible;
                        check_all(schedule);
                    }
                }
                check_all(ulysses_schedule{.tokens = tokens, .ranks = ranks, .placement = placement, .sizes = sizes});
            }
        }
    }
}

TEST_CASE("an empty schedule takes no time, at efficiency 1") {
    const timeline line = simulate(ring_schedule{.tokens = 0, .ranks = 3, .sizes = tiny_sizes}, slow_machine);
    CHECK(line.time() == 0);
    CHECK(line.single_device_time == 0);
    CHECK(line.efficiency() == 1);
}

namespace {

// Every rank sends twice and receives in reverse order: a deadlock.
struct crossed_schedule {
    int ranks = 2;
    attention_sizes sizes = {};

    int steps() const { return 1; }
    token_ranges tokens_of(int) const { return {}; }
    attention_block block(int, int) const { return {}; }
    std::vector<transfer> sends(int rank, int) const { return {one(rank, 1), one(rank, 2)}; }
    std::vector<transfer> receives(int rank, int) const { return {one(1 - rank, 2), one(1 - rank, 1)}; }

  private:
    static transfer one(int from, int rows) {
        return {
            .from = from, .to = 1 - from, .rows = rows, .heads = 1, .post_step = 0, .needed_step = 1, .bytes = rows};
    }
};
void require_schedule(const crossed_schedule&) {}

}  // namespace

TEST_CASE("simulate rejects invalid schedules") {
    CHECK(error_message_of([] { simulate(ring_schedule{.ranks = 4, .q_chunks = 3}, slow_machine); }) ==
          "q_chunks: 3; must divide the 4 ranks");
    CHECK(error_message_of([] { simulate(crossed_schedule{}, slow_machine); }) ==
          "schedule: 4 transfers of step 0 deadlock; every send needs a matching receive, in the same order on both "
          "ranks");
}
