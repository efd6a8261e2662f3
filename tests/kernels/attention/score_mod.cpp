// score_mods: the result for one score, alone and composed.
#include <doctest/doctest.h>

#include <imbrex/kernels/attention/score_mod.hpp>

#include <cmath>
#include <initializer_list>

using namespace imbrex;

namespace {

struct halved {
    IMBREX_KERNEL float operator()(const attention_extents&, int, int, float score) const { return score / 2; }
};

}  // namespace

TEST_CASE("softcap, ALiBi and additive bias change a score as defined") {
    const attention_extents s{1, 2, 3, 5};
    CHECK(score_mod::identity{}(s, 0, 0, 7.5f) == 7.5f);
    for (const float x : {-1e30f, -100.0f, -3.0f, -1e-3f, 0.0f, 0.5f, 20.0f, 1e30f}) {
        CAPTURE(x);
        CHECK(std::abs(score_mod::softcap{4}(s, 0, 0, x) - 4 * std::tanh(double(x) / 4)) <= 2e-6);
    }
    const float slopes[] = {9, 9, 0.5f};
    // Query 0 is aligned with key 2.
    CHECK(score_mod::alibi{slopes}(s, 0, 2, 1.0f) == 1.0f);
    CHECK(score_mod::alibi{slopes}(s, 0, 0, 1.0f) == 0.0f);
    CHECK(score_mod::alibi{slopes}(s, 0, 4, 1.0f) == 0.0f);
    CHECK(score_mod::alibi{slopes}(s, 2, 0, 1.0f) == -1.0f);

    float numbers[100];
    for (int i = 0; i < 100; ++i) numbers[i] = float(i);
    CHECK(score_mod::additive_bias{numbers, 50, 15, 5}(s, 1, 3, 0.5f) == 88.5f);
    CHECK(score_mod::additive_bias{numbers, 0, 0, 5}(s, 1, 3, 0.5f) == 8.5f);
    // Out-of-range positions read the first element.
    CHECK(score_mod::additive_bias{numbers, 0, 0, 1000000}(s, 3, 3, 0.5f) == 3.5f);
    CHECK(score_mod::additive_bias{numbers + 99, 0, 0, -5}(s, 1, 5, 0.5f) == 94.5f);
}

TEST_CASE("unscaled times output_scale is the score") {
    const attention_extents s{0, 0, 1, 1};
    const score_mod::softcap bent{4};
    CHECK(scale_after(bent, 0.25f) == 4.0f);
    for (const float product : {-100.0f, -3.0f, 0.0f, 0.5f, 20.0f}) {
        CAPTURE(product);
        CHECK(std::abs(bent.unscaled(s, 0, 0, product, 0.25f) * scale_after(bent, 0.25f) -
                       bent(s, 0, 0, product / 4)) <= 1e-6f);
    }
    // The polynomial gives the exponents of small products at any scale.
    for (const float scale : {0.25f, 0.01f}) {
        const softcap_polynomial curve = scale_log2_after(bent, scale);
        CHECK(curve.value == 4.0f * log2_of_e);
        for (const float part : {-1.0f, -0.6f, -0.01f, 0.0f, 0.3f, 0.9f, 1.0f}) {
            CAPTURE(part);
            const float product = part * curve.limit;
            const double wanted = 4 * std::tanh(double{product} * scale / 4) * double{log2_of_e};
            CHECK(std::abs(curve.relative_to(1.5f, product) - (wanted - 1.5)) <= 4 * 1e-5);
        }
    }
    CHECK(scale_after(score_mod::identity{}, 0.25f) == 0.25f);
    CHECK(scale_after(halved{}, 0.25f) == 1.0f);
    CHECK(scale_after(score_mod::compose(bent, halved{}), 0.25f) == 1.0f);
}

TEST_CASE("compose applies score_mods in order and combines their traits") {
    const attention_extents s{0, 0, 1, 3};
    const float slopes[] = {0.25f};
    const auto both = score_mod::compose(score_mod::softcap{2}, score_mod::alibi{slopes}, halved{});
    CHECK(std::abs(both(s, 0, 0, 1.0f) - (2 * std::tanh(0.5) - 0.5) / 2) <= 1e-6);
    const auto other = score_mod::compose(halved{}, score_mod::alibi{slopes}, score_mod::softcap{2});
    CHECK(std::abs(other(s, 0, 0, 1.0f)) <= 1e-6);
    CHECK(score_is_identity<score_mod::identity>());
    CHECK(score_is_identity<decltype(score_mod::compose(score_mod::identity{}, score_mod::identity{}))>());
    CHECK(!score_is_identity<decltype(both)>());
    CHECK(!score_reads_memory<decltype(both)>());
    CHECK(score_reads_memory<decltype(score_mod::compose(score_mod::softcap{}, score_mod::additive_bias{}))>());
}
