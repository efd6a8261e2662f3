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

TEST_CASE("what is large is read by threads, and all else on Hopper by the copy engine") {
    const decode_situation small{
        .hopper = true, .engine_can_copy = true, .keys = 16384, .bytes = 67108864, .element_bytes = 2, .early = false};
    CHECK(choose_decode(small) == decode_kernel::hopper);
    decode_situation now = small;
    now.bytes = 536870912;
    CHECK(choose_decode(now) == decode_kernel::ampere_class);
    CHECK(can_decode_on_hopper(now));
    now.early = true;
    CHECK(choose_decode(now) == decode_kernel::hopper);
    now.bytes *= 2;
    CHECK(choose_decode(now) == decode_kernel::ampere_class);
    now.keys = 1024;  // of many short sequences
    CHECK(choose_decode(now) == decode_kernel::hopper);
    now = small;
    now.bytes = 536870912;
    now.element_bytes = 1;
    CHECK(choose_decode(now) == decode_kernel::hopper);
    now = small;
    now.hopper = false;
    CHECK(choose_decode(now) == decode_kernel::ampere_class);
    now = small;
    now.engine_can_copy = false;
    CHECK(choose_decode(now) == decode_kernel::ampere_class);
    now = small;
    now.keys = 0;
    CHECK(choose_decode(now) == decode_kernel::ampere_class);
    CHECK(!can_decode_on_hopper(now));
}
