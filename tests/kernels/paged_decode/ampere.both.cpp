// Tests of the sm_80 decode kernel by itself: stages of one warp and of four, of 16 and 32 keys, one and several merge
// rounds; schedules and mutations of its synchronisation.
#include <imbrex/kernels/paged_decode/ampere.hpp>

#include "kernels/paged_decode/small_cache.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr decode_shape shape(int groups, int keys, int stages, int merge_columns, int warps) {
    return {groups, keys, stages, merge_columns, warps, 1, true};
}
template <int HeadDim, decode_shape Shape>
void check_shape(int tokens) {
    check_results<paged_decode_ampere<bf16, HeadDim, causal_mask, score_mod::identity, Shape>, HeadDim>(tokens);
}
#if !defined(__CUDACC__)
template <int HeadDim, decode_shape Shape>
void check_synchronisation_of_shape(int tokens, int blocks, int schedules) {
    check_synchronisation<paged_decode_ampere<bf16, HeadDim, causal_mask, score_mod::identity, Shape>, HeadDim>(
        tokens, blocks, schedules);
}
#endif

}  // namespace

TEST_CASE("warps_m of 1 to 4, stages of 16 and 32 keys, one or several merge rounds") {
    check_shape<32, shape(1, 16, 4, 32, 4)>(1);
    check_shape<64, shape(1, 32, 8, 64, 4)>(1);
    check_shape<64, shape(2, 32, 8, 64, 8)>(7);
    check_shape<96, shape(4, 32, 3, 32, 4)>(12);
    check_shape<64, shape(4, 16, 4, 64, 8)>(40);
}

#if !defined(__CUDACC__)
TEST_CASE("sm_80 decode: no hazard in any schedule, detects every mutation") {
    check_synchronisation_of_shape<32, shape(1, 32, 4, 32, 4)>(3, 2, 1000);
    check_synchronisation_of_shape<96, shape(4, 16, 3, 32, 4)>(17, 2, 1000);
}
#endif
