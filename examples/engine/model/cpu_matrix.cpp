#include "engine/model/cpu_matrix.hpp"

#include <imbrex/core/error.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#include <imbrex/kernels/linear.hpp>
#include <imbrex/kernels/linear/quantise.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace imbrex::engine {

namespace {

// Calls make(first row, rows as floats) for blocks of rows, on all cores.
template <class Make>
void for_rows(const stacked_weights& from, const Make& make) {
    constexpr std::int64_t at_once = 64;
    const int parts = static_cast<int>((from.rows() + at_once - 1) / at_once);
    hw::thread_pool::shared().for_each(parts, 0, [&](int part) {
        const std::int64_t first = part * at_once, count = std::min(at_once, from.rows() - first);
        std::vector<float> values(static_cast<std::size_t>(count * from.columns()));
        from.read(first, count, values);
        make(first, std::span<const float>(values));
    });
}

// Memory for this many elements; the result is written in place.
template <class T>
T* allocate(world where, std::int64_t count, world_memory& memory) {
    memory = world_memory(where, static_cast<std::size_t>(count) * sizeof(T));
    return memory.at<T>();
}

template <class T>
unquantised_weight_rows<T> load_plain(const stacked_weights& from, world where, world_memory& memory) {
    T* const all = allocate<T>(where, from.rows() * from.columns(), memory);
    for_rows(from, [&](std::int64_t first, std::span<const float> values) {
        std::ranges::transform(values, all + first * from.columns(), [](float value) { return convert<T>(value); });
    });
    return make_weight_rows<T>(all, from.rows(), from.columns());
}

template <class T>
unquantised_weight_rows<T> rows_in_file(const weight& from) {
    return make_weight_rows<T>(reinterpret_cast<const T*>(from.bytes.data()), from.rows(), from.row_elements());
}

std::int64_t rows_of(const cpu_matrix::any_view& view) {
    return std::visit([](const auto& rows) { return rows.rows; }, view);
}

template <class View, template <class> class To>
View load_quantised(const stacked_weights& from, world where, world_memory& value_memory, world_memory& scale_memory) {
    using value = std::remove_cvref_t<decltype(*View::values)>;
    using scale = typename View::scale;
    const std::int64_t rows = from.rows(), columns = from.columns();
    value* const values = allocate<value>(where, rows * columns / View::values_per_byte, value_memory);
    scale* const scales = allocate<scale>(where, rows * (columns / weight_group_size), scale_memory);
    for_rows(from, [&](std::int64_t first, std::span<const float> floats) {
        const To<scale> to{values + first * columns / View::values_per_byte,
                           scales + first * (columns / weight_group_size)};
        quantise_rows(to, floats.data(), static_cast<std::int64_t>(floats.size()) / columns, columns);
    });
    return {values, scales, rows, columns};
}

e4m3_weight_rows load_e4m3(const stacked_weights& from, world where, world_memory& value_memory,
                           world_memory& scale_memory) {
    const std::int64_t rows = from.rows(), columns = from.columns();
    e4m3* const values = allocate<e4m3>(where, rows * columns, value_memory);
    float* const scales = allocate<float>(where, rows, scale_memory);
    for_rows(from, [&](std::int64_t first, std::span<const float> floats) {
        quantise_rows(e4m3_rows_output{values + first * columns, scales + first}, floats.data(),
                      static_cast<std::int64_t>(floats.size()) / columns, columns);
    });
    return {values, scales, rows, columns};
}

}  // namespace

cpu_matrix::cpu_matrix(const stacked_weights& from, const runner_options& options) : rows_(from.rows()) {
    require(!from.has_factors(), "cpu_matrix: its columns have factors; a CPU applies the norm to the activations");
    const bool needs_groups = options.weights == weight_format::int8 || options.weights == weight_format::int4;
    const bool fits = !needs_groups || from.columns() % weight_group_size == 0;
    if (options.weights == weight_format::as_in_file || !fits) {
        for (const weight* one : from.parts()) parts_.push_back(as_in_file(*one, options.where));
    } else {
        parts_.push_back(converted(from, options));
        from.drop_pages();
    }
}

