// Parts of quantised checkpoints (checkpoint_quantisation.cpp): packed integers, tables of scales, and the conversion of
// their product to blocks or bf16.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <imbrex/core/bf16.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/fp16.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#include <memory>
#include <vector>

#include "engine/loading/ggml_unpacking.hpp"
#include "engine/loading/weights.hpp"

namespace imbrex::engine::checkpoint {

inline constexpr std::int64_t group_size = 32;    // of q4_0 and q8_0
inline constexpr std::int64_t rows_at_once = 16;  // packed words of neighbouring rows share a cache line
inline constexpr std::int64_t bits_of_word = 32;

// Integers of a few bits, packed into 32-bit words along one dimension of a matrix of words.
class packed_integers {
  public:
    packed_integers(const weight& words, int bits, bool along_rows)
        : words_(words), bits_(bits), per_word_(bits_of_word / bits), along_rows_(along_rows) {
        const bool is_matrix = words.type == weight_type::i32 && words.shape.size() == 2 && words.elements() > 0;
        require(is_matrix, words.name, ": is ", name_of(words.type), " of shape ", to_string(words.shape),
                "; it must be a matrix of i32");
    }
    std::int64_t rows() const { return words_.shape[0] * (along_rows_ ? per_word_ : 1); }
    std::int64_t columns() const { return words_.shape[1] * (along_rows_ ? 1 : per_word_); }

    // With `order`, the place in the word of the element with this index in its word.
    int at(std::int64_t row, std::int64_t column, const int* order = nullptr) const {
        std::int64_t& packed = along_rows_ ? row : column;
        const auto place = static_cast<int>(packed % per_word_);
        packed /= per_word_;
        const auto word = ggml::read<std::uint32_t>(words_.bytes.data() + (row * words_.shape[1] + column) * 4);
        return static_cast<int>(word >> (bits_ * (order != nullptr ? order[place] : place)) & ((1u << bits_) - 1));
    }

  private:
    const weight& words_;
    int bits_;
    std::int64_t per_word_;
    bool along_rows_;
};

// Scales as floats, [rows, columns] of the file.
struct scale_table {
    std::vector<float> values;
    std::int64_t rows = 0, columns = 0;

    explicit scale_table(const weight& from)
        : values(to_floats(from)),
          rows(from.shape.empty() ? 1 : from.shape[0]),
          columns(from.elements() / std::max<std::int64_t>(rows, 1)) {}
    float at(std::int64_t row, std::int64_t column) const {
        return values[static_cast<std::size_t>(row * columns + column)];
    }
    bool fits_fp16() const {
        return std::ranges::all_of(values, [](float scale) {
            return scale == 0 || (std::abs(scale) >= 0x1p-14f && std::abs(scale) <= 65504.0f);
        });
    }
};

struct matrix_size {
    std::int64_t rows, columns;
};

inline void write_group(weight_type type, const float* values, const int* integers, float scale, std::byte* to) {
    if (type == weight_type::bf16) {
        for (int i = 0; i < group_size; ++i) {
            const std::uint16_t rounded = bf16::encode(values[i]);
            std::memcpy(to + 2 * i, &rounded, sizeof rounded);
        }
        return;
    }
    const std::uint16_t half = fp16::encode(scale);
    std::memcpy(to, &half, sizeof half);
    to += sizeof half;
    if (type == weight_type::q8_0) {
        for (int i = 0; i < group_size; ++i) to[i] = static_cast<std::byte>(integers[i]);
    } else {
        for (int i = 0; i < group_size / 2; ++i) {
            to[i] = static_cast<std::byte>((integers[i] + 8) | (integers[i + group_size / 2] + 8) << 4);
        }
    }
}

// The weight integer(row, column) * scale(row, column), in the type.
template <class Integer, class Scale>
std::shared_ptr<std::vector<std::byte>> convert(matrix_size size, weight_type type, const Integer& integer,
                                                const Scale& scale) {
    const std::int64_t block = type == weight_type::bf16 ? group_size * 2 : format_of(type).bytes;
    const std::int64_t groups = size.columns / group_size, row_bytes = groups * block;
    auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(size.rows * row_bytes));
    const int parts = static_cast<int>((size.rows + rows_at_once - 1) / rows_at_once);
    hw::thread_pool::shared().for_each(parts, 0, [&](int part) {
        const std::int64_t first = part * rows_at_once, last = std::min(first + rows_at_once, size.rows);
        for (std::int64_t group = 0; group < groups; ++group) {
            for (std::int64_t row = first; row < last; ++row) {
                float values[group_size];
                int integers[group_size];
                for (int i = 0; i < group_size; ++i) {
                    const std::int64_t column = group * group_size + i;
                    if (type == weight_type::bf16) {
                        values[i] = static_cast<float>(integer(row, column)) * scale(row, column);
                    } else {
                        integers[i] = static_cast<int>(integer(row, column));
                    }
                }
                write_group(type, values, integers, scale(row, group * group_size),
                            memory->data() + row * row_bytes + group * block);
            }
        }
    });
    return memory;
}

}  // namespace imbrex::engine::checkpoint
