// Products with A operands kept in registers in their storage type: 8 bits, each of the 256 patterns, by rows and by
// columns, and NaN; 16 bits.
#include "worlds.hpp"

#include <imbrex/ops/warp/register_operand.hpp>

#include <cmath>
#include <cstring>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int keys = 64, depth = 96;

// K Q^T, and V^T P^T with P of 16 x keys; `Queries` of the rows are valid.
template <class Stored, int Queries>
struct products {
    using multiplied = mma_type_of<Stored>;
    static constexpr int warps = 1;
    struct arguments {
        matrix_view<const multiplied> q, p;
        matrix_view<const Stored> k, v;
        matrix_view<float> scores, sums;  // 16 x keys, 16 x head_dim
    };
    struct shared_memory {
        shared_tile<multiplied, 16, depth> q;
        shared_tile<multiplied, 16, keys> p;
        shared_tile<Stored, keys, depth> k, v;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            put_in_order<0, 1, 2, 3, 4, 5>(self, shared.q, args.q);
            load(self, shared.p, args.p.at(0, 0));
            load(self, shared.k, args.k.at(0, 0));
            load(self, shared.v, args.v.at(0, 0));
            self.sync();
            register_operand_rows<Stored, keys, depth> k;
            k.load(self, shared.k);
            warp_tile<float, keys, Queries> scores;
            fill(self, scores, 0.0f);
            multiply_columns<0, 1, 2, 3, 4, 5>(self, scores, k, shared.q);
            scale_16_rows(self, scores, [](int number) { return number == 1 ? 0.5f : 1.0f; });
            store(self, args.scores.at(0, 0), transpose(self, scores));
            register_operand_columns<Stored, keys, depth> v;
            v.load(self, shared.v);
            warp_tile<float, depth, Queries> sums;
            fill(self, sums, 0.0f);
            multiply_rows<0, 1, 2, 3>(self, sums, v, shared.p);
            store(self, args.sums.at(0, 0), transpose_unpermuted<Stored>(self, sums));
        });
    }

  private:
    template <int... Numbers, class Shared>
    IMBREX_KERNEL static void put_in_order(warp& self, Shared& to, const matrix_view<const multiplied>& from) {
        warp_tile<multiplied, 16, 16> part;
        ((load(self, part, from.at(0, 16 * Numbers)),
          store(self, to.template subtile<16, 16>(0, 16 * Numbers), permute_pairs_for<Stored>(self, part))),
         ...);
    }
    template <int... Numbers, class Scores, class Keys, class Beside>
    IMBREX_KERNEL static void multiply_columns(warp& self, Scores& scores, const Keys& k, const Beside& q) {
        warp_tile<multiplied, 16, 16> beside;
        ((load_operand<mma_operand::b>(self, beside, q.template subtile<16, 16>(0, 16 * Numbers)),
          mma_abt(self, scores, k.part(self, Numbers), beside)),
         ...);
    }
    template <int... Numbers, class Sums, class Values, class Weights>
    IMBREX_KERNEL static void multiply_rows(warp& self, Sums& sums, const Values& v, const Weights& p) {
        warp_tile<multiplied, 16, 16> weights;
        ((load_operand<mma_operand::b>(self, weights, p.template subtile<16, 16>(0, 16 * Numbers)),
          mma_atbt(self, sums, v.part(self, Numbers), weights)),
         ...);
    }
};

template <class Stored>
Stored from_pattern(int pattern) {
    Stored result;
    if constexpr (sizeof(Stored) == 1) {
        const auto bits = static_cast<unsigned char>(pattern);
        std::memcpy(&result, &bits, 1);
    } else {
        result = Stored(static_cast<float>(pattern));
    }
    return result;
}

// Queries and probabilities that select one column, or one key: the result is the stored value. A NaN spoils the scores
// of its key and the sums of its column, so NaN patterns have keys and columns of their own.
template <class Stored, int Queries>
void check_patterns() {
    using kernel = products<Stored, Queries>;
    using multiplied = typename kernel::multiplied;
    constexpr bool has_nan = std::is_same_v<Stored, e4m3>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(Queries);
        for (const int first : {0, 16, 40, 80}) {
            CAPTURE(first);
            buffer<multiplied> q(where, 16 * depth, multiplied(0.0f)), p(where, 16 * keys, multiplied(0.0f));
            buffer<Stored> k(where, keys * depth), v(where, keys * depth);
            buffer<float> scores(where, 16 * keys, -1.0f), sums(where, 16 * depth, -1.0f);
            for (int i = 0; i < 16; ++i) {
                q.values[i * depth + first + i] = multiplied(1.0f);
                p.values[i * keys + (first + i) % keys] = multiplied(1.0f);
            }
            for (int key = 0; key < keys; ++key) {
                for (int column = 0; column < depth; ++column) {
                    const int pattern = (key * 16 + column + 5 * first) % 256;
                    const bool nan = has_nan && pattern % 128 == 127;
                    k.values[key * depth + column] = v.values[key * depth + column] =
                        from_pattern<Stored>(nan ? 0 : pattern);
                }
            }
            if (has_nan) k.values[20 * depth + 7] = v.values[5 * depth + 9] = from_pattern<Stored>(0xff);
            run<kernel>(
                where, {1},
                {matrix<const multiplied>(q.upload(), 16, depth), matrix<const multiplied>(p.upload(), 16, keys),
                 matrix<const Stored>(k.upload(), keys, depth), matrix<const Stored>(v.upload(), keys, depth),
                 matrix(scores.upload(), 16, keys), matrix(sums.upload(), 16, depth)},
                1);
            scores.download();
            sums.download();
            int wrong = 0;
            const auto compare = [&](float found, float expected, bool spoilt) {
                wrong += (spoilt ? std::isnan(found) : found == expected) ? 0 : 1;
            };
            for (int i = 0; i < 16; ++i) {
                const bool there = i < Queries;
                for (int key = 0; key < keys; ++key) {
                    const float stored = convert<float>(k.values[key * depth + first + i]);
                    compare(scores.values[i * keys + key], there ? stored * (key / 16 == 1 ? 0.5f : 1.0f) : 0.0f,
                            there && has_nan && key == 20);
                }
                for (int column = 0; column < depth; ++column) {
                    const float stored = convert<float>(v.values[(first + i) % keys * depth + column]);
                    compare(sums.values[i * depth + column], there ? stored : 0.0f, there && has_nan && column == 9);
                }
            }
            CHECK(wrong == 0);
        }
    }
}

}  // namespace

TEST_CASE("register_operand: e4m3 keeps its value") {
    check_patterns<e4m3, 8>();
    check_patterns<e4m3, 16>();
}
TEST_CASE("register_operand: int8 keeps its value") {
    check_patterns<std::int8_t, 8>();
    check_patterns<std::int8_t, 16>();
}
TEST_CASE("register_operand: 16-bit floats keep their value") {
    check_patterns<bf16, 8>();
    check_patterns<fp16, 16>();
}
