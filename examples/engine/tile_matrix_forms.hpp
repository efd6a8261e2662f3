// The forms in which a matrix of weights lies in the memory of a world for the tensor cores, and the product with each:
//
//     bf16_tiles              rows as they are, or rounded
//     grouped_tiles<Format>   int8 or int4, a bf16 scale for each row and 32 of k; packed, and widened in registers
//     e4m3_tiles              a scale for each row; packed, too
//
// Weights are rounded as row_matrix.hpp rounds them, so that a model is the same on a GPU as on a CPU but for the arithmetic. They are made 64 rows
// at a time on all cores, since that is what packed weights are made of, and sent many of these at a time.
#pragma once

#include <imbrex/core/numeric.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm_quantised.hpp>
#include <imbrex/kernels/linear/quantise.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "numbers.hpp"
#include "stacked_weights.hpp"

namespace imbrex::engine {

// What is added to products, if anything. It is asked for inside the kernel: one kernel for all spares the compiler many.
struct additions {
    biased<float> bias = {};
    plus<bf16> before = {};

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place at) const {
        if (bias.bias.pointer != nullptr) bias(self, values, at);
        if (before.other.pointer != nullptr) before(self, values, at);
    }
};

// An epilogue as matrices take it.
inline additions joined(plain_product) {
    return {};
}
inline additions joined(const biased<float>& bias) {
    return {.bias = bias};
}
inline additions joined(const plus<bf16>& before) {
    return {.before = before};
}
template <class Activation>
gated<Activation> joined(const gated<Activation>& gate) {
    return gate;
}

// Numbers of which each 64 rows have `in_block`, those of the last ones perhaps fewer: make(block, to) makes them.
template <class T, class Make>
numbers<T> made_in_blocks(world where, std::int64_t all, std::int64_t in_block, const Make& make) {
    constexpr std::int64_t at_once = 256;
    const std::int64_t blocks = (all + in_block - 1) / in_block;
    numbers<T> result(where, all);
    std::vector<T> some(static_cast<std::size_t>(std::min(blocks, at_once) * in_block));
    for (std::int64_t first = 0; first < blocks; first += at_once) {
        const std::int64_t count = std::min(at_once, blocks - first);
        hw::thread_pool::shared().for_each(static_cast<int>(count), 0,
                                           [&](int i) { make(first + i, some.data() + i * in_block); });
        const std::int64_t made = std::min(count * in_block, all - first * in_block);
        result.write(first * in_block, std::span<const T>(some).first(static_cast<std::size_t>(made)));
    }
    return result;
}

// The same of packed weights.
template <class Weights, class Make>
numbers<typename Weights::part> packed_in_blocks(world where, int rows, int columns, const Make& make) {
    const auto parts_of = [&](int count) { return static_cast<std::int64_t>(packed_count<Weights>(count, columns)); };
    return made_in_blocks<typename Weights::part>(where, parts_of(rows), parts_of(1), make);
}

// Up to 64 rows of the weights as floats.
struct block_of_rows {
    std::int64_t first, count;
    std::vector<float> values;

    block_of_rows(const stacked_weights& from, std::int64_t block)
        : first(block * packed_rows),
          count(std::min<std::int64_t>(packed_rows, from.rows() - first)),
          values(static_cast<std::size_t>(count * from.columns())) {
        from.read(first, count, values);
    }
};

class bf16_tiles {
  public:
    static constexpr int least_of_many = 129;  // rows, for which there are no kernels for few of them (gemm/choice.hpp)

    bf16_tiles() = default;
    bf16_tiles(const stacked_weights& from, world where)
        : rows_(static_cast<int>(from.rows())), columns_(static_cast<int>(from.columns())) {
        if (from.type() == weight_type::bf16) {
            copy(from, where);
        } else {
            const std::int64_t all = from.rows() * from.columns(), in_block = packed_rows * from.columns();
            values_ = made_in_blocks<bf16>(where, all, in_block, [&](std::int64_t block, bf16* to) {
                const block_of_rows own(from, block);
                std::ranges::transform(own.values, to, [](float value) { return convert<bf16>(value); });
            });
        }
    }

