// The tile of D that a consumer warpgroup of a Hopper GEMM has finished: the epilogue applied, converted to the type of D,
// in registers until it is stored. With at most 2 bytes per element it fits beside the accumulators of the next tile, so
// its store overlaps that tile's mainloop, one subtile of columns at a time through shared buffers and TMA.
//
//     done.finish(self, epilogue, sum);
//     static_for<output::subtile_count>([&](auto i) { done.template store_subtile<i>(self, tensor, rows, buffers); });
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex {

template <class Out, class Epilogue, int Rows, int BlockN>
struct gemm_output_tile {
    static constexpr bool is_glu = epilogue::is_glu<Epilogue>;
    static constexpr int columns = is_glu ? BlockN / 2 : BlockN;  // of D
    static constexpr int subtile_n = sizeof(Out) == 4 ? 32 : 64;  // columns of an epilogue subtile
    static constexpr int subtile_count = columns / subtile_n;
    static constexpr bool overlaps_store = sizeof(Out) <= 2;
    static_assert(columns % (2 * subtile_n) == 0 && BlockN <= 256,
                  "imbrex: a GEMM tile has 128 or 256 columns, 256 with a GLU epilogue: an even number of epilogue "
                  "subtiles, stored through two buffers");
    using sums = warpgroup_tile<float, Rows, BlockN>;
    using shared = shared_tile<Out, Rows, subtile_n>;

    warpgroup_tile<Out, Rows, subtile_n> subtiles[subtile_count];
    gemm_coord at{};

    static bool tma_can_store(const gemm_view<Out>& out) {
        const auto is_16_byte_multiple = [](std::int64_t elements) {
            return elements * static_cast<std::int64_t>(sizeof(Out)) % 16 == 0;
        };
        return is_16_byte_multiple(out.extents[2]) && is_16_byte_multiple(out.strides[1]) &&
               is_16_byte_multiple(out.strides[0]) && reinterpret_cast<std::uintptr_t>(out.pointer) % 16 == 0;
    }

    IMBREX_KERNEL void finish(warpgroup& self, const Epilogue& epilogue, const sums& sum) {
        static_for<subtile_count>([&](auto which) {
            auto values = columns_of<which * subtile_n, subtile_n>(self, sum);
            const gemm_coord here{at.batch, at.row, at.column + which * subtile_n};
            if constexpr (is_glu) {
                epilogue(self, values, columns_of<columns + which * subtile_n, subtile_n>(self, sum), here);
            } else {
                epilogue(self, values, here);
            }
            convert(self, subtiles[which], values);
        });
    }

    // From registers, for outputs that TMA cannot store.
    IMBREX_KERNEL void store_rows(warpgroup& self, const gemm_view<Out>& out) const {
        static_for<subtile_count>(
            [&](auto which) { store(self, out.at(at.batch, at.row, at.column + which * subtile_n), subtiles[which]); });
    }

    // By TMA through alternating buffers. A warpgroup whose rows are all out of bounds stores nothing.
    template <int Which, class Tensor>
    IMBREX_KERNEL void store_subtile(warpgroup& self, const Tensor& out, int rows, shared (&buffers)[2]) const {
        if (at.row >= rows) return;
        wait_stores_read<1>(self);
        self.sync();
        store(self, buffers[Which % 2], subtiles[Which]);
        fence_async(self);
        self.sync();
        store_async(self, out.at(at.batch, at.row, at.column + Which * subtile_n).out_of_bounds_fill(),
                    buffers[Which % 2]);
        commit_stores(self);
    }
};

}  // namespace imbrex
