// Tests of paged_decode at the largest head dims, which merge in several rounds or with fewer registers; and with many
// more sequences than a warp has lanes.
#include "kernels/paged_decode/trial.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int HeadDim>
using decode = paged_decode<bf16, decode_config{.head_dims = {HeadDim}}, any_mask>;

}  // namespace

TEST_CASE("random problems with head_dim 192 and 256") {
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