    int rows() const { return rows_; }
    int columns() const { return columns_; }
    const bf16* values() const { return values_.data(); }

    template <class Out, class Epilogue>
    void multiply(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue, const gemm_workspace&,
                  void* stream) const {
        const auto used = joined(epilogue);
        using product = gemm<bf16, Out, std::remove_const_t<decltype(used)>, stored::normal, stored::transposed,
                             right_operand::constant_weights>;
        gemm_problem<bf16, Out> with_values = p;
        with_values.b = {values()};
        product::launch(where, with_values, used, stream);
    }

  private:
    void copy(const stacked_weights& from, world where) {
        values_ = {where, from.rows() * from.columns()};
        std::int64_t at = 0;
        from.for_each_part([&](std::span<const std::byte> bytes) {
            const std::span values(reinterpret_cast<const bf16*>(bytes.data()), bytes.size() / sizeof(bf16));
            values_.write(at, values);
            at += static_cast<std::int64_t>(values.size());
        });
    }

    int rows_ = 0, columns_ = 0;
    numbers<bf16> values_;
};

// A step of k of packed weights. Deeper ones would leave products of more than 16 rows too few stages, and with those of int4 the stream of
// weights would need more registers than it has.
template <class Format>
inline constexpr int packed_depth = std::is_same_v<Format, int4x2> ? 128 : 256;

// Where there is not enough room for weights to be widened, 32 rows of x are multiplied at a time.
template <class Weights, class Out, class Epilogue>
void multiply_packed(world where, const gemm_problem<bf16, Out>& p, const typename Weights::part* weights,
                     const Epilogue& epilogue, const gemm_workspace& room, void* stream) {
    using product = gemm_quantised<Weights, Out, Epilogue>;
    if (product::workspace_bytes(p) <= room.bytes) {
        product::launch(where, p, weights, room, epilogue, stream);
    } else {
        product::launch(where, p, weights, epilogue, stream);
    }
}

enum class group_source { floats, blocks_of_file };

// Rows of x with which packed weights are multiplied by the kernels for many (gemm_quantised.hpp).
inline constexpr int least_of_many_packed = 17;

template <class Format>
class grouped_tiles {
  public:
    static constexpr int least_of_many = least_of_many_packed;

