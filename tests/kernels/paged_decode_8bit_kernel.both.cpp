// Tests of the Hopper decode kernel over an e4m3 cache by itself: schedules and mutations of its synchronisation. In
// the host world the kernel reports a page that does not exist.
#include <imbrex/kernels/paged_decode/hopper.hpp>

#include "kernels/paged_decode/small_cache.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int HeadDim, decode_shape Shape>
struct decode_e4m3 {
    using kernel = paged_decode_hopper<bf16, HeadDim, causal_mask, score_mod::identity, Shape,
                                       attention_output_mode::normalised, e4m3>;

    static void check(int tokens) { check_results<kernel, HeadDim>(tokens); }
#if !defined(__CUDACC__)
    static void check_schedules(int tokens, int blocks, int schedules) {
        check_synchronisation<kernel, HeadDim>(tokens, blocks, schedules);
    }
#endif
};

}  // namespace

TEST_CASE("e4m3: warps_m of 1 and 4, stages of 16 to 64 keys") {
    decode_e4m3<32, decode_shape{1, 16, 8, 32}>::check(1);
    decode_e4m3<64, decode_shape{2, 64, 4, 64}>::check(7);
    decode_e4m3<96, decode_shape{4, 32, 4, 32}>::check(12);
}

#if !defined(__CUDACC__)
TEST_CASE("e4m3 decode: no hazard in any schedule, detects every mutation") {
    decode_e4m3<32, decode_shape{1, 16, 8, 32}>::check_schedules(9, 2, 1000);
    decode_e4m3<96, decode_shape{4, 16, 4, 32}>::check_schedules(17, 2, 300);
}

TEST_CASE("the kernel reports a page that does not exist") {
    using kernel = decode_e4m3<32, decode_shape{1, 16, 8, 32}>::kernel;
    small_cache<kernel, 32> there(world::host, 1, 2);
    there.table.values[19] = 77;  // of sequence 1
    const auto args = there.upload();
    CHECK(error_message_of([&] { run<kernel>(world::host, {2}, args); }) ==
          "paged_kv.block_table: page 77 of sequence 1; there are 25 pages");
}
#endif
