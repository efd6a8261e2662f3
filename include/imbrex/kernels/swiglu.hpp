// SwiGLU activation (silu_and_mul, act_and_mul in vLLM and FlashInfer): out = activation(gate) * up, elementwise.
//
//     // gate_up is [rows, 2 n]: gate in columns 0 to n - 1, up in columns n to 2 n - 1
//     swiglu_activation<bf16>::launch(world::device, {.gate = gate_of<const bf16>(gate_up, rows, n),
//                                                     .up = up_of<const bf16>(gate_up, rows, n),
//                                                     .out = as_rows(out, rows, n)}, stream);
//     swiglu_activation<bf16, activation::gelu_tanh>::launch(...)
//
// Gate and up may also be two separate arrays (as_rows). The default activation is silu; any functor of a float works
// (kernels/gemm/epilogue.hpp has some). All arithmetic is in float, with one rounding at the end. Any number of rows
// and columns and any row stride; rows with a multiple of 8 columns that start at 16-byte boundaries use vectorised
// access, others move element by element. bf16, fp16, float.
//
// `out` may alias gate or up. A launch allocates nothing and does not synchronise. Invalid arguments throw
// `imbrex::error` before launch. The GEMM that computes gate and up can apply the activation in its epilogue instead:
// `epilogue::glu` in kernels/gemm/epilogue.hpp.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/row_tiles.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

// The halves of an array [rows, 2 * columns] with this row stride in elements; packed if it is 0.
template <class T>
row_view<T> gate_of(T* gate_up, std::int64_t rows, std::int64_t columns, std::int64_t row_stride = 0) {
    return as_rows(gate_up, rows, columns, row_stride == 0 ? 2 * columns : row_stride);
}
template <class T>
row_view<T> up_of(T* gate_up, std::int64_t rows, std::int64_t columns, std::int64_t row_stride = 0) {
    return as_rows(gate_up == nullptr ? gate_up : gate_up + columns, rows, columns,
                   row_stride == 0 ? 2 * columns : row_stride);
}

template <class T, class Activation, int Rows, int Columns, row_alignment Known>
struct swiglu_kernel : row_tiles_kernel<swiglu_kernel<T, Activation, Rows, Columns, Known>> {
    struct arguments {
        row_accessor<const T> gate, up;
        row_accessor<T> out;
        row_tiles<Rows, Columns> all;
        Activation activation;
    };

    IMBREX_KERNEL static void apply(const warp& self, const arguments& args, int row, int column) {
        const int rows = args.all.rows, columns = args.all.columns - column;
        vector_row_tile<T, Rows, Columns> gate, up;
        load_rows_from<Known>(self, gate, row_pointers<const T>{args.gate, row, rows, column}, columns);
        load_rows_from<Known>(self, up, row_pointers<const T>{args.up, row, rows, column}, columns);
        const Activation f = args.activation;
        transform(
            self, gate, [=](float g, float u) { return f(g) * u; }, gate, up);
        store_rows_to<Known>(self, row_pointers<T>{args.out, row, rows, column}, gate, columns);
    }
};

template <class T>
struct swiglu_problem {
    static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, fp16> || std::is_same_v<T, float>,
                  "imbrex: SwiGLU operands are bf16, fp16 or float");

    row_view<const T> gate, up;
    row_view<T> out;

    bool empty() const { return out.extents[0] * out.extents[1] * out.extents[2] == 0; }
};

template <class T>
void require_swiglu(const swiglu_problem<T>& p) {
    using namespace detail;
    require_rows(p.gate, "gate");
    require_rows(p.up, "up");
    require_rows(p.out, "out");
    require_same_rows(p.up, "up", p.gate, "gate");
    require_same_rows(p.out, "out", p.gate, "gate");
    require_disjoint_rows(p.out, "out");
}

inline namespace IMBREX_WORLDS {

template <class T, class Activation = activation::silu>
class swiglu_activation {
  public:
    using problem = swiglu_problem<T>;
    template <int Rows, int Columns, row_alignment Known>
    using kernel = swiglu_kernel<T, Activation, Rows, Columns, Known>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, Activation activation = {}, void* stream = nullptr) {
        require_swiglu(p);
        if (p.empty()) return;
        if (!(detail::can_vectorise(p.gate) && detail::can_vectorise(p.up) && detail::can_vectorise(p.out))) {
            launch_kernel<kernel<1, 256, row_alignment::unaligned>>(where, p, activation, stream);
        } else if (p.out.columns() <= 64) {
            launch_kernel<kernel<4, 64, row_alignment::aligned>>(where, p, activation, stream);
        } else if (p.out.columns() <= 128) {
            launch_kernel<kernel<2, 128, row_alignment::aligned>>(where, p, activation, stream);
        } else {
            launch_kernel<kernel<1, 256, row_alignment::aligned>>(where, p, activation, stream);
        }
    }
    static void launch(world where, const problem& p, void* stream) { launch(where, p, Activation{}, stream); }

    template <class Kernel>
    static typename Kernel::arguments arguments_of(const problem& p, Activation activation = {}) {
        return {.gate = row_accessor_of(p.gate),
                .up = row_accessor_of(p.up),
                .out = row_accessor_of(p.out),
                .all = {static_cast<int>(p.out.extents[0] * p.out.extents[1]), p.out.columns()},
                .activation = activation};
    }

  private:
    template <class Kernel>
    static void launch_kernel(world where, const problem& p, Activation activation, void* stream) {
        launch_row_tiles<Kernel>(where, arguments_of<Kernel>(p, activation), stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