    // Of ggml's blocks the scales become bf16, which leaves each weight as near to its own value as if it were rounded to bf16 itself.
    grouped_tiles(const stacked_weights& from, world where, group_source source)
        : rows_(static_cast<int>(from.rows())), columns_(static_cast<int>(from.columns())) {
        std::vector<std::span<const std::byte>> rows_of_file;
        if (source == group_source::blocks_of_file) {
            from.for_each_row([&](std::span<const std::byte> row) { rows_of_file.push_back(row); });
        }
        parts_ = packed_in_blocks<weights>(where, rows_, columns_, [&](std::int64_t block, part* to) {
            const std::int64_t first = block * packed_rows, count = std::min<std::int64_t>(packed_rows, rows_ - first);
            std::vector<stored> values(static_cast<std::size_t>(count * columns_ / values_in<Format>));
            std::vector<bf16> scales(group_scales(count, columns_));
            if (source == group_source::floats) {
                quantise(block_of_rows(from, block).values, count, values, scales);
            } else {
                const std::span all(rows_of_file);
                take(all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), values, scales);
            }
            pack(to, values, scales, static_cast<int>(count));
        });
    }

    int rows() const { return rows_; }
    int columns() const { return columns_; }

    template <class Out, class Epilogue>
    void multiply(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue, const gemm_workspace& room,
                  void* stream) const {
        multiply_packed<weights>(where, p, parts_.data(), joined(epilogue), room, stream);
    }

  private:
    static constexpr bool is_int4 = std::is_same_v<Format, int4x2>;
    using stored = std::conditional_t<is_int4, std::uint8_t, std::int8_t>;  // as weight_rows.hpp has it
    using weights = grouped_weights<bf16, Format, weights_in_group, bf16, packed_depth<Format>>;
    using part = typename weights::part;

    void quantise(const std::vector<float>& from, std::int64_t count, std::vector<stored>& values,
                  std::vector<bf16>& scales) const {
        if constexpr (is_int4) {
            quantise_rows(int4_rows_to{values.data(), scales.data()}, from.data(), count, columns_);
        } else {
            quantise_rows(int8_rows_to{values.data(), scales.data()}, from.data(), count, columns_);
        }
    }

    // A block of ggml's is a scale of two bytes and then what a group has here, byte by byte.
    static void take(std::span<const std::span<const std::byte>> rows, std::vector<stored>& values,
                     std::vector<bf16>& scales) {
        constexpr std::size_t group_bytes = weights_in_group / values_in<Format>, scale_bytes = sizeof(fp16);
        stored* value = values.data();
        bf16* scale = scales.data();
        for (const std::span<const std::byte> row : rows) {
            for (std::size_t at = 0; at < row.size(); at += scale_bytes + group_bytes, value += group_bytes) {
                fp16 own;
                std::memcpy(&own, row.data() + at, scale_bytes);
                *scale++ = convert<bf16>(own);
                std::memcpy(value, row.data() + at + scale_bytes, group_bytes);
            }
        }
    }

    void pack(part* to, const std::vector<stored>& values, const std::vector<bf16>& scales, int count) const {
        if constexpr (is_int4) {
            std::vector<int4x2> pairs(values.size());
            constexpr std::size_t half = weights_in_group / 2;
            for (std::size_t i = 0; i < pairs.size(); ++i)
                pairs[i] = neighbours(values.data() + i / half * half, i % half);
            pack_weights<weights>(to, pairs.data(), scales.data(), count, columns_);
        } else {
            pack_weights<weights>(to, values.data(), scales.data(), count, columns_);
        }
    }

    // Two that follow each other in a group which has its first half in the lower bits of 16 bytes, each number raised by 8.
    static int4x2 neighbours(const std::uint8_t* group, std::size_t pair) {
        constexpr std::size_t pairs_of_half = weights_in_group / 4;
        const std::uint8_t* bytes = group + pair % pairs_of_half * 2;
        const int shift = pair < pairs_of_half ? 0 : 4;
        return int4x2::from_values((bytes[0] >> shift & 15) - 8, (bytes[1] >> shift & 15) - 8);
    }

    int rows_, columns_;
    numbers<part> parts_;
};

class e4m3_tiles {
  public:
    static constexpr int least_of_many = least_of_many_packed;

    e4m3_tiles(const stacked_weights& from, world where)
        : rows_(static_cast<int>(from.rows())), columns_(static_cast<int>(from.columns())) {
        std::vector<float> scales(static_cast<std::size_t>(rows_));
        parts_ = packed_in_blocks<weights>(where, rows_, columns_, [&](std::int64_t block, part* to) {
            const block_of_rows own(from, block);
            std::vector<e4m3> values(own.values.size());
            quantise_rows(e4m3_rows_to{values.data(), scales.data() + own.first}, own.values.data(), own.count,
                          columns_);
            pack_weights<weights>(to, values.data(), nullptr, static_cast<int>(own.count), columns_);
        });
        scales_ = {where, scales};
    }

    int rows() const { return rows_; }
    int columns() const { return columns_; }

    template <class Out, class Epilogue>
    void multiply(world where, const gemm_problem<bf16, Out>& p, const Epilogue& epilogue, const gemm_workspace& room,
                  void* stream) const {
        multiply_packed<weights>(where, p, parts_.data(), after_scaling(joined(epilogue), p.n), room, stream);
    }

  private:
    using weights = e4m3_weights<bf16, packed_depth<e4m3>>;
    using part = typename weights::part;

    auto after_scaling(const additions& added, int n) const { return then(factors_from(0, n), added); }
    template <class Activation>
    gated_and_scaled<Activation> after_scaling(const gated<Activation>& gate, int n) const {
        return {factors_from(0, n), factors_from(n, n), gate};
    }
    scaled_columns factors_from(int first, int count) const { return {{scales_.data() + first, count}}; }

    int rows_, columns_;
    numbers<part> parts_;
    numbers<float> scales_;
};

}  // namespace imbrex::engine
