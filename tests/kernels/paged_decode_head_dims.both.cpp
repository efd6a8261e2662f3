// Decode over a paged cache at the greatest depths, whose results are put together in several rounds or by fewer registers; and of more
// sequences than a warp has lanes, many times over.
#include "kernels/paged_decode/trial.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int HeadDim>
using decode =
    paged_decode<bf16, any_mask, score_mod::identity, attention_output_mode::normalised, decode_head_dims<HeadDim>>;

}  // namespace

TEST_CASE("random cases of depths 192 and 256") {
    check_random_decode<decode<192>, bf16>(4, 60, 192);
    check_random_decode<decode<256>, bf16>(5, 60, 256);
}

TEST_CASE("thousands of sequences, most of them short") {
    attention_test_case c{.batches = 1100, .heads = 2, .kv_heads = 1, .seqlen_q = 1, .seqlen_k = 40, .head_dim_qk = 16};
    c.head_dim_v = 16;
    c.page_size = 16;
    c.right = 0;
    for (int i = 0; i < c.batches; ++i) c.seqused_k.push_back(i % 100 == 7 ? 40 : i * 7 % 11);
    check_decode<decode<192>, bf16>(c, {3, 40});
}