cpu_matrix::part cpu_matrix::as_in_file(const weight& from, world where) {
    part made;
    if (is_block(from.type)) {
        made.view = block_weight_rows{from.type, from.bytes.data(), from.rows(), from.row_elements()};
    } else if (from.type == weight_type::f32) {
        made.view = rows_in_file<float>(from);
    } else if (from.type == weight_type::bf16) {
        made.view = rows_in_file<bf16>(from);
    } else if (from.type == weight_type::f16) {
        made.view = rows_in_file<fp16>(from);
    } else {
        made.view = load_plain<float>(stacked_weights(from), where, made.values);
    }
    return made;
}

cpu_matrix::part cpu_matrix::converted(const stacked_weights& from, const runner_options& options) {
    const world where = options.where;
    part made;
    switch (options.weights) {
        case weight_format::f16:
            made.view = load_plain<fp16>(from, where, made.values);
            break;
        case weight_format::bf16:
            made.view = load_plain<bf16>(from, where, made.values);
            break;
        case weight_format::e4m3:
            made.view = load_e4m3(from, where, made.values, made.scales);
            break;
        case weight_format::int8:
            made.view = load_quantised<int8_view, int8_rows_output>(from, where, made.values, made.scales);
            break;
        case weight_format::int4:
            made.view = load_quantised<int4_view, int4_rows_output>(from, where, made.values, made.scales);
            break;
        case weight_format::f32:
        case weight_format::as_in_file:
        case weight_format::mixed:
            made.view = load_plain<float>(from, where, made.values);
            break;
    }
    return made;
}

const block_weight_rows* cpu_matrix::blocks() const {
    return parts_.size() == 1 ? std::get_if<block_weight_rows>(&parts_.front().view) : nullptr;
}

void cpu_matrix::matmul(world where, const float* x, int count, float* out, const float* bias, void* stream) const {
    std::optional<quantised_rows> quantised[2];  // x in the orders of chunks
    std::vector<block_gemm_problem> problems[2];
    std::int64_t first = 0;
    for (const part& one : parts_) {
        const float* own_bias = bias != nullptr ? bias + first : nullptr;
        if (const auto* blocks = std::get_if<block_weight_rows>(&one.view)) {
            const chunk_order order = order_of_chunks(blocks->type);
            const bool is_halves = order == chunk_order::halves;
            if (!quantised[is_halves]) quantised[is_halves].emplace(x, count, blocks->columns, order);
            problems[is_halves].push_back(
                {.weights = *blocks, .rows = count, .bias = own_bias, .out = out + first, .out_stride = rows_});
        } else {
            std::visit(
                [&]<class Weights>(const Weights& weights) {
                    if constexpr (!std::is_same_v<Weights, block_weight_rows>) {
                        const auto results = as_rows(out + first, count, weights.rows, rows_);
                        linear<float, Weights, float>::launch(where,
                                                              {.x = as_rows(x, count, weights.columns),
                                                               .weights = weights,
                                                               .bias = own_bias,
                                                               .out = results},
                                                              stream);
                    }
                },
                one.view);
        }
        first += rows_of(one.view);
    }
    for (const int order : {0, 1}) {
        if (quantised[order]) block_gemm(problems[order], *quantised[order]);
    }
}

void cpu_embedding_table::gather(const int* ids, std::int64_t count, float factor, float* out) const {
    const auto columns = static_cast<std::size_t>(table_.row_elements());
    for (std::int64_t i = 0; i < count; ++i, out += columns) {
        const std::span<float> row(out, columns);
        to_floats(table_, ids[i], 1, row);
        for (float& value : row) value *= factor;
    }
}

}  // namespace imbrex::engine
