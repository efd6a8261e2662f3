// wgmma with every legal number of columns.
#include <hw/cuda/wgmma_product.hpp>
#include <utility>

using namespace hw_test;

namespace {

template <int... I>
void check_every_width(std::integer_sequence<int, I...>) {
    (check_product<float, bf16, bf16, 64, 8 * (I + 1), 32, false, true>(1.0F, exact_enough), ...);
}

}  // namespace

TEST_CASE("a warpgroup multiplies with every legal number of columns") {
    if (skipped()) return;
    check_every_width(std::make_integer_sequence<int, 32>{});
}
