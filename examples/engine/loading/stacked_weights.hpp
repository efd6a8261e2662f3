// Rows of one or several weights of a file, stacked, as floats: the source of a model's matrix. Projections of the same
// input (QKV, gate and up) are stacked, so that one GEMM serves them; the weights of a preceding RMSNorm can be folded
// in.
#pragma once

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/loading/weights.hpp"

namespace imbrex::engine {

class stacked_weights {
  public:
    stacked_weights(const weight_set& weights, const std::vector<std::string>& names) {
        for (const std::string& name : names) {
            parts_.push_back(&weights.at(name));
            rows_ += parts_.back()->rows();
        }
    }

    explicit stacked_weights(const weight& one) : parts_{&one}, rows_(one.rows()) {}

    // Stacks of the parts that follow each other and have the same type. Factors are left out.
    std::vector<stacked_weights> runs_of_types() const {
        std::vector<stacked_weights> runs;
        for (const weight* part : parts_) {
            if (runs.empty() || runs.back().parts_.back()->type != part->type) {
                runs.emplace_back(*part);
            } else {
                runs.back().parts_.push_back(part);
                runs.back().rows_ += part->rows();
            }
        }
        return runs;
    }

    // Multiplies each column by its factor.
    void multiply_columns(std::vector<float> factors) {
        require(static_cast<std::int64_t>(factors.size()) == columns(), "factors: ", factors.size(), " of them for ",
                columns(), " columns; each column needs one");
        const bool are_ones = std::ranges::all_of(factors, [](float factor) { return factor == 1; });
        if (!are_ones) factors_ = std::move(factors);
    }

    std::int64_t rows() const { return rows_; }
    std::int64_t columns() const { return parts_.front()->row_elements(); }
    std::int64_t bytes() const {
        std::int64_t all = 0;
        for (const weight* part : parts_) all += static_cast<std::int64_t>(part->bytes.size());
        return all;
    }

    // The common type of the parts; f32 for mixtures and after multiply_columns.
    weight_type type() const {
        if (!factors_.empty()) return weight_type::f32;
        const weight_type first = parts_.front()->type;
        const auto same = [&](const weight* part) { return part->type == first; };
        return std::ranges::all_of(parts_, same) ? first : weight_type::f32;
    }

    void read(std::int64_t first, std::int64_t count, std::span<float> result) const {
        for (const weight* part : parts_) {
            const std::int64_t here = std::min(count, part->rows() - first);
            if (here > 0) {
                const auto elements = static_cast<std::size_t>(here * columns());
                to_floats(*part, first, here, result.first(elements));
                if (!factors_.empty()) multiply_rows(result.first(elements));
                result = result.subspan(elements);
                count -= here;
            }
            first = std::max<std::int64_t>(first - part->rows(), 0);
        }
    }

    const std::vector<const weight*>& parts() const { return parts_; }
    bool has_factors() const { return !factors_.empty(); }

    // The weights are not needed soon: the memory of the mapped file is free for others.
    void drop_pages() const {
        for (const weight* part : parts_) mapped_file::drop_pages(part->bytes);
    }

    // Calls take(bytes) for each weight, as in the file: without factors.
    template <class Take>
    void for_each_part(const Take& take) const {
        for (const weight* part : parts_) take(part->bytes);
    }

    // The bytes of each of these rows, as in the file.
    std::vector<std::span<const std::byte>> rows_in_file(std::int64_t first, std::int64_t count) const {
        std::vector<std::span<const std::byte>> rows;
        for (const weight* part : parts_) {
            const std::size_t row_bytes = part->bytes.size() / static_cast<std::size_t>(part->rows());
            for (; count > 0 && first < part->rows(); ++first, --count)
                rows.push_back(part->bytes.subspan(static_cast<std::size_t>(first) * row_bytes, row_bytes));
            first -= part->rows();
            if (first < 0) break;
        }
        return rows;
    }

  private:
    void multiply_rows(std::span<float> rows) const {
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i] *= factors_[i % factors_.size()];
    }

    std::vector<const weight*> parts_;
    std::int64_t rows_ = 0;
    std::vector<float> factors_;  // empty: all 1
};

}  // namespace imbrex::engine
