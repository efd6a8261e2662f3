// The Hopper attention kernel's online softmax: lazy rescaling, wait points, integer row maximum and row by row, against
// sums in double precision.
#include <imbrex/kernels/attention/hopper_softmax.hpp>

#include <ops/online_softmax.hpp>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// How the row maximum is computed.
enum class row_max_search { by_floats, by_integers, row_by_row };

template <softmax_wait_point WaitPoint, row_max_search Search>
struct by_variant {
    template <class Scope, class Softmax, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Softmax& softmax, Tile& scores, Tile& sum) const {
        const auto rescale = [&](const auto& factors) {
            combine_with_rows(self, sum, factors, functional::multiply{});
        };
        if constexpr (Search == row_max_search::row_by_row) {
            // Called once, before earlier results are rescaled.
            int done = 0;
            const auto only_then = [&](const auto& factors) {
                if (done == 1) rescale(factors);
            };
            softmax.exp_and_sum_row_by_row(
                self, scores, softmax.check_row_max_sign(self), [&] { ++done; }, only_then);
            if (done != 1) fill(self, sum, 0.0f);
        } else if constexpr (Search == row_max_search::by_integers) {
            softmax.template exp_and_sum<WaitPoint>(self, scores, softmax.check_row_max_sign(self), rescale);
        } else if constexpr (WaitPoint == softmax_wait_point::none) {
            softmax.step(self, scores, sum);
        } else {
            softmax.template exp_and_sum<WaitPoint>(self, scores, rescale);
        }
    }
};

template <int Rows, int Columns, class Scope, int RescaleThreshold = 0, bool VoteFirst = false,
          softmax_wait_point WaitPoint = softmax_wait_point::none, row_max_search Search = row_max_search::by_floats>
void test_variant(float scale, int pieces) {
    test_online_softmax<hopper_softmax<Rows, Scope, RescaleThreshold, VoteFirst>, Columns, Scope,
                        by_variant<WaitPoint, Search>>(scale, pieces, Search != row_max_search::by_floats);
}

template <int RescaleThreshold, bool VoteFirst = false>
using softmax_of_64_rows = hopper_softmax<64, warpgroup, RescaleThreshold, VoteFirst>;

TEST_CASE("Hopper softmax, exact: an unchanged row maximum gives a rescaling factor of exactly 1") {
    for (const float scale : {1.0f, 0.088388f, 0.3f})
        test_rescale_factors<softmax_of_64_rows<0>>(scale, 2.0f, std::exp(-2.0 * scale));
}

TEST_CASE("Hopper softmax, lazy rescaling: rescales only if the row maximum grows by more than the threshold") {
    test_rescale_factors<softmax_of_64_rows<8>>(1.0f, 5.5f, 1);  // 2^8 is e^5.545
    test_rescale_factors<softmax_of_64_rows<8>>(1.0f, 5.6f, std::exp(-5.6));
    test_rescale_factors<softmax_of_64_rows<8, true>>(0.25f, 22.0f, 1);
    test_rescale_factors<softmax_of_64_rows<8, true>>(0.25f, 23.0f, std::exp(-5.75));
}

TEST_CASE("Hopper softmax: exact and lazy, with and without a wait point") {
    test_variant<64, 64, warpgroup>(0.125f, 4);
    test_variant<16, 8, warp, 8>(0.25f, 12);
    test_variant<64, 64, warpgroup, 8>(0.125f, 4);
    test_variant<64, 16, warpgroup, 8>(1.0f, 6);
    test_variant<64, 16, warpgroup, 8, true>(1.0f, 6);
    test_variant<16, 8, warp, 8, true>(0.25f, 12);
    test_variant<64, 80, warpgroup, 0, false, softmax_wait_point::in_first_row>(0.125f, 4);
    test_variant<64, 16, warpgroup, 0, false, softmax_wait_point::in_first_row>(1.0f, 6);
    test_variant<64, 64, warpgroup, 0, false, softmax_wait_point::after_row_max>(0.125f, 4);
}

TEST_CASE("Hopper softmax: the sign check gives the same result, for rows below and above zero") {
    test_variant<16, 8, warp, 0, false, softmax_wait_point::none, row_max_search::by_integers>(0.25f, 12);
    test_variant<32, 24, warp, 0, false, softmax_wait_point::in_first_row, row_max_search::by_integers>(1.0f, 5);
    test_variant<64, 112, warpgroup, 0, false, softmax_wait_point::after_row_max, row_max_search::by_integers>(0.125f,
                                                                                                               4);
    test_variant<128, 16, warpgroup, 0, false, softmax_wait_point::in_first_row, row_max_search::by_integers>(2.0f, 3);
    test_variant<64, 64, warpgroup, 8, false, softmax_wait_point::in_first_row, row_max_search::by_integers>(0.125f, 4);
    test_variant<64, 16, warpgroup, 8, true, softmax_wait_point::after_row_max, row_max_search::by_integers>(1.0f, 6);
}

template <int Rows, int Columns, class Scope, int RescaleThreshold = 0>
void test_row_by_row(float scale, int pieces) {
    test_variant<Rows, Columns, Scope, RescaleThreshold, false, softmax_wait_point::none, row_max_search::row_by_row>(
        scale, pieces);
}

TEST_CASE("Hopper softmax: row by row, with a callback in between") {
    test_row_by_row<16, 16, warp>(0.25f, 12);
    test_row_by_row<32, 24, warp>(1.0f, 5);
    test_row_by_row<64, 80, warpgroup>(0.125f, 4);
    test_row_by_row<64, 128, warpgroup>(0.25f, 2);
    test_row_by_row<128, 16, warpgroup>(2.0f, 3);
    test_row_by_row<64, 64, warpgroup, 8>(0.125f, 4);
    test_row_by_row<64, 16, warpgroup, 8>(1.0f, 6);
}

}  // namespace
