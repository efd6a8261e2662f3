// Attention's scores: what becomes of a number, alone and in turn.
#include <doctest/doctest.h>

#include <imbrex/kernels/attention/score.hpp>

#include <cmath>
#include <initializer_list>

using namespace imbrex;

namespace {

struct halved {
    IMBREX_KERNEL float operator()(const attention_sequence&, int, int, float score) const { return score / 2; }
};

}  // namespace

TEST_CASE("scores are bent, sloped and added to") {
    const attention_sequence s{1, 2, 3, 5};
    CHECK(plain_score{}(s, 0, 0, 7.5f) == 7.5f);
    for (const float x : {-1e30f, -100.0f, -3.0f, -1e-3f, 0.0f, 0.5f, 20.0f, 1e30f}) {
        CAPTURE(x);
        CHECK(std::abs(softcap{4}(s, 0, 0, x) - 4 * std::tanh(double(x) / 4)) <= 2e-6);
    }
    const float slopes[] = {9, 9, 0.5f};
    // Query 0 stands at key 2.
    CHECK(alibi{slopes}(s, 0, 2, 1.0f) == 1.0f);
    CHECK(alibi{slopes}(s, 0, 0, 1.0f) == 0.0f);
    CHECK(alibi{slopes}(s, 0, 4, 1.0f) == 0.0f);
    CHECK(alibi{slopes}(s, 2, 0, 1.0f) == -1.0f);

    float numbers[100];
    for (int i = 0; i < 100; ++i) numbers[i] = float(i);
    CHECK(additive_bias{numbers, 50, 15, 5}(s, 1, 3, 0.5f) == 88.5f);
    CHECK(additive_bias{numbers, 0, 0, 5}(s, 1, 3, 0.5f) == 8.5f);
    // Behind the ends there is nothing to read, and so the first is read.
    CHECK(additive_bias{numbers, 0, 0, 1000000}(s, 3, 3, 0.5f) == 3.5f);
    CHECK(additive_bias{numbers + 99, 0, 0, -5}(s, 1, 5, 0.5f) == 94.5f);
}

TEST_CASE("a score in units of its own is the same score") {
    const attention_sequence s{0, 0, 1, 1};
    const softcap bent{4};
    CHECK(scale_after(bent, 0.25f) == 4.0f);
    for (const float product : {-100.0f, -3.0f, 0.0f, 0.5f, 20.0f}) {
        CAPTURE(product);
        CHECK(std::abs(bent.in_units(s, 0, 0, product, 0.25f) * scale_after(bent, 0.25f) -
                       bent(s, 0, 0, product / 4)) <= 1e-6f);
    }
    // Small products become exponents by a curve, whatever the scale.
    for (const float scale : {0.25f, 0.01f}) {
        const exponent_curve curve = factor_after(bent, scale);
        CHECK(curve.value == 4.0f * log2_of_e);
        for (const float part : {-1.0f, -0.6f, -0.01f, 0.0f, 0.3f, 0.9f, 1.0f}) {
            CAPTURE(part);
            const float product = part * curve.limit;
            const double wanted = 4 * std::tanh(double{product} * scale / 4) * double{log2_of_e};
            CHECK(std::abs(curve.relative_to(1.5f, product) - (wanted - 1.5)) <= 4 * 1e-5);
        }
    }
    CHECK(scale_after(plain_score{}, 0.25f) == 0.25f);
    CHECK(scale_after(halved{}, 0.25f) == 1.0f);
    CHECK(scale_after(in_turn(bent, halved{}), 0.25f) == 1.0f);
}

TEST_CASE("scores are applied one after the other, and say together what they are") {
    const attention_sequence s{0, 0, 1, 3};
    const float slopes[] = {0.25f};
    const auto both = in_turn(softcap{2}, alibi{slopes}, halved{});
    CHECK(std::abs(both(s, 0, 0, 1.0f) - (2 * std::tanh(0.5) - 0.5) / 2) <= 1e-6);
    const auto other = in_turn(halved{}, alibi{slopes}, softcap{2});
    CHECK(std::abs(other(s, 0, 0, 1.0f)) <= 1e-6);
    CHECK(score_changes_nothing<plain_score>());
    CHECK(score_changes_nothing<decltype(in_turn(plain_score{}, plain_score{}))>());
    CHECK(!score_changes_nothing<decltype(both)>());
    CHECK(!score_reads_memory<decltype(both)>());
    CHECK(score_reads_memory<decltype(in_turn(softcap{}, additive_bias{}))>());
}
