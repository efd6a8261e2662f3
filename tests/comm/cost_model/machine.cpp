// Machine models: times of blocks and transfers, and invalid speeds.
#include "comm/cost_model/small_machine.hpp"
#include "worlds.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace imbrex_test;

TEST_CASE("times of blocks and of transfers") {
    constexpr attention_sizes sizes{.heads = 3, .head_dim = 8, .head_dim_v = 24, .batches = 2};
    const device_speed device{.attention_rate = 64, .launch_time = 0.5};
    // A causal block of 4 tokens: 10 scores per head, one rectangle.
    const attention_block block = ring_schedule{.tokens = 4, .sizes = sizes}.block(0, 0);
    CHECK(device.time_of(block, sizes) == 2 * (8 + 24) * 10 * 3 * 2 / 64.0 + 0.5);
    CHECK(device.time_of(attention_block{}, sizes) == 0);

    const cluster_machine cluster{.device = device,
                                  .ranks_per_node = 2,
                                  .within_node = {.bandwidth = 8, .latency = 1},
                                  .between_nodes = {.bandwidth = 2, .latency = 3}};
    CHECK(cluster.transfer_time(0, 1, 16) == 3);
    CHECK(cluster.transfer_time(1, 2, 16) == 11);
    CHECK(cluster.transfer_time(3, 2, 16) == 3);
    CHECK(cluster.transfer_time(7, 0, 16) == 11);
    CHECK(cluster.device_of(7) == 7);

    const shared_device shared{.device = device, .memory_bandwidth = 8, .copy_latency = 1};
    CHECK(shared.transfer_time(0, 1, 16) == 5);
    CHECK(shared.device_of(7) == 0);
}

TEST_CASE("machine models reject invalid speeds") {
    const ring_schedule schedule{.tokens = 4, .ranks = 2, .sizes = tiny_sizes};
    const auto refusal = [&](auto change) {
        cluster_machine machine = slow_machine;
        change(machine);
        return error_message_of([&] { simulate(schedule, machine); });
    };
    CHECK(refusal([](cluster_machine& m) { m.device.attention_rate = 0; }) ==
          "device.attention_rate: 0 FLOP/s; must be finite and greater than 0");
    CHECK(refusal([](cluster_machine& m) { m.device.attention_rate = infinite; }) ==
          "device.attention_rate: inf FLOP/s; must be finite and greater than 0");
    CHECK(refusal([](cluster_machine& m) { m.device.launch_time = -1e-6; }) ==
          "device.launch_time: -1e-06 s; must be finite and not negative");
    CHECK(refusal([](cluster_machine& m) { m.ranks_per_node = 0; }) == "ranks_per_node: 0; must be at least 1");
    CHECK(refusal([](cluster_machine& m) { m.within_node.bandwidth = -2; }) ==
          "within_node.bandwidth: -2 bytes/s; must be greater than 0");
    CHECK(refusal([](cluster_machine& m) { m.within_node.latency = std::nan(""); }) ==
          "within_node.latency: nan s; must be finite and not negative");
    CHECK(refusal([](cluster_machine& m) { m.between_nodes.bandwidth = std::nan(""); }) ==
          "between_nodes.bandwidth: nan bytes/s; must be greater than 0");
    CHECK(refusal([](cluster_machine& m) { m.between_nodes.latency = infinite; }) ==
          "between_nodes.latency: inf s; must be finite and not negative");

    shared_device shared{.device = {.attention_rate = 4}, .memory_bandwidth = 1};
    shared.copy_latency = -1;
    CHECK(error_message_of([&] { simulate(schedule, shared); }) ==
          "copy_latency: -1 s; must be finite and not negative");
    shared = {.device = {.attention_rate = 4}};
    CHECK(error_message_of([&] { simulate(schedule, shared); }) ==
          "memory_bandwidth: 0 bytes/s; must be greater than 0");
}
