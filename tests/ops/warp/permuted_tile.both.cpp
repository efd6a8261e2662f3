// Products with 8-bit operands: each of the 256 bit patterns, as either operand, and random matrices.
#include "worlds.hpp"

#include <imbrex/ops/warp/permuted_tile.hpp>

#include <cmath>
#include <cstring>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int rows = 16, keys = 64, depth = 96;

// Q K^T, and P V with fp16 probabilities.
template <class In, class Stored>
struct products {
    static constexpr int warps = 1;
    struct arguments {
        matrix_view<const In> q;
        matrix_view<const fp16> p;
        matrix_view<const Stored> k, v;
        matrix_view<float> scores, sums;
    };
    struct shared_memory {
        shared_tile<In, rows, depth> q;
        shared_tile<Stored, keys, depth> k, v;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            load(self, shared.k, args.k.at(0, 0));
            load(self, shared.v, args.v.at(0, 0));
            warp_tile<In, rows, depth> q;
            load(self, q, args.q.at(0, 0));
            store(self, shared.q, permute_for<Stored>(self, q));
            self.sync();
            warp_tile<float, rows, keys> scores;
            permuted_tile<float, rows, depth> sums;
            fill(self, scores, 0.0f);
            fill(self, underlying_tile(sums), 0.0f);
            permuted_tile<In, rows, depth> left;
            permuted_tile<In, keys, depth> right;
            load_operand<mma_operand::a>(self, left, shared.q);
            load_operand<mma_operand::b>(self, right, shared.k);
            mma_abt(self, scores, left, right);
            store(self, args.scores.at(0, 0), scores);
            warp_tile<fp16, rows, keys> p;
            load(self, p, args.p.at(0, 0));
            add_weighted<0>(self, sums, p, shared.v);
            add_weighted<16>(self, sums, p, shared.v);
            add_weighted<32>(self, sums, p, shared.v);
            add_weighted<48>(self, sums, p, shared.v);
            store(self, args.sums.at(0, 0), unpermute(self, sums));
        });
    }

  private:
    template <int First>
    IMBREX_KERNEL static void add_weighted(warp& self, permuted_tile<float, rows, depth>& sums,
                                           const warp_tile<fp16, rows, keys>& p,
                                           const shared_tile<Stored, keys, depth>& v) {
        permuted_tile<fp16, rows, depth, register_layout::column_major> values;
        load_operand<mma_operand::b>(self, values, v.template subtile<rows, depth>(First, 0));
        mma_ab(self, sums, columns_of<First, rows>(self, p), values);
    }
};

template <class Stored>
Stored from_pattern(int pattern) {
    const auto bits = static_cast<unsigned char>(pattern);
    Stored result;
    std::memcpy(&result, &bits, 1);
    return result;
}

template <class In, class Stored>
struct products_trial {
    buffer<In> q;
    buffer<fp16> p;
    buffer<Stored> k, v;
    buffer<float> scores, sums;

    explicit products_trial(world where)
        : q(where, rows * depth, In(0.0f)),
          p(where, rows * keys, fp16(0.0f)),
          k(where, keys * depth),
          v(where, keys * depth),
          scores(where, rows * keys, NAN),
          sums(where, rows * depth, NAN) {}
    void launch(world where) {
        run<products<In, Stored>>(
            where, {1},
            {matrix<const In>(q.upload(), rows, depth), matrix<const fp16>(p.upload(), rows, keys),
             matrix<const Stored>(k.upload(), keys, depth), matrix<const Stored>(v.upload(), keys, depth),
             matrix(scores.upload(), rows, keys), matrix(sums.upload(), rows, depth)},
            1);
        scores.download();
        sums.download();
    }
};

