#include "engine/model/cpu_block_gemm.hpp"

#include <imbrex/hw/host/interleaved_weights.hpp>
#include <imbrex/hw/host/thread_pool.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "engine/loading/ggml_blocks.hpp"
#include "engine/model/mxfp4_unpacking.hpp"

namespace imbrex::engine {

namespace {

using vectors = hw::simd_operations<hw::native_simd>;
using dot = hw::int8_dot<hw::native_simd>;
using floats = vectors::floats;
using words = vectors::words;
using integers = vectors::integers;

constexpr int chunk_elements = 256, chunk_groups = chunk_elements / unpacked_group;
constexpr int max_direct_rows = 4;  // rows of x that are multiplied while a chunk is unpacked
constexpr int tile_rows = 4;        // weight rows that are unpacked together for more rows of x

struct alignas(64) weight_chunk {
    std::uint8_t values[chunk_elements];
    float scales[chunk_groups], offsets[chunk_groups];
};

// Blocks of 32 are unpacked eight at a time into the order `halves`: first halves of all, then second halves.
template <class Block>
constexpr chunk_order order_of = Block::elements == 32 ? chunk_order::halves : chunk_order::natural;

template <class Block>
[[gnu::always_inline]] inline void unpack_half_scales(const std::byte* from, int place, float* to) {
    const auto at = [&](int i) { return ggml::read<std::uint16_t>(from + i * Block::bytes + place); };
    const ggml::eight_halves halves{at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)};
    ggml::convert_halves(halves, to);
}

template <class Block>
[[gnu::always_inline]] inline void unpack_eight(const std::byte* from, weight_chunk& to) {
    constexpr int half = chunk_elements / 2, blocks = chunk_groups / 2;
    ggml::unroll<blocks>([&](auto i) __attribute__((always_inline)) {
        Block::values(from + i * Block::bytes, to.values + 16 * i, to.values + half + 16 * i);
    });
    float scales[blocks], offsets[blocks];
    if constexpr (Block::has_half_scale) {
        unpack_half_scales<Block>(from, 0, scales);
    } else {
        for (int i = 0; i < blocks; ++i) scales[i] = Block::scale(from + i * Block::bytes);
    }
    if constexpr (Block::has_minimum) {
        unpack_half_scales<Block>(from, 2, offsets);
    } else {
        for (int i = 0; i < blocks; ++i) offsets[i] = Block::offset_factor * scales[i];
    }
    for (int i = 0; i < chunk_groups; ++i) {
        to.scales[i] = scales[i % blocks];
        to.offsets[i] = offsets[i % blocks];
    }
}

#if defined(IMBREX_UNPACKS_MXFP4)
template <>
[[gnu::always_inline]] inline void unpack_eight<ggml_block<weight_type::mxfp4>>(const std::byte* from,
                                                                                weight_chunk& to) {
    using block = ggml_block<weight_type::mxfp4>;
    constexpr int half = chunk_elements / 2;
    ggml::four_mxfp4(from, to.values, to.values + half);
    ggml::four_mxfp4(from + 4 * block::bytes, to.values + 64, to.values + half + 64);
    const __m256 scales = ggml::eight_mxfp4_scales(from);
    const __m256 offsets = _mm256_mul_ps(scales, _mm256_set1_ps(block::offset_factor));
    for (int i = 0; i < chunk_groups; i += 8) {
        _mm256_storeu_ps(to.scales + i, scales);
        _mm256_storeu_ps(to.offsets + i, offsets);
    }
}
#endif

// The last blocks of a row; missing elements are zeros.
template <class Block>
inline void unpack_rest(const std::byte* from, std::int64_t elements, weight_chunk& to) {
    constexpr int half = chunk_elements / 2, blocks = chunk_groups / 2;
    std::memset(&to, 0, sizeof to);
    for (int i = 0; i < elements / Block::elements; ++i, from += Block::bytes) {
        Block::values(from, to.values + 16 * i, to.values + half + 16 * i);
        to.scales[i] = to.scales[blocks + i] = Block::scale(from);
        to.offsets[i] = to.offsets[blocks + i] = Block::offset(from);
    }
}

template <class Block>
[[gnu::always_inline]] inline void unpack(const std::byte* from, std::int64_t elements, weight_chunk& to) {
    if constexpr (order_of<Block> == chunk_order::natural) {
        Block::unpack(from, to.values, to.scales, to.offsets);
    } else if (elements >= chunk_elements) [[likely]] {
        unpack_eight<Block>(from, to);
    } else {
        unpack_rest<Block>(from, elements, to);
    }
    if constexpr (dot::offset_of_signed == 0 &&
                  Block::highest > 127) {  // both operands of Arm's dot product are signed
        for (std::uint8_t& value : to.values) value ^= 0x80;
        for (int i = 0; i < chunk_groups; ++i) to.offsets[i] += 128 * to.scales[i];
    }
}

struct sums {
    floats products{}, offsets{};

