// Runs a case of quantise_fp8 through its launcher and compares scales and elements with a reference in double. Without
// RoPE and rotation the result must be exact. What must not be read is NaN: rows behind the end of a sequence and gaps
// between rows. What must not be written keeps its bits.
#pragma once

#include <imbrex/kernels/quantise_fp8.hpp>

#include "worlds.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace imbrex_test {

enum class scale_kind { tensor, head, block };

struct quantise_case {
    int batches = 1, heads = 1, rows = 1, head_dim = 64;
    scale_kind kind = scale_kind::block;
    int block_rows = 64;
    int heads_per_scale = 1;
    std::vector<int> starts = {};  // varlen
    std::vector<int> used = {};    // seqused
    int rotary_dim = 0;
    imbrex::rope_style style = imbrex::rope_style::half_split;
    bool positions = false;
    int first_position = 0;
    float attention_factor = 1;
    std::optional<std::uint64_t> seed = {};
    bool given = false;  // scales
    int gap = 0;         // elements behind each row, a multiple of 16
    bool head_major = false;
    float spread = 3;
};

template <class In>
class quantise_trial {
  public:
    using e4m3 = imbrex::e4m3;

    quantise_trial(world where, const quantise_case& given, std::uint32_t number = 1)
        : c(given),
          x(where, elements()),
          out(where, elements()),
          scales(where, scale_count(), -1.0f),
          inv_freq(where, c.rotary_dim / 2),
          positions(where, std::size_t(c.batches) * c.rows),
          starts(where, std::max<std::size_t>(1, c.starts.size())),
          used(where, std::max<std::size_t>(1, c.used.size())),
          workspace(where, 1 << 12) {
        std::memset(static_cast<void*>(x.values.data()), 0xff, x.values.size() * sizeof(In));
        std::memset(static_cast<void*>(out.values.data()), 0xff, out.values.size());
        std::vector<float> some(std::size_t(c.rows) * c.head_dim);
        for (int sequence = 0; sequence < sequences(); ++sequence) {
            for (int head = 0; head < c.heads; ++head) {
                // The magnitude differs from block to block, and an outlier is among them.
                fill_random(some, number++, -c.spread, c.spread);
                for (int row = 0; row < rows_of(sequence); ++row) {
                    const float factor = 1.0f + static_cast<float>((row / 64 + head) % 3);
                    for (int i = 0; i < c.head_dim; ++i) {
                        const float outlier = (row * 7 + i) % 997 == 5 ? 8.0f : 1.0f;
                        x.values[at(sequence, head, row, i)] =
                            imbrex::convert<In>(outlier * factor * some[std::size_t(row) * c.head_dim + i]);
                    }
                }
            }
        }
        for (int i = 0; i < c.rotary_dim / 2; ++i) {
            frequencies.push_back(std::pow(10000.0, -2.0 * i / c.rotary_dim));
        }
        inv_freq.values = imbrex::rope_fixed_point_inv_freq(frequencies);
        for (std::size_t i = 0; i < positions.values.size(); ++i) {
            positions.values[i] = static_cast<int>(i * 7919 % 100003) - 50;
        }
        std::copy(c.starts.begin(), c.starts.end(), starts.values.begin());
        std::copy(c.used.begin(), c.used.end(), used.values.begin());
        if (c.given) fill_random(scales.values, 99, 0.001f, 0.1f);
    }

    int sequences() const { return c.starts.empty() ? c.batches : static_cast<int>(c.starts.size()) - 1; }
    int rows_of(int sequence) const {
        if (!c.starts.empty()) return c.starts[sequence + 1] - c.starts[sequence];
        return c.used.empty() ? c.rows : c.used[sequence];
    }

