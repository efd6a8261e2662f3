// Online softmax with softcap, by polynomial and by tanh, against sums in double precision.
#include <imbrex/kernels/attention/softcap_softmax.hpp>

#include <ops/softmax_rows.hpp>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Scores capped at 4, by polynomial or by tanh. They may be scaled down, so that all of a warp's are within the
// polynomial's limit.
constexpr float cap = 4.0f;
template <class Scope>
struct softcap_online {
    using tile = register_tile<float, 64, 32, Scope>;
    static constexpr int warps = Scope::warps;
    struct arguments {
        matrix_view<const float> products, values;
        matrix_view<float> out;
        float* lse2;
        softcap_polynomial polynomial;
        float shrunk;
        int pieces;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        each<Scope>(block, [&](auto& self) {
            tile sum;
            fill(self, sum, 0.0f);
            online_softcap_softmax<64, Scope, 8> weights(self, args.polynomial);
            for (int piece = 0; piece < args.pieces; ++piece) {
                tile products, values;
                load(self, products, args.products.template tile<tile>(0, piece));
                map(self, products, [&](float x) { return x * args.shrunk; });
                const auto apply_softcap = [](float x) { return x == minus_infinity ? x : hw::tanh(x * (1 / cap)); };
                const auto rescale = [&](const auto& factors) {
                    combine_with_rows(self, sum, factors, functional::multiply{});
                };
                weights.template exp_and_sum_softcap<softmax_wait_point::in_first_row>(self, products, args.polynomial,
                                                                                       apply_softcap, rescale);
                load(self, values, args.values.template tile<tile>(0, piece));
                combine(self, products, values, functional::multiply{});
                combine(self, sum, products, functional::add{});
            }
            weights.finish(self, sum);
            store(self, args.out.template tile<tile>(0, 0), sum);
            store(self, args.lse2, 64, weights.lse2(self));
        });
    }
};

enum class signs { both, negative, one_positive };

void test_softcap(float shrunk, bool masked, double error, signs sign = signs::both) {
    constexpr int pieces = 3, width = 32 * pieces;
    const float inside = 1 / cap;
    const softcap_polynomial polynomial{{cap * log2_of_e},
                                        0.5f * cap,
                                        0.99992483f * log2_of_e,
                                        -0.33085505f * log2_of_e * inside * inside,
                                        0.11254138f * log2_of_e * inside * inside * inside * inside};
    for (const world where : worlds()) {
        buffer<float> products(where, 64 * width), values(where, 64 * width), out(where, 64 * 32, poison<float>()),
            lse2(where, 64, poison<float>());
        fill_random(products.values, 16, -5.0f, 5.0f);
        if (masked) fill_scores(products.values, 64, width, 16);
        if (sign != signs::both) {
            for (float& x : products.values) x = x < 0 ? x : -x;
        }
        // Not in the first tile: a row whose maximum was negative then sees a nonnegative score.
        if (sign == signs::one_positive) {
            for (int row = 0; row < 64; row += 3) products.values[row * width + 40 + row % 32] = 1.5f;
        }
        fill_random(values.values, 17, 0.5f, 1.5f);
        run<softcap_online<warpgroup>>(where, {1, 1, 1},
                                       {matrix(static_cast<const float*>(products.upload()), 64, width),
                                        matrix(static_cast<const float*>(values.upload()), 64, width),
                                        matrix(out.upload(), 64, 32), lse2.upload(), polynomial, shrunk, pieces},
                                       2);
        out.download();
        lse2.download();
        tally compared(str_cat(name_of(where), ", shrunk ", shrunk, ", masked ", masked));
        for (int row = 0; row < 64; ++row) {
            std::vector<float> scores(products.values.begin() + row * width,
                                      products.values.begin() + (row + 1) * width);
            for (float& x : scores) {
                if (std::isfinite(x)) x = cap * std::tanh(x * shrunk / cap);
            }
            const row_of_probabilities wanted = exp_and_sum(scores.data(), width, 1);
            for (int column = 0; column < 32; ++column) {
                double sum = 0;
                for (int i = column; i < width; i += 32) sum += wanted.weights[i] * values.values[row * width + i];
                const float value = out.values[row * 32 + column];
                compared.expect(near(value, sum, error, 1e-30), "row", row, "column", column, "is", value, "not", sum);
            }
            compared.expect(near(lse2.values[row], wanted.lse2, 1e-6, error), "row", row, "lse2 is", lse2.values[row],
                            "not", wanted.lse2);
        }
    }
}

TEST_CASE("online softmax with softcap: the polynomial where all scores are small") {
    // The hardware's tanh is accurate to 11 bits.
    for (const signs sign : {signs::both, signs::negative, signs::one_positive}) {
        test_softcap(0.3f, false, 3e-3, sign);
        test_softcap(1.0f, false, 8e-3, sign);
        test_softcap(1.0f, true, 8e-3, sign);
        test_softcap(0.1f, true, 8e-3, sign);
    }
}

}  // namespace
