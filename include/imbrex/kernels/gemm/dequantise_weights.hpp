// Dequantizes packed weights (gemm/pack_weights.hpp) to a bf16 or fp16 matrix [rows, k] (dequantize in American
// spelling). For a large M it is faster to dequantise once into a workspace and run an unquantised GEMM than to
// dequantise again for every 32 rows.
//
//     using weights = int4_weights<bf16, 128>;
//     dequantise_weights<weights>::launch(world::device, rows, k, packed, out, stream);
//
// Grouped weights are multiplied by their scales and rounded. Weights with one scale per row are converted without it,
// exactly. Each warp dequantises one subtile of 64 x 64: it copies the packed subtile before pdl_wait (PDL), while the
// previous kernel still runs, and stores after it.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

template <class Weights>
struct dequantise_weights_kernel {
    static constexpr int warps = 8;
    static constexpr bool uses_pdl = true;
    using element = typename Weights::element;

    struct arguments {
        typename Weights::argument packed;
        global_tile<element> out;

        IMBREX_FN int subtiles_per_row_block() const { return ceil_div(out.columns, packed_columns); }
        IMBREX_FN std::int64_t subtiles() const {
            return static_cast<std::int64_t>(packed.blocks) * subtiles_per_row_block();
        }
    };

    struct warp_buffer {
        typename Weights::weight_subtile piece;
        shared_tile<element, 16, packed_columns> rows;
    };
    struct shared_memory {
        warp_buffer warp_buffers[warps];
    };

    static grid_dim grid_of(const arguments& args) { return {static_cast<int>((args.subtiles() - 1) / warps + 1)}; }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        pdl_launch_dependents(block);
        block.each_warp(dequantise_subtile{args, shared, std::int64_t{block.index().x} * warps});
    }

  private:
    // Every subtile is treated as both first and last of its group, so that its scales come with it.
    using alone = detail::subtile_index<0, 1>;

    struct dequantise_subtile {
        const arguments& args;
        shared_memory& shared;
        std::int64_t first_of_block;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const std::int64_t number = first_of_block + self.index();
            if (number >= args.subtiles()) return;
            const int block = static_cast<int>(number / args.subtiles_per_row_block());
            const int column = static_cast<int>(number % args.subtiles_per_row_block()) * packed_columns;
            warp_buffer& own = shared.warp_buffers[self.index()];
            Weights::copy_subtile(self, own.piece, args.packed.at(block, column / Weights::block_k),
                                  column % Weights::block_k, alone{});
            commit_copies(self);
            wait_copies(self);
            self.sync();
            typename Weights::weight_fragment held;
            Weights::load_fragment(self, held, own.piece, alone{});
            pdl_wait(self);
            const global_tile<element> to = args.out.from(block * packed_rows, column);
            static_for<packed_rows / 16>([&](auto part) {
                Weights::template dequantise_rows_into<16 * part>(self, held, [&](auto first, const auto& tile) {
                    store(self, own.rows.template subtile<16, std::remove_cvref_t<decltype(tile)>::columns>(0, first),
                          tile);
                });
                store(self, to.from(16 * part, 0), own.rows);
            });
        }
    };
};

inline namespace IMBREX_WORLDS {

template <class Weights>
class dequantise_weights {
  public:
    using element = typename Weights::element;

    // As `launch`, in the checked host world and under many schedules. Returns the first hazard, or none.
    static std::optional<hazard> check(int rows, int k, const typename Weights::weight_tile* weights, element* out,
                                       const host::check_options& options = {}) {
        return host::check_launches([&] { launch(world::host_checked, rows, k, weights, out); }, options);
    }

    // out is packed [rows, k].
    static void launch(world where, int rows, int k, const typename Weights::weight_tile* weights, element* out,
                       void* stream = nullptr) {
        const typename Weights::argument packed = Weights::describe(weights, rows, k);
        require(out != nullptr, "out: null; there must be memory for ", rows, " x ", k, " weights");
        using kernel = dequantise_weights_kernel<Weights>;
        const typename kernel::arguments args{packed, {out, k, rows, k}};
        require((args.subtiles() - 1) / kernel::warps < 2147483647, "rows, k: ", rows, ", ", k,
                "; a grid has at most 2147483647 blocks");
        imbrex::launch<kernel>(where, kernel::grid_of(args), args, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
