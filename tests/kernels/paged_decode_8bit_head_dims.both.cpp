// Random problems of paged_decode over 8-bit caches, at the larger head dims.
#include "kernels/paged_decode/eight_bits.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class In, class Cache, int HeadDim>
using decode = paged_decode<In, decode_config{.head_dims = {HeadDim}}, any_mask, score_mod::identity, Cache>;

}  // namespace

TEST_CASE("random problems with head_dim 96 and 128") {
    check_random_eight_bits<fp16, e4m3, decode<fp16, e4m3, 96>>(3, 60, 96);
    check_random_eight_bits<bf16, std::int8_t, decode<bf16, std::int8_t, 128>>(4, 80, 128);
}

TEST_CASE("random problems with head_dim 192 and 256") {
    check_random_eight_bits<bf16, std::int8_t, decode<bf16, std::int8_t, 192>>(5, 50, 192);
    check_random_eight_bits<bf16, e4m3, decode<bf16, e4m3, 256>>(6, 60, 256);
}