    float total() const {
        floats all = products + offsets;
        float total;
        vectors::sum_each<1>(&total, &all);
        return total;
    }
};

// Adds the products of a chunk. A vector of integers has the sums of four elements each; the scales of `lanes` groups
// are spread over the four vectors of these groups.
[[gnu::always_inline]] inline void multiply_add(const weight_chunk& w, const std::int8_t* x, const float* x_scales,
                                                const float* x_sums, sums& to) {
    constexpr int words_in_group = unpacked_group / 4, step = vectors::lanes;  // groups at a time
    static_assert(chunk_groups % step == 0);
#pragma GCC unroll 4
    for (int group = 0; group < chunk_groups; group += step) {
        const floats scale = vectors::load<floats>(w.scales + group), of_x = vectors::load<floats>(x_scales + group);
        floats spread[words_in_group];
        vectors::spread<words_in_group>(spread, scale * of_x);
        ggml::unroll<words_in_group>([&](auto i) __attribute__((always_inline)) {
            const int first = group * unpacked_group + i * vectors::bytes;
            integers product{};
            dot::add(product, vectors::load<words>(w.values + first), vectors::load<words>(x + first));
            to.products += spread[i] * vectors::to_floats(product);
        });
        to.offsets += vectors::load<floats>(w.offsets + group) * vectors::load<floats>(x_sums + group);
    }
}

template <class Block>
struct block_rows {
    const block_gemm_problem& problem;
    const quantised_rows& x;
    static constexpr int prefetch_distance = 4096;  // bytes
    static constexpr int chunk_bytes = chunk_elements / Block::elements * Block::bytes;

    [[gnu::always_inline]] void unpack_chunk(std::int64_t row, std::int64_t chunk, weight_chunk& to) const {
        const block_weight_rows& weights = problem.weights;
        const std::int64_t done = chunk * chunk_elements, before = row * weights.columns + done;
        const std::byte* from = weights.values + before / Block::elements * Block::bytes;
        for (int line = 0; line < chunk_bytes; line += 64) __builtin_prefetch(from + prefetch_distance + line);
        unpack<Block>(from, weights.columns - done, to);
    }
    void store(int x_row, std::int64_t row, const sums& of) const {
        const float bias = problem.bias != nullptr ? problem.bias[row] : 0.0f;
        problem.out[x_row * problem.out_stride + row] = of.total() + bias;
    }

    // Some chunks are unpacked before their products: loads of bytes that were stored just before, in other sizes, wait.
    template <int Rows>
    void multiply_directly(std::int64_t first, std::int64_t last) const {
        constexpr std::int64_t ahead = 8;
        weight_chunk unpacked[ahead];
        int numbers[Rows];
        for (int i = 0; i < Rows; ++i) numbers[i] = problem.x_row(i);
        for (std::int64_t row = first; row < last; ++row) {
            sums all[Rows];
            for (std::int64_t start = 0; start < x.chunks(); start += ahead) {
                const std::int64_t end = std::min(start + ahead, x.chunks());
                for (std::int64_t chunk = start; chunk < end; ++chunk)
                    unpack_chunk(row, chunk, unpacked[chunk - start]);
                for (std::int64_t chunk = start; chunk < end; ++chunk) {
                    ggml::unroll<Rows>([&](auto i) __attribute__((always_inline)) {
                        const int number = numbers[i];
                        multiply_add(unpacked[chunk - start], x.values(number, chunk), x.scales(number, chunk),
                                     x.sums(number, chunk), all[i]);
                    });
                }
            }
            for (int i = 0; i < Rows; ++i) store(i, row, all[i]);
        }
    }

    // Multiplies up to tile_rows weight rows, unpacked before.
    void multiply_tiles(std::int64_t first, std::int64_t last) const {
        const std::int64_t chunks = x.chunks();
        std::vector<weight_chunk> unpacked(static_cast<std::size_t>(chunks * tile_rows));
        for (; first < last; first += tile_rows) {
            const int rows = static_cast<int>(std::min<std::int64_t>(tile_rows, last - first));
            for (int row = 0; row < rows; ++row) {
                for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
                    unpack_chunk(first + row, chunk, unpacked[static_cast<std::size_t>(chunk * tile_rows + row)]);
                }
            }
            for (int i = 0; i < problem.rows; ++i) {
                const int number = problem.x_row(i);
                sums all[tile_rows];
                for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
                    const weight_chunk* w = &unpacked[static_cast<std::size_t>(chunk * tile_rows)];
                    ggml::unroll<tile_rows>([&](auto row) __attribute__((always_inline)) {
                        multiply_add(w[row], x.values(number, chunk), x.scales(number, chunk), x.sums(number, chunk),
                                     all[row]);
                    });
                }
                for (int row = 0; row < rows; ++row) store(i, first + row, all[row]);
            }
        }
    }

    void multiply(std::int64_t first, std::int64_t last) const {
        static_assert(max_direct_rows == 4);
        switch (problem.rows) {
            case 1:
                return multiply_directly<1>(first, last);
            case 2:
                return multiply_directly<2>(first, last);
            case 3:
                return multiply_directly<3>(first, last);
            case 4:
                return multiply_directly<4>(first, last);
            default:
                return multiply_tiles(first, last);
        }
    }
};

