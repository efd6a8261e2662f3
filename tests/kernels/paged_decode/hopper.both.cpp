// Tests of the Hopper decode kernel by itself: all row groups, several merge rounds; schedules and mutations of its
// synchronisation.
#include <imbrex/kernels/paged_decode/hopper.hpp>

#include "kernels/paged_decode/small_cache.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int HeadDim, decode_shape Shape>
void check_shape(int tokens) {
    check_results<paged_decode_hopper<bf16, HeadDim, causal_mask, score_mod::identity, Shape>, HeadDim>(tokens);
}
#if !defined(__CUDACC__)
template <int HeadDim, decode_shape Shape>
void check_synchronisation_of_shape(int tokens, int blocks, int schedules) {
    check_synchronisation<paged_decode_hopper<bf16, HeadDim, causal_mask, score_mod::identity, Shape>, HeadDim>(
        tokens, blocks, schedules);
}
#endif

}  // namespace

TEST_CASE("warps_m of 1 to 8, stages of 16 and 32 keys, one or several merge rounds") {
    check_shape<32, decode_shape{1, 16, 8, 32}>(1);
    check_shape<64, decode_shape{2, 32, 4, 64}>(7);
    check_shape<96, decode_shape{4, 32, 4, 32}>(12);
    check_shape<64, decode_shape{8, 16, 3, 64}>(40);
}

#if !defined(__CUDACC__)
TEST_CASE("Hopper decode: no hazard in any schedule, detects every mutation") {
    check_synchronisation_of_shape<32, decode_shape{1, 16, 8, 32}>(9, 2, 1000);
    check_synchronisation_of_shape<96, decode_shape{4, 16, 4, 32}>(17, 2, 300);
}
#endif
