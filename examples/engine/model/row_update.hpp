// Elementwise updates of rows: out = f(out, x), in float, rounded once. Additions to the hidden state that no other
// kernel does, and the softcap of the logits.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/row_tiles.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>

namespace imbrex::engine {

struct add_to {
    IMBREX_KERNEL float operator()(float out, float x) const { return out + x; }
};

// cap * tanh(out / cap). The hardware's tanh has too few bits for logits.
struct softcap_of {
    float cap;
    IMBREX_KERNEL float operator()(float out, float) const {
        const float decay = hw::exp2(-2.8853900817779268f * hw::abs(out) * hw::reciprocal(cap));  // e^(-2 |out| / cap)
        const float capped = cap * ((1 - decay) * hw::reciprocal(1 + decay));
        return out < 0 ? -capped : capped;
    }
};

template <class T, class Function, row_alignment Known>
struct row_update_kernel : row_tiles_kernel<row_update_kernel<T, Function, Known>> {
    static constexpr int columns_at_once = 256;
    struct arguments {
        row_accessor<const T> x, before;  // `before` is `out`
        row_accessor<T> out;
        row_tiles<1, columns_at_once> all;
        Function function;
    };

    IMBREX_KERNEL static void apply(const warp& self, const arguments& args, int row, int column) {
        const int rows = args.all.rows, columns = args.all.columns - column;
        vector_row_tile<T, 1, columns_at_once> x, out;
        load_rows_from<Known>(self, x, row_pointers<const T>{args.x, row, rows, column}, columns);
        load_rows_from<Known>(self, out, row_pointers<const T>{args.before, row, rows, column}, columns);
        transform(self, out, args.function, out, x);
        store_rows_to<Known>(self, row_pointers<T>{args.out, row, rows, column}, out, columns);
    }
};

inline namespace IMBREX_WORLDS {

// Rows are packed; x may be `out`.
template <class T, class Function>
void update_rows(world where, T* out, const T* x, std::int64_t rows, std::int64_t columns, const Function& function,
                 void* stream) {
    if (rows == 0) return;
    const auto to = as_rows(out, rows, columns);
    const auto from = as_rows(x, rows, columns);
    const auto launch = [&]<row_alignment Known>() {
        using kernel = row_update_kernel<T, Function, Known>;
        launch_row_tiles<kernel>(where,
                                 {.x = row_accessor_of(from),
                                  .before = row_accessor_of(as_rows<const T>(out, rows, columns)),
                                  .out = row_accessor_of(to),
                                  .all = {static_cast<int>(rows), static_cast<int>(columns)},
                                  .function = function},
                                 stream);
    };
    if (detail::can_vectorise(to) && detail::can_vectorise(from)) {
        launch.template operator()<row_alignment::aligned>();
    } else {
        launch.template operator()<row_alignment::unaligned>();
    }
}

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