using sixteen_words = ggml::vector_of<std::int32_t, unpacked_group>::type;

// Combines all elements, halves with halves: the compiler does not reorder a maximum of floats. Vectors are passed by reference:
// how they are passed by value depends on the CPU.
template <class Vector, class Combine>
[[gnu::always_inline]] inline auto combined(const Vector& from, const Combine& combine) {
    Vector all = from;
    combine(all, __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    combine(all, __builtin_shufflevector(all, all, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3));
    combine(all, __builtin_shufflevector(all, all, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1));
    combine(all, __builtin_shufflevector(all, all, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0));
    return all[0];
}

}  // namespace

quantised_rows::quantised_rows(const float* x, int rows, std::int64_t columns, chunk_order order)
    : rows_(rows),
      chunks_((columns + chunk_elements - 1) / chunk_elements),
      values_(static_cast<std::size_t>(rows * chunks_ * chunk_elements)),
      scales_(static_cast<std::size_t>(rows * chunks_ * chunk_groups)),
      sums_(scales_.size()) {
    hw::thread_pool::shared().for_each(rows, rows < 8 ? 1 : 0, [&](int row) {
        for (std::int64_t group = 0; group < columns / unpacked_group; ++group) {
            quantise_group(x + row * columns + group * unpacked_group, row, group, order);
        }
    });
}

void quantised_rows::quantise_group(const float* x, int row, std::int64_t group, chunk_order order) {
    const std::size_t chunk = place(row, group / chunk_groups),
                      in_chunk = static_cast<std::size_t>(group % chunk_groups);
    // The first halves of groups of 32 come before the second halves.
    const std::size_t place_in_chunk =
        order == chunk_order::natural ? in_chunk : in_chunk / 2 + in_chunk % 2 * (chunk_groups / 2);
    const std::size_t at = chunk * chunk_groups + place_in_chunk;
    ggml::float_vector all;
    std::memcpy(&all, x, sizeof all);
    // Without a sign, floats are ordered as their bits are.
    sixteen_words bits;
    std::memcpy(&bits, &all, sizeof bits);
    const float highest =
        std::bit_cast<float>(combined(bits & 0x7fffffff, [](auto& a, const auto& b) { a = a < b ? b : a; }));
    const float scale = highest / 127, inverse = highest > 0 ? 127 / highest : 0.0f;
    // Adding and subtracting this number rounds to the nearest integer.
    constexpr float rounding = 0x1.8p23f;
    const auto rounded = __builtin_convertvector(all * inverse + rounding - rounding, sixteen_words);
    ggml::store(__builtin_convertvector(rounded, ggml::vector_of<std::int8_t, unpacked_group>::type),
                &values_[at * unpacked_group]);
    const int sum = combined(rounded, [](auto& a, const auto& b) { a += b; });
    scales_[at] = scale;
    sums_[at] = scale * static_cast<float>(sum);
}

chunk_order order_of_chunks(weight_type type) {
    return with_ggml_block(type, [](auto block) { return order_of<decltype(block)>; });
}

void block_gemm(std::span<const block_gemm_problem> problems, const quantised_rows& x) {
    struct part {
        const block_gemm_problem* of;
        std::int64_t first, last;  // rows of the weights
    };
    constexpr std::int64_t elements_at_once = 1 << 16;  // weights of a part
    std::vector<part> parts;
    for (const block_gemm_problem& one : problems) {
        const std::int64_t all = one.rows > 0 ? one.weights.rows : 0;
        const std::int64_t wanted =
            std::max<std::int64_t>(elements_at_once / std::max<std::int64_t>(one.weights.columns, 1), 1);
        const std::int64_t step = (wanted + tile_rows - 1) / tile_rows * tile_rows;
        for (std::int64_t first = 0; first < all; first += step)
            parts.push_back({&one, first, std::min(all, first + step)});
    }
    hw::thread_pool::shared().for_each(static_cast<int>(parts.size()), 0, [&](int number) {
        const part& now = parts[static_cast<std::size_t>(number)];
        with_ggml_block(now.of->weights.type, [&](auto block) {
            block_rows<decltype(block)>{*now.of, x}.multiply(now.first, now.last);
        });
    });
}

}  // namespace imbrex::engine
