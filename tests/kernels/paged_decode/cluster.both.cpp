// Tests of the cluster decode kernel by itself: head dims, more than 16 rows; schedules and mutations of its
// synchronisation.
#include <imbrex/kernels/paged_decode/cluster.hpp>

#include "kernels/paged_decode/small_cache.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int HeadDim>
using kernel = paged_decode_cluster<bf16, HeadDim, causal_mask>;
constexpr int blocks = 3 * 8;  // three sequences with one KV head

}  // namespace

TEST_CASE("head dims, few rows and many") {
    check_results<kernel<32>, 32>(1, {blocks});
    check_results<kernel<64>, 64>(4, {blocks});
    check_results<kernel<96>, 96>(1, {blocks});
    check_results<kernel<192>, 192>(7, {blocks});
}

#if !defined(__CUDACC__)
TEST_CASE("cluster decode: no hazard in any schedule, detects every mutation") {
    // Some warps have two stages of keys, one after the other in the same buffer.
    check_synchronisation<kernel<96>, 96>(5, blocks, 300, 32 * 32 + 40);
}
#endif