    imbrex::quantise_fp8_problem<In> upload() {
        imbrex::quantise_fp8_problem<In> p{};
        p.x = view(static_cast<const In*>(x.upload()));
        p.out = view(out.upload());
        float* const at = scales.upload();
        p.scales = c.kind == scale_kind::tensor ? imbrex::fp8_scale_per_tensor(at)
                   : c.kind == scale_kind::head ? imbrex::fp8_scales_per_head(at, c.heads, c.heads_per_scale)
                                                : imbrex::fp8_scales_per_block(at, c.heads, blocks(), c.block_rows);
        p.scales_given = c.given;
        if (!c.used.empty()) p.seqused = used.upload();
        if (!c.starts.empty()) {
            p.sequences = sequences();
            p.cu_seqlens = starts.upload();
        }
        if (c.rotary_dim > 0) p.rope = {inv_freq.upload(), c.rotary_dim, c.style, c.attention_factor};
        if (c.positions) p.positions = positions.upload();
        p.first_position = c.first_position;
        p.hadamard_seed = c.seed;
        p.workspace = workspace.upload();
        return p;
    }
    void download() {
        out.download();
        scales.download();
    }

    // The number of wrong scales, elements, and bytes that changed and must not.
    struct mistakes {
        int scales = 0, elements = 0, gaps = 0;
        bool operator==(const mistakes&) const = default;
    };
    mistakes compare() const {
        mistakes found;
        std::vector<float> largest(scales.values.size(), 0.0f);
        std::vector<bool> written(out.values.size(), false);
        each_row([&](int sequence, int head, int row, const std::vector<double>& wanted) {
            float& amax = largest[scale_index(sequence, head, row)];
            for (const double value : wanted) {
                if (std::fabs(value) > amax) amax = static_cast<float>(std::fabs(value));  // NaN does not count
            }
        });
        const double off = is_exact() ? 0 : 1e-5;
        for (std::size_t i = 0; i < largest.size() && !c.given; ++i) {
            const float wanted = std::max(std::min(largest[i], 0x1.fffffep127f) / 448.0f, 0x1p-60f);
            const bool unused = scales.values[i] == -1.0f && largest[i] == 0;
            found.scales += !unused && !(std::fabs(scales.values[i] - wanted) <= off * wanted);
        }
        each_row([&](int sequence, int head, int row, const std::vector<double>& wanted) {
            const float scale = scales.values[scale_index(sequence, head, row)], inverse = 1.0f / scale;
            double norm = 0;
            for (const double value : wanted) norm += value * value;
            for (int i = 0; i < c.head_dim; ++i) {
                const std::size_t place = at(sequence, head, row, i);
                written[place] = true;
                const float lost = is_exact() ? 0.0f : static_cast<float>(4e-6 * std::sqrt(norm)) * inverse;
                const float value = static_cast<float>(wanted[i]) * inverse, result = float(out.values[place]);
                const bool right = float(e4m3(value - lost)) <= result && result <= float(e4m3(value + lost));
                found.elements += std::isnan(wanted[i]) ? !std::isnan(result) : !right;
            }
        });
        for (std::size_t i = 0; i < written.size(); ++i) {
            std::uint8_t bits;
            std::memcpy(&bits, &out.values[i], 1);
            found.gaps += !written[i] && bits != 0xff;
        }
        return found;
    }

    // The row after RoPE and rotation.
    std::vector<double> reference(int sequence, int head, int row) const {
        std::vector<double> values(c.head_dim);
        for (int i = 0; i < c.head_dim; ++i) values[i] = imbrex::convert<float>(x.values[at(sequence, head, row, i)]);
        if (c.rotary_dim > 0) apply_rope(values, position_of(sequence, row));
        if (c.seed) values = rotated(values);
        return values;
    }

