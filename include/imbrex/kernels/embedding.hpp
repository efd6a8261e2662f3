// The embedding lookup: gathers rows of a table by token id, out[i] = table[ids[i]] * factor.
//
//     embedding<bf16>::launch(world::device, {.table = as_rows<const bf16>(table, vocabulary, 4096),
//                                             .ids = tokens,
//                                             .out = as_rows(out, count, 4096)}, stream);
//
// There is one id per row of `out`. In the host world, an id outside the table throws. On the device it yields a row of
// zeros, so that a captured CUDA graph can be replayed with fewer tokens, padded with -1. With factor 1, rows are
// copied bit by bit. Any number of rows and columns and any row stride; rows with a multiple of 8 columns that start at
// 16-byte boundaries use vectorised access, others move element by element. bf16, fp16, float; `out` may have another
// of these types than the table: embedding<bf16, float>.
//
// A launch allocates nothing and does not synchronise. Invalid arguments throw `imbrex::error` before launch.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/row_tiles.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

template <class T, class Out, int Rows, int Columns, row_alignment Known>
struct embedding_kernel : row_tiles_kernel<embedding_kernel<T, Out, Rows, Columns, Known>> {
    struct arguments {
        row_accessor<const T> table;
        const int* ids;
        row_accessor<Out> out;
        row_tiles<Rows, Columns> all;
        int entries;  // of the table
        float factor;
    };

    IMBREX_KERNEL static void apply(const warp& self, const arguments& args, int first, int column) {
        const int rows = args.all.rows, columns = args.all.columns - column;
        vector_row_tile<T, Rows, Columns> values;
        load_rows_from<Known>(
            self, values,
            [&](int row) -> const T* {
                const int id = first + row < rows ? read_element(args.ids, first + row) : -1;
                return id >= 0 && id < args.entries ? args.table.at(id, column) : nullptr;
            },
            columns);
        const row_pointers<Out> place{args.out, first, rows, column};
        const auto scaled = [factor = args.factor](float x) { return factor * x; };
        if constexpr (std::is_same_v<T, Out>) {
            if (args.factor != 1.0f) transform(self, values, scaled, values);
            store_rows_to<Known>(self, place, values, columns);
        } else {
            vector_row_tile<Out, Rows, Columns> result;
            transform(self, result, scaled, values);
            store_rows_to<Known>(self, place, result, columns);
        }
    }
};

template <class T, class Out = T>
struct embedding_problem {
    static_assert((std::is_same_v<T, bf16> || std::is_same_v<T, fp16> ||
                   std::is_same_v<T, float>)&&(std::is_same_v<Out, bf16> || std::is_same_v<Out, fp16> ||
                                               std::is_same_v<Out, float>),
                  "imbrex: an embedding table and its output are bf16, fp16 or float");

    row_view<const T> table;   // [entries, columns]
    const int* ids = nullptr;  // in the memory of the kernel's world
    row_view<Out> out;         // [ids, columns]
    float factor = 1;

    std::int64_t rows() const { return out.extents[0] * out.extents[1]; }
    bool empty() const { return rows() == 0 || out.columns() == 0; }
};

template <class T, class Out>
void require_embedding(world where, const embedding_problem<T, Out>& p) {
    using namespace detail;
    require_rows(p.table, "table");
    require_rows(p.out, "out");
    require(p.out.extents[2] == p.table.extents[2], "out.extents[2]: ", p.out.extents[2], "; table has ",
            p.table.extents[2], " columns, and it must have as many");
    require_disjoint_rows(p.out, "out");
    require(std::isfinite(p.factor), "factor: ", p.factor, "; must be finite");
    if (p.empty()) return;
    require(p.ids != nullptr, "ids: null; ", p.rows(), " elements are needed");
    const std::int64_t entries = p.table.extents[0] * p.table.extents[1];
    for (std::int64_t i = 0; where != world::device && i < p.rows(); ++i) {
        require(p.ids[i] >= 0 && p.ids[i] < entries, "ids[", i, "]: ", p.ids[i], "; the table has ", entries, " rows");
    }
}

inline namespace IMBREX_WORLDS {

template <class T, class Out = T>
class embedding {
  public:
    using problem = embedding_problem<T, Out>;
    template <int Rows, int Columns, row_alignment Known>
    using kernel = embedding_kernel<T, Out, Rows, Columns, Known>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, void* stream = nullptr) {
        require_embedding(where, p);
        if (p.empty()) return;
        if (!(detail::can_vectorise(p.table) && detail::can_vectorise(p.out))) {
            launch_kernel<kernel<1, 256, row_alignment::unaligned>>(where, p, stream);
        } else if (p.out.columns() <= 256) {
            launch_kernel<kernel<2, 256, row_alignment::aligned>>(where, p, stream);
        } else {
            launch_kernel<kernel<1, 512, row_alignment::aligned>>(where, p, stream);
        }
    }

    template <class Kernel>
    static typename Kernel::arguments arguments_of(const problem& p) {
        return {.table = row_accessor_of(p.table),
                .ids = p.ids,
                .out = row_accessor_of(p.out),
                .all = {static_cast<int>(p.rows()), p.out.columns()},
                .entries = static_cast<int>(p.table.extents[0] * p.table.extents[1]),
                .factor = p.factor};
    }

  private:
    template <class Kernel>
    static void launch_kernel(world where, const problem& p, void* stream) {
        launch_row_tiles<Kernel>(where, arguments_of<Kernel>(p), stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
