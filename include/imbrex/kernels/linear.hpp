// Linear layer without tensor cores, a SIMT / CPU GEMV and GEMM: out[m, n] = sum over k of x[m, k] W[n, k] + bias[n].
//
//     linear<float, unquantised_weight_rows<bf16>, float>::launch(
//         world::host, {.x = as_rows<const float>(x, tokens, k),
//                       .weights = make_weight_rows(w, n, k),
//                       .bias = bias,                             // optional
//                       .out = as_rows(out, tokens, n)});
//
// It is the product for CPU inference, at memory bandwidth for small M, and gives float products on any GPU. For many
// rows of 16-bit elements on a GPU use kernels/gemm.hpp. x and out are float, bf16 or fp16, independently; weights are
// any type of core/weight_rows.hpp: unquantised, e4m3, int8 or int4. Sums are in float and rounded once. Weights with
// `activation_quantisation::int8` quantise x to int8 in groups of 32 first, which is faster; docs/linear.md states the
// error bound.
//
// No launch allocates memory or synchronizes. Invalid arguments throw imbrex::error before launch.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/weight_rows.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/linear/kernel.hpp>
#include <imbrex/kernels/row_view.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

template <class In, class Weights, class Out>
struct linear_problem {
    row_view<const In> x;         // [m, k]
    Weights weights;              // [n, k]
    const float* bias = nullptr;  // [n]; null: no bias
    row_view<Out> out;            // [m, n]

    std::int64_t rows() const { return out.extents[0] * out.extents[1]; }
    bool empty() const { return rows() == 0 || out.columns() == 0; }
};

namespace detail {

template <class T>
inline constexpr bool is_linear_number = std::is_same_v<T, float> || std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;

// Requires a weight matrix of valid size with non-null memory.
template <class Weights>
void require_weights(const Weights& w) {
    require(w.rows >= 0 && w.rows <= max_rows, "weights.rows: ", w.rows, "; must be from 0 to ", max_rows);
    require(w.columns >= 0 && w.columns <= max_rows, "weights.columns: ", w.columns, "; must be from 0 to ", max_rows);
    const bool some = w.rows > 0 && w.columns > 0;
    require(w.values != nullptr || !some, "weights.values: null; ", w.rows, " x ", w.columns, " values are needed");
    if constexpr (requires { w.scales; }) {
        require(w.scales != nullptr || !some, "weights.scales: null; the scales of ", w.rows, " rows are needed");
    }
    if constexpr (requires { Weights::values_per_byte; }) {
        require(w.columns % weight_group_size == 0, "weights.columns: ", w.columns,
                "; must be a multiple of the group size, ", weight_group_size);
        require(!some || reinterpret_cast<std::uintptr_t>(w.values) % 16 == 0,
                "weights.values: ", static_cast<const void*>(w.values),
                "; grouped weights must be aligned to 16 bytes");
    }
}

// Whether weight rows can be read 16 bytes at a time.
template <class Weights>
bool weights_are_vectorisable(const Weights& w) {
    if constexpr (requires { Weights::values_per_byte; }) {
        return true;
    } else {
        constexpr std::int64_t size = sizeof(typename Weights::element);
        std::int64_t distance = w.columns;
        if constexpr (requires { w.row_stride; }) distance = w.row_stride;
        return reinterpret_cast<std::uintptr_t>(w.values) % 16 == 0 && (w.rows <= 1 || distance * size % 16 == 0) &&
               w.columns % 8 == 0 && w.columns * size % 16 == 0;
    }
}

}  // namespace detail

template <class In, class Weights, class Out>
void require_linear(const linear_problem<In, Weights, Out>& p) {
    using namespace detail;
    require_rows(p.x, "x");
    require_weights(p.weights);
    require_rows(p.out, "out");
    require(p.x.extents[2] == p.weights.columns, "x.extents[2]: ", p.x.extents[2], "; must equal weights.columns, ",
            p.weights.columns);
    require(p.out.extents[2] == p.weights.rows, "out.extents[2]: ", p.out.extents[2], "; must equal weights.rows, ",
            p.weights.rows);
    for (int i = 0; i < 2; ++i) {
        require(p.out.extents[i] == p.x.extents[i], "out.extents[", i, "]: ", p.out.extents[i],
                "; must equal x.extents[", i, "], ", p.x.extents[i]);
    }
    require_disjoint_rows(p.out, "out");
}

inline namespace IMBREX_WORLDS {

template <class In, class Weights, class Out>
class linear {
    static_assert(detail::is_linear_number<In> && detail::is_linear_number<Out>,
                  "imbrex: x and out are bf16, fp16 or float");

  public:
    using problem = linear_problem<In, Weights, Out>;
    template <int Rows, int Columns, int BlockK>
    using kernel = linear_kernel<In, Weights, Out, Rows, Columns, BlockK>;
    // In the host world "registers" are memory, and a block should fill a cache; on the device there are many warps.
    using host_row = kernel<1, 64, 8192>;
    using host_rows = kernel<32, 256, 1024>;
    using device_row = kernel<1, 4, 2048>;
    using device_rows = kernel<4, 4, 512>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, void* stream = nullptr) {
        require_linear(p);
        if (p.empty()) return;
        if (where == world::device) {
            p.rows() == 1 ? on_device<device_row>(p, stream) : on_device<device_rows>(p, stream);
        } else {
            p.rows() == 1 ? on_host<host_row>(where, p) : on_host<host_rows>(where, p);
        }
    }

    template <class Kernel>
    static typename Kernel::arguments arguments_of(const problem& p, std::int64_t columns_per_block) {
        return {.x = row_accessor_of(p.x),
                .weights = p.weights,
                .bias = p.bias,
                .out = row_accessor_of(p.out),
                .rows = static_cast<int>(p.rows()),
                .columns = p.out.columns(),
                .k = p.x.columns(),
                .columns_per_block = static_cast<int>(columns_per_block),
                .in_chunks = detail::weights_are_vectorisable(p.weights)};
    }

  private:
    template <class Kernel>
    static void on_device(const problem& p, void* stream) {
        // Rows of x are staged once for several tiles if there are many tiles.
        const std::int64_t tiles = (p.weights.rows - 1) / Kernel::block_n + 1;
        const std::int64_t several = std::clamp<std::int64_t>(tiles / 8192, 1, 16);
        const auto args = arguments_of<Kernel>(p, several * Kernel::block_n);
        require_countable(args);
        launch_on_device<Kernel>(Kernel::grid_of(args), args, stream);
    }

    // A few blocks per core for load balance. A block takes a microsecond to start and should run for tens of
    // microseconds.
    template <class Kernel>
    static void on_host(world where, const problem& p) {
        constexpr std::int64_t enough = 1048576;  // products
        const std::int64_t n = p.weights.rows, cores = imbrex::num_sms(where);
        const std::int64_t tiles = (p.rows() - 1) / Kernel::block_m + 1;
        const std::int64_t useful = n * p.weights.columns / enough / cores * cores;
        const std::int64_t blocks = std::clamp(useful, cores, std::max(cores, 4 * cores / tiles));
        const auto args = arguments_of<Kernel>(p, ((n - 1) / blocks + 4) / 4 * 4);
        require_countable(args);
        launch_on_host<Kernel>(where, Kernel::grid_of(args), args);
    }

    template <class Arguments>
    static void require_countable(const Arguments& args) {
        const std::int64_t blocks = (args.columns - 1) / args.columns_per_block + 1;
        require(blocks * args.tiles() <= detail::max_rows, "out.extents: ", args.rows, " rows of ", args.columns,
                " columns; more than one launch supports");
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
