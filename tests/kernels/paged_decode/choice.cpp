// Which kernel decodes, and how many blocks.
#include <imbrex/kernels/paged_decode/choice.hpp>

#include <doctest/doctest.h>

using namespace imbrex;

TEST_CASE("blocks of a decode are as many as there is room for, or a few less that share evenly") {
    CHECK(decode_blocks_for(132, 8) == 128);     // sixteen for each head of one sequence
    CHECK(decode_blocks_for(132, 64) == 128);    // two for each
    CHECK(decode_blocks_for(132, 1024) == 128);  // eight whole ones each
    CHECK(decode_blocks_for(132, 132) == 132);
    CHECK(decode_blocks_for(132, 1) == 132);
    CHECK(decode_blocks_for(132, 24) == 132);  // 120 would be too few
    CHECK(decode_blocks_for(132, 1000) == 132);
    CHECK(decode_blocks_for(132, 0) == 132);
    CHECK(decode_blocks_for(1, 1000) == 1);
    CHECK(decode_blocks_for(3, 8) == 3);
}

TEST_CASE("what is known to be large is read by threads, and all else on Hopper by the copy engine") {
    decode_situation unknown{};
    unknown.hopper = unknown.engine_can_copy = unknown.has_pages = true;
    unknown.element_bytes = 2;
    unknown.sequences = 32;
    unknown.key_bytes = 4096;
    CHECK(choose_decode(unknown) == decode_kernel::hopper);
    decode_situation large = unknown;
    large.keys = 32 * 32768;
    CHECK(choose_decode(large) == decode_kernel::ampere_class);
    CHECK(can_decode_on_hopper(large));
    decode_situation now = large;
    now.sequences = 32 * 8 + 1;  // shorter ones
    CHECK(choose_decode(now) == decode_kernel::hopper);
    now = large;
    now.key_bytes = 2048;  // less to read
    CHECK(choose_decode(now) == decode_kernel::hopper);
    now = large;
    now.element_bytes = 1;
    CHECK(choose_decode(now) == decode_kernel::hopper);

    now = unknown;
    now.hopper = false;
    CHECK(choose_decode(now) == decode_kernel::ampere_class);
    now = unknown;
    now.engine_can_copy = false;
    CHECK(choose_decode(now) == decode_kernel::ampere_class);
    now = unknown;
    now.has_pages = false;
    CHECK(choose_decode(now) == decode_kernel::ampere_class);
    CHECK(!can_decode_on_hopper(now));
}

TEST_CASE("where blocks have some heads of a sequence each, these are attended to together") {
    decode_situation many{};
    many.hopper = many.engine_can_copy = many.has_pages = many.whole = many.few_rows = true;
    many.element_bytes = 2;
    many.sequences = 127;
    many.key_heads = 8;
    many.blocks = 132;
    many.key_bytes = 4096;
    many.depth = 128;
    const auto chosen_with = [&](auto change) {
        decode_situation other = many;
        change(other);
        return choose_decode(other);
    };
    CHECK(choose_decode(many) == decode_kernel::heads);
    CHECK(chosen_with([](auto& s) { s.keys = s.sequences * 65536; }) == decode_kernel::heads);
    CHECK(chosen_with([](auto& s) { s.sequences = 126; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.key_heads = 12; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.key_heads = 4, s.sequences = 254; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.few_rows = false; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.whole = false; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.depth = 192; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.hopper = false; }) == decode_kernel::ampere_class);
    CHECK(chosen_with([](auto& s) { s.engine_can_copy = false; }) == decode_kernel::ampere_class);

    many.element_bytes = 1;
    const auto chosen_for = [&](int sequences, int key_heads, int depth = 128) {
        return chosen_with([&](auto& s) { s.sequences = sequences, s.key_heads = key_heads, s.depth = depth; });
    };
    CHECK(chosen_for(127, 8) == decode_kernel::heads);
    CHECK(chosen_for(126, 8) == decode_kernel::two_heads);
    CHECK(chosen_for(70, 8) == decode_kernel::four_heads);
    CHECK(chosen_for(64, 8) == decode_kernel::four_heads);
    CHECK(chosen_for(63, 8) == decode_kernel::two_heads);
    CHECK(chosen_for(20, 8) == decode_kernel::two_heads);
    CHECK(chosen_for(19, 8) == decode_kernel::hopper);
    CHECK(chosen_for(128, 4) == decode_kernel::four_heads);
    CHECK(chosen_for(128, 2) == decode_kernel::two_heads);
    CHECK(chosen_for(128, 1) == decode_kernel::hopper);
    CHECK(chosen_for(32, 8, 64) == decode_kernel::two_heads);
    CHECK(chosen_for(32, 8, 96) == decode_kernel::hopper);  // columns of four warps would not be multiples of eight
    CHECK(chosen_for(64, 8, 96) == decode_kernel::four_heads);

    for (const int depth : {64, 96, 128}) {
        for (const int bytes : {1, 2}) {
            const decode_heads_shape shape = decode_heads_shape_for(depth, bytes);
            CHECK(shape.keys * shape.stages * depth * bytes == (depth == 96 ? 3 * 3072 : 2 * 4096));
        }
    }
}

TEST_CASE("kernels have names") {
    using enum decode_kernel;
    CHECK(std::string(name_of(four_heads)) == "four_heads");
    CHECK(std::string(name_of(ampere_class)) == "ampere_class");
    CHECK(decode_heads_of(heads) == 8);
    CHECK(decode_heads_of(two_heads) == 2);
    CHECK(decode_heads_of(hopper) == 1);
}

TEST_CASE("few heads and few keys are attended to in clusters") {
    decode_situation few{};
    few.hopper = few.engine_can_copy = few.has_pages = true;
    few.element_bytes = 2;
    few.sequences = 8;
    few.clusters = 16;
    few.most_keys = 2048;
    few.depth = 64;
    CHECK(choose_decode(few) == decode_kernel::cluster);
    const auto chosen_with = [&](auto change) {
        decode_situation other = few;
        change(other);
        return choose_decode(other);
    };
    CHECK(chosen_with([](auto& s) { s.clusters = 17; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.clusters = 0; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.most_keys = 2064; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.depth = 96; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.depth = 128, s.most_keys = 512; }) == decode_kernel::cluster);
    CHECK(chosen_with([](auto& s) { s.element_bytes = 1; }) == decode_kernel::hopper);
    CHECK(chosen_with([](auto& s) { s.engine_can_copy = false; }) == decode_kernel::ampere_class);
}
