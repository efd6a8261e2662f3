// Tests of the decode heuristics: kernel and grid size.
#include <imbrex/kernels/paged_decode/heuristics.hpp>

#include <doctest/doctest.h>

using namespace imbrex;

TEST_CASE("the grid has all resident blocks, or slightly fewer that share the work evenly") {
    CHECK(decode_grid_size(132, 8) == 128);     // sixteen per KV head of one sequence
    CHECK(decode_grid_size(132, 64) == 128);    // two per work item
    CHECK(decode_grid_size(132, 1024) == 128);  // eight work items each
    CHECK(decode_grid_size(132, 132) == 132);
    CHECK(decode_grid_size(132, 1) == 132);
    CHECK(decode_grid_size(132, 24) == 132);  // 120 would be too few
    CHECK(decode_grid_size(132, 1000) == 132);
    CHECK(decode_grid_size(132, 0) == 132);
    CHECK(decode_grid_size(1, 1000) == 1);
    CHECK(decode_grid_size(3, 8) == 3);
}

TEST_CASE("large caches use cp.async, everything else on Hopper TMA") {
    decode_heuristic_inputs unknown{};
    unknown.hopper = unknown.tma_can_copy = unknown.has_pages = true;
    unknown.element_bytes = 2;
    unknown.sequences = 32;
    unknown.kv_bytes_per_token = 4096;
    CHECK(choose_decode(unknown) == decode_kernel_kind::hopper);
    decode_heuristic_inputs large = unknown;
    large.total_seqlen_k = 32 * 32768;
    CHECK(choose_decode(large) == decode_kernel_kind::ampere_class);
    CHECK(can_decode_on_hopper(large));
    decode_heuristic_inputs now = large;
    now.sequences = 32 * 8 + 1;  // shorter ones
    CHECK(choose_decode(now) == decode_kernel_kind::hopper);
    now = large;
    now.kv_bytes_per_token = 2048;  // fewer bytes
    CHECK(choose_decode(now) == decode_kernel_kind::hopper);
    now = large;
    now.element_bytes = 1;
    CHECK(choose_decode(now) == decode_kernel_kind::hopper);

    now = unknown;
    now.hopper = false;
    CHECK(choose_decode(now) == decode_kernel_kind::ampere_class);
    now = unknown;
    now.tma_can_copy = false;
    CHECK(choose_decode(now) == decode_kernel_kind::ampere_class);
    now = unknown;
    now.has_pages = false;
    CHECK(choose_decode(now) == decode_kernel_kind::ampere_class);
    CHECK(!can_decode_on_hopper(now));
}

TEST_CASE("many sequences use the multi-KV-head kernels") {
    decode_heuristic_inputs many{};
    many.hopper = many.tma_can_copy = many.has_pages = many.dynamic_splits = many.small_m = true;
    many.element_bytes = 2;
    many.sequences = 127;
    many.kv_heads = 8;
    many.blocks = 132;
    many.kv_bytes_per_token = 4096;
    many.head_dim = 128;
    const auto chosen_with = [&](auto change) {
        decode_heuristic_inputs other = many;
        change(other);
        return choose_decode(other);
    };
    CHECK(choose_decode(many) == decode_kernel_kind::kv_heads_8);
    CHECK(chosen_with([](auto& s) { s.total_seqlen_k = s.sequences * 65536; }) == decode_kernel_kind::kv_heads_8);
    CHECK(chosen_with([](auto& s) { s.sequences = 126; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.kv_heads = 12; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.kv_heads = 4, s.sequences = 254; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.small_m = false; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.dynamic_splits = false; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.head_dim = 192; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.hopper = false; }) == decode_kernel_kind::ampere_class);
    CHECK(chosen_with([](auto& s) { s.tma_can_copy = false; }) == decode_kernel_kind::ampere_class);

    many.element_bytes = 1;
    const auto chosen_for = [&](int sequences, int kv_heads, int head_dim = 128) {
        return chosen_with([&](auto& s) { s.sequences = sequences, s.kv_heads = kv_heads, s.head_dim = head_dim; });
    };
    CHECK(chosen_for(127, 8) == decode_kernel_kind::kv_heads_8);
    CHECK(chosen_for(126, 8) == decode_kernel_kind::kv_heads_2);
    CHECK(chosen_for(70, 8) == decode_kernel_kind::kv_heads_4);
    CHECK(chosen_for(64, 8) == decode_kernel_kind::kv_heads_4);
    CHECK(chosen_for(63, 8) == decode_kernel_kind::kv_heads_2);
    CHECK(chosen_for(20, 8) == decode_kernel_kind::kv_heads_2);
    CHECK(chosen_for(19, 8) == decode_kernel_kind::hopper);
    CHECK(chosen_for(128, 4) == decode_kernel_kind::kv_heads_4);
    CHECK(chosen_for(128, 2) == decode_kernel_kind::kv_heads_2);
    CHECK(chosen_for(128, 1) == decode_kernel_kind::hopper);
    CHECK(chosen_for(32, 8, 64) == decode_kernel_kind::kv_heads_2);
    CHECK(chosen_for(32, 8, 96) ==
          decode_kernel_kind::hopper);  // the columns of four warps would not be multiples of eight
    CHECK(chosen_for(64, 8, 96) == decode_kernel_kind::kv_heads_4);

    for (const int head_dim : {64, 96, 128}) {
        for (const int bytes : {1, 2}) {
            const multi_kv_head_shape shape = multi_kv_head_shape_for(head_dim, bytes);
            CHECK(shape.keys_per_stage * shape.stages * head_dim * bytes == (head_dim == 96 ? 3 * 3072 : 2 * 4096));
        }
    }
}

TEST_CASE("kernels have names") {
    using enum decode_kernel_kind;
    CHECK(std::string(name_of(kv_heads_4)) == "kv_heads_4");
    CHECK(std::string(name_of(ampere_class)) == "ampere_class");
    CHECK(kv_heads_per_work_item(kv_heads_8) == 8);
    CHECK(kv_heads_per_work_item(kv_heads_2) == 2);
    CHECK(kv_heads_per_work_item(hopper) == 1);
}

TEST_CASE("few heads and few keys use the cluster kernel") {
    decode_heuristic_inputs few{};
    few.hopper = few.tma_can_copy = few.has_pages = true;
    few.element_bytes = 2;
    few.sequences = 8;
    few.clusters = 16;
    few.max_seqlen_k = 2048;
    few.head_dim = 64;
    CHECK(choose_decode(few) == decode_kernel_kind::cluster);
    const auto chosen_with = [&](auto change) {
        decode_heuristic_inputs other = few;
        change(other);
        return choose_decode(other);
    };
    CHECK(chosen_with([](auto& s) { s.clusters = 17; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.clusters = 0; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.max_seqlen_k = 2064; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.head_dim = 96; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.head_dim = 128, s.max_seqlen_k = 512; }) == decode_kernel_kind::cluster);
    CHECK(chosen_with([](auto& s) { s.element_bytes = 1; }) == decode_kernel_kind::hopper);
    CHECK(chosen_with([](auto& s) { s.tma_can_copy = false; }) == decode_kernel_kind::ampere_class);
}
