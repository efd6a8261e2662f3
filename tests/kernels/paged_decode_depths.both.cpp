// Decode over a paged cache at the greatest depths, whose results are put together in several rounds or by fewer registers; and of more
// sequences than a warp has lanes, many times over.
#include "kernels/paged_decode/trial.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int Depth>
using decode = paged_decode<bf16, any_mask, plain_score, attention_result::normalised, decode_depths<Depth>>;

}  // namespace

TEST_CASE("random cases of depths 192 and 256") {
    check_random_decode<decode<192>, bf16>(4, 60, 192);
    check_random_decode<decode<256>, bf16>(5, 60, 256);
}

TEST_CASE("thousands of sequences, most of them short") {
    attention_test_case c{.batches = 1100, .heads = 2, .key_heads = 1, .queries = 1, .keys = 40, .key_depth = 16};
    c.value_depth = 16;
    c.page_rows = 16;
    c.right = 0;
    for (int i = 0; i < c.batches; ++i) c.key_lengths.push_back(i % 100 == 7 ? 40 : i * 7 % 11);
    check_decode<decode<192>, bf16>(c, {3, 40});
}
