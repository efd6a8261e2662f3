// Tests of the multi-KV-head decode kernel by itself, with 16-bit and 8-bit caches: grids of any size; schedules and
// mutations of its synchronisation.
#include <imbrex/kernels/paged_decode/multi_kv_head.hpp>

#include "kernels/paged_decode/small_cache.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int HeadDim, multi_kv_head_shape Shape, class Cache = bf16>
struct decode {
    using kernel = paged_decode_multi_kv_head<bf16, HeadDim, causal_mask, score_mod::identity, Shape,
                                              attention_output_mode::normalised, Cache>;

    static void check(int tokens) { check_results<kernel, HeadDim>(tokens); }
#if !defined(__CUDACC__)
    static void check_schedules(int tokens, int blocks, int schedules) {
        check_synchronisation<kernel, HeadDim>(tokens, blocks, schedules);
    }
#endif
};

}  // namespace

TEST_CASE("one warp per KV head, stages of 16 to 64 keys, one token and several") {
    decode<128, multi_kv_head_shape{16, 3}>::check(1);
    decode<64, multi_kv_head_shape{32, 3}>::check(2);
    decode<96, multi_kv_head_shape{16, 4}>::check(5);
    decode<32, multi_kv_head_shape{16, 2}>::check(1);
    decode<128, multi_kv_head_shape{32, 3}, e4m3>::check(1);
    decode<64, multi_kv_head_shape{64, 2}, e4m3>::check(3);
}

TEST_CASE("two and four warps per KV head") {
    decode<128, multi_kv_head_shape{16, 3, 2, 4}>::check(1);
    decode<128, multi_kv_head_shape{16, 3, 2, 4}>::check(2);
    decode<64, multi_kv_head_shape{32, 3, 2, 4}>::check(1);
    decode<96, multi_kv_head_shape{16, 3, 4, 2}>::check(5);
    decode<128, multi_kv_head_shape{32, 3, 2, 4}, e4m3>::check(1);
    decode<128, multi_kv_head_shape{32, 3, 4, 2}, e4m3>::check(3);
}

#if !defined(__CUDACC__)
TEST_CASE("multi-KV-head decode: no hazard in any schedule, detects every mutation") {
    decode<32, multi_kv_head_shape{16, 2, 2}>::check_schedules(9, 2, 1000);
    decode<32, multi_kv_head_shape{16, 2, 2}, e4m3>::check_schedules(3, 3, 300);
    decode<32, multi_kv_head_shape{16, 2, 1, 2}>::check_schedules(9, 2, 1000);
}

TEST_CASE("multi-KV-head decode: the kernel reports a page that does not exist") {
    using small = decode<32, multi_kv_head_shape{16, 2, 2}>::kernel;
    small_cache<small, 32> there(world::host, 1, 2);
    there.table.values[19] = 77;  // of sequence 1
    const auto args = there.upload();
    CHECK(error_message_of([&] { run<small>(world::host, {2}, args); }) ==
          "paged_kv.block_table: page 77 of sequence 1; there are 25 pages");
}
#endif
