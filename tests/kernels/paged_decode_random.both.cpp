// Random problems of paged_decode in fp16: at a larger head_dim, and with a score_mod.
#include "kernels/paged_decode/trial.hpp"

using namespace imbrex;
using namespace imbrex_test;

TEST_CASE("random problems in fp16, head_dim 128") {
    using decode = paged_decode<fp16, decode_config{.head_dims = {128}}, any_mask>;
    check_random_decode<decode, fp16>(2, 150, 128);
}

TEST_CASE("random problems in fp16 with a score_mod") {
    using decode = paged_decode<fp16, decode_config{.head_dims = {64}}, any_mask, any_score>;
    check_random_decode<decode, fp16, true>(3, 150, 64);
}
