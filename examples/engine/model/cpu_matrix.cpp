#include "engine/model/cpu_matrix.hpp"

#include <imbrex/core/error.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#include <imbrex/kernels/linear/quantise.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

template <class T>
const T* upload(const std::vector<T>& values, world where, world_memory& memory) {
    memory = world_memory(where, values.size() * sizeof(T));
    memory.write(0, values.data(), values.size() * sizeof(T));
    return memory.at<T>();
}

template <class T>
unquantised_weight_rows<T> load_plain(const stacked_weights& from, world where, world_memory& memory) {
    std::vector<T> all(static_cast<std::size_t>(from.rows() * from.columns()));
    for_rows(from, [&](std::int64_t first, std::span<const float> values) {
        std::ranges::transform(values, all.begin() + first * from.columns(),
                               [](float value) { return convert<T>(value); });
    });
    return make_weight_rows<T>(upload(all, where, memory), from.rows(), from.columns());
}

// In the element type of the file; quantised types as floats.
std::variant<unquantised_weight_rows<float>, unquantised_weight_rows<bf16>, unquantised_weight_rows<fp16>>
load_as_numbers(const stacked_weights& from, world where, world_memory& memory) {
    switch (from.type()) {
        case weight_type::bf16:
            return load_plain<bf16>(from, where, memory);
        case weight_type::f16:
            return load_plain<fp16>(from, where, memory);
        default:
            return load_plain<float>(from, where, memory);
    }
}

// Host buffers for values and scales of a grouped format.
template <class View>
struct grouped_rows {
    using value = std::remove_cvref_t<decltype(*View::values)>;
    using scale = typename View::scale;
    std::int64_t rows, columns;
    std::vector<value> values{std::vector<value>(static_cast<std::size_t>(rows * columns / View::values_per_byte))};
    std::vector<scale> scales{std::vector<scale>(group_scale_count(rows, columns))};

    value* values_of(std::int64_t row) { return values.data() + row * columns / View::values_per_byte; }
    scale* scales_of(std::int64_t row) { return scales.data() + row * (columns / weight_group_size); }

    View sent(world where, world_memory& value_memory, world_memory& scale_memory) const {
        return {upload(values, where, value_memory), upload(scales, where, scale_memory), rows, columns};
    }
};

template <class View, template <class> class To>
View load_quantised(const stacked_weights& from, world where, world_memory& values, world_memory& scales) {
    grouped_rows<View> made{from.rows(), from.columns()};
    for_rows(from, [&](std::int64_t first, std::span<const float> floats) {
        quantise_rows(To<typename View::scale>{made.values_of(first), made.scales_of(first)}, floats.data(),
                      static_cast<std::int64_t>(floats.size()) / from.columns(), from.columns());
    });
    return made.sent(where, values, scales);
}

e4m3_weight_rows load_e4m3(const stacked_weights& from, world where, world_memory& value_memory,
                           world_memory& scale_memory) {
    std::vector<e4m3> values(static_cast<std::size_t>(from.rows() * from.columns()));
    std::vector<float> scales(static_cast<std::size_t>(from.rows()));
    for_rows(from, [&](std::int64_t first, std::span<const float> floats) {
        quantise_rows(e4m3_rows_output{values.data() + first * from.columns(), scales.data() + first}, floats.data(),
                      static_cast<std::int64_t>(floats.size()) / from.columns(), from.columns());
    });
    return {upload(values, where, value_memory), upload(scales, where, scale_memory), from.rows(), from.columns()};
}

// A ggml block is a 2-byte scale followed by the bytes of a group in the layout used here.
template <class View>
View load_blocks(const stacked_weights& from, world where, world_memory& values, world_memory& scales) {
    constexpr std::size_t group_bytes = weight_group_size / View::values_per_byte, scale_bytes = sizeof(fp16);
    static_assert(std::is_same_v<typename View::scale, fp16>);
    grouped_rows<View> made{from.rows(), from.columns()};
    std::int64_t row = 0;
    from.for_each_row([&](std::span<const std::byte> bytes) {
        auto* value = made.values_of(row);
        fp16* scale = made.scales_of(row++);
        for (std::size_t at = 0; at < bytes.size(); at += scale_bytes + group_bytes) {
            std::memcpy(scale++, bytes.data() + at, scale_bytes);
            std::memcpy(value, bytes.data() + at + scale_bytes, group_bytes);
            value += group_bytes;
        }
    });
    return made.sent(where, values, scales);
}

}  // namespace

cpu_matrix::cpu_matrix(const stacked_weights& from, const runner_options& options) {
    const world where = options.where;
    const bool in_groups = from.columns() % weight_group_size == 0;
    const auto as_in_file = [&]() -> any_view {
        if (from.type() == weight_type::q8_0) return load_blocks<int8_view<fp16>>(from, where, values_, scales_);
        if (from.type() == weight_type::q4_0) return load_blocks<int4_view<fp16>>(from, where, values_, scales_);
        return std::visit([](auto view) -> any_view { return view; }, load_as_numbers(from, where, values_));
    };
    switch (options.weights) {
        case weight_format::f32:
            view_ = load_plain<float>(from, where, values_);
            break;
        case weight_format::bf16:
            view_ = load_plain<bf16>(from, where, values_);
            break;
        case weight_format::e4m3:
            view_ = load_e4m3(from, where, values_, scales_);
            break;
        case weight_format::int8:
            view_ = in_groups ? load_quantised<int8_view<bf16>, int8_rows_output>(from, where, values_, scales_)
                              : as_in_file();
            break;
        case weight_format::int4:
            view_ = in_groups ? load_quantised<int4_view<bf16>, int4_rows_output>(from, where, values_, scales_)
                              : as_in_file();
            break;
        case weight_format::as_in_file:
            view_ = as_in_file();
            break;
    }
}

cpu_embedding_table::cpu_embedding_table(const stacked_weights& from, const runner_options& options)
    : view_(load_as_numbers(from, options.where, values_)) {}

}  // namespace imbrex::engine