    std::size_t at(int sequence, int head, int row, int column) const {
        const int member = c.starts.empty() ? sequence : 0, there = c.starts.empty() ? row : c.starts[sequence] + row;
        const std::size_t width = c.head_dim + c.gap;
        const std::size_t line = c.head_major ? (std::size_t(member) * c.heads + head) * c.rows + there
                                              : (std::size_t(member) * c.rows + there) * c.heads + head;
        return line * width + column;
    }
    std::size_t scale_index(int sequence, int head, int row) const {
        if (c.kind == scale_kind::tensor) return 0;
        const std::size_t number = std::size_t(sequence) * (c.heads / c.heads_per_scale) + head / c.heads_per_scale;
        return c.kind == scale_kind::head ? number : number * blocks() + row / c.block_rows;
    }

    quantise_case c;
    buffer<In> x;
    buffer<e4m3> out;
    buffer<float> scales;
    buffer<std::uint64_t> inv_freq;
    buffer<int> positions, starts, used;
    buffer<unsigned> workspace;
    std::vector<double> frequencies;

  private:
    bool is_exact() const { return c.rotary_dim == 0 && !c.seed; }
    int blocks() const { return std::max(1, (c.rows + c.block_rows - 1) / c.block_rows); }
    std::size_t elements() const { return std::size_t(c.batches) * c.rows * c.heads * (c.head_dim + c.gap); }
    std::size_t scale_count() const {
        if (c.kind == scale_kind::tensor) return 1;
        const std::size_t heads = std::size_t(sequences()) * (c.heads / c.heads_per_scale);
        return c.kind == scale_kind::head ? heads : heads * blocks();
    }
    template <class T>
    imbrex::attention_view<T> view(T* pointer) const {
        const std::int64_t width = c.head_dim + c.gap, rows = c.rows, heads = c.heads;
        if (c.head_major) {
            return {pointer, {c.batches, heads, rows, c.head_dim}, {heads * rows * width, rows * width, width}};
        }
        return {pointer, {c.batches, heads, rows, c.head_dim}, {heads * rows * width, width, heads * width}};
    }
    template <class Visit>
    void each_row(const Visit& visit) const {
        for (int sequence = 0; sequence < sequences(); ++sequence) {
            for (int head = 0; head < c.heads; ++head) {
                for (int row = 0; row < rows_of(sequence); ++row) {
                    visit(sequence, head, row, reference(sequence, head, row));
                }
            }
        }
    }

    int position_of(int sequence, int row) const {
        if (!c.positions) return c.first_position + row;
        return positions.values[c.starts.empty() ? std::size_t(sequence) * c.rows + row : c.starts[sequence] + row];
    }
    void apply_rope(std::vector<double>& values, int position) const {
        const bool split = c.style == imbrex::rope_style::half_split;
        for (int pair = 0; pair < c.rotary_dim / 2; ++pair) {
            double& a = values[split ? pair : 2 * pair];
            double& b = values[split ? pair + c.rotary_dim / 2 : 2 * pair + 1];
            const double angle = position * frequencies[pair], before = a;
            a = c.attention_factor * (a * std::cos(angle) - b * std::sin(angle));
            b = c.attention_factor * (b * std::cos(angle) + before * std::sin(angle));
        }
    }
    // Column j of a rotation of `size` columns: the first half are columns of the first half of the head.
    std::vector<double> rotated(const std::vector<double>& values) const {
        const int size = imbrex::hadamard_size(c.head_dim);
        const auto rotation = imbrex::hadamard_rotation::of(*c.seed, c.head_dim);
        std::vector<double> result(values.size());
        for (int first = 0; first < c.head_dim / 2; first += size / 2) {
            const auto column = [&](int j) { return first + j % (size / 2) + j / (size / 2) * (c.head_dim / 2); };
            for (int to = 0; to < size; ++to) {
                double sum = 0;
                for (int from = 0; from < size; ++from) {
                    const double x = values[column(from)] * rotation.sign(column(from));
                    sum += std::popcount(static_cast<unsigned>(from & to)) % 2 != 0 ? -x : x;
                }
                result[column(to)] = sum / std::sqrt(static_cast<double>(size));
            }
        }
        return result;
    }
};

}  // namespace imbrex_test
