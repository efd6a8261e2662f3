// Random cases of decode over a paged cache, in fp16: at a greater depth, and with scores that are changed.
#include "kernels/paged_decode/trial.hpp"

using namespace imbrex;
using namespace imbrex_test;

TEST_CASE("random cases of fp16, depth 128") {
    using decode =
        paged_decode<fp16, any_mask, score_mod::identity, attention_output_mode::normalised, decode_head_dims<128>>;
    check_random_decode<decode, fp16>(2, 150, 128);
}

TEST_CASE("random cases of fp16 with scores that are changed") {
    using decode = paged_decode<fp16, any_mask, any_score, attention_output_mode::normalised, decode_head_dims<64>>;
    check_random_decode<decode, fp16, true>(3, 150, 64);
}