// Queries and probabilities that select one column or one key each: the result is the stored value. A NaN spoils its
// key's scores and its column's sums, unless the format has no NaN, so NaN patterns are in separate keys and columns.
template <class In, class Stored>
void check_patterns() {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const int first : {0, 16, 32, 80}) {
            CAPTURE(first);
            products_trial<In, Stored> there(where);
            const auto pattern_of = [&](int key, int column) { return (key * 16 + column + 5 * first) % 256; };
            const auto is_nan = [](int pattern) {
                return std::is_same_v<Stored, e4m3> && (pattern == 0x7f || pattern == 0xff);
            };
            for (int i = 0; i < rows; ++i) {
                there.q.values[i * depth + first + i] = In(1.0f);
                there.p.values[i * keys + first % keys + i] = fp16(1.0f);
            }
            for (int key = 0; key < keys; ++key) {
                for (int column = 0; column < depth; ++column) {
                    const int pattern = pattern_of(key, column);
                    const bool picked = column >= first && column < first + rows;
                    there.k.values[key * depth + column] =
                        from_pattern<Stored>(picked && !is_nan(pattern) ? pattern : 0);
                    there.v.values[key * depth + column] = from_pattern<Stored>(is_nan(pattern) ? 0 : pattern);
                }
            }
            if constexpr (std::is_same_v<Stored, e4m3>) {
                there.k.values[3 * depth + 7] = there.v.values[5 * depth + 9] = from_pattern<Stored>(0x7f);
                there.k.values[20 * depth + 8] = there.v.values[6 * depth + 30] = from_pattern<Stored>(0xff);
            }
            there.launch(where);
            int wrong = 0;
            const auto compare = [&](float found, Stored stored, bool spoilt) {
                wrong += (spoilt ? std::isnan(found) : found == convert<float>(stored)) ? 0 : 1;
            };
            const bool floats = std::is_same_v<Stored, e4m3>;
            for (int i = 0; i < rows; ++i) {
                for (int key = 0; key < keys; ++key) {
                    const float found = there.scores.values[i * keys + key] * upconversion_postscale<Stored, In>;
                    const Stored stored = there.k.values[key * depth + first + i];
                    if (upconverted_by_bits<Stored, In> && std::isnan(convert<float>(stored))) {
                        wrong += found == (key == 3 ? 480.0f : -480.0f) ? 0 : 1;
                    } else {
                        compare(found, stored, floats && !upconverted_by_bits<Stored, In> && (key == 3 || key == 20));
                    }
                }
                for (int column = 0; column < depth; ++column) {
                    compare(there.sums.values[i * depth + column], there.v.values[(first % keys + i) * depth + column],
                            floats && (column == 9 || column == 30));
                }
            }
            CHECK(wrong == 0);
        }
    }
}

template <class In, class Stored>
void check_random() {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        products_trial<In, Stored> there(where);
        const float range = std::is_same_v<Stored, e4m3> ? 4.0f : 120.0f;
        fill_random(there.q.values, 1);
        fill_random(there.p.values, 2);
        fill_random(there.k.values, 3, -range, range);
        fill_random(there.v.values, 4, -range, range);
        there.launch(where);
        double worst = 0;
        for (int i = 0; i < rows; ++i) {
            for (int key = 0; key < keys; ++key) {
                double sum = 0;
                for (int column = 0; column < depth; ++column) {
                    sum += double(float(there.q.values[i * depth + column])) *
                           convert<float>(there.k.values[key * depth + column]);
                }
                const double found = there.scores.values[i * keys + key] * double(upconversion_postscale<Stored, In>);
                worst = std::max(worst, std::abs(found - sum) / range);
            }
            for (int column = 0; column < depth; ++column) {
                double sum = 0;
                for (int key = 0; key < keys; ++key) {
                    sum += double(float(there.p.values[i * keys + key])) *
                           convert<float>(there.v.values[key * depth + column]);
                }
                const double found = there.sums.values[i * depth + column];
                worst = std::max(worst, std::abs(found - sum) / range);
            }
        }
        CHECK(worst <= 1e-4);
    }
}

}  // namespace

TEST_CASE("every 8-bit pattern has its value in either operand") {
    check_patterns<bf16, e4m3>();
    check_patterns<fp16, e4m3>();
    check_patterns<bf16, std::int8_t>();
    check_patterns<fp16, std::int8_t>();
}

TEST_CASE("multiplies with 8-bit operands") {
    check_random<bf16, e4m3>();
    check_random<fp16, e4m3>();
    check_random<bf16, std::int8_t>();
    check_random<fp16, std::int8_t>();
}
