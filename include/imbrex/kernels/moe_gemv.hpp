// Products of the chosen experts for few tokens (1 to 32, decode): the GEMV of gemm/gemv.hpp for each expert that has rows,
// in one launch. It is bound by memory bandwidth, and reads the weights of an expert once for every tile of its rows.
//
//     using weights = mxfp4_weights<bf16>;       // a format of gemm/quantised_weights.hpp, or unquantised_weights<bf16, 64>
//     moe_gemv<weights, bf16, moe_rows::gathered, glu>::launch(
//         world::device, {.n = ffn, .k = hidden, .routing = routing, .a = {x}, .out = {h}}, packed, epilogue, stream);
//
// The problem, the weights of all experts below one another, and the epilogues are those of moe_gemm.hpp and
// moe_gemm_quantised.hpp; the routing has tile_rows of 8 or 16. n is a multiple of 64.
//
// With PDL the launch starts early. With gathered rows the previous kernel may be the router, so it waits before it reads
// which weights it needs. With sorted rows it reads the routing and loads weights before it waits: the previous kernel,
// which wrote those rows, knew the routing, and must have called pdl_wait before pdl_launch_dependents, as the kernels of
// this library that follow a routing do.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/extension_points.hpp>
#include <imbrex/kernels/gemm/gemv.hpp>
#include <imbrex/kernels/gemm/gemv_rows.hpp>
#include <imbrex/kernels/gemm/pack_weights.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/kernels/gemm/unquantised_weights.hpp>
#include <imbrex/kernels/moe_gemm/problem.hpp>
#include <imbrex/ops/memory/cp_async_iterator.hpp>
#include <imbrex/ops/memory/read_element.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

// Rows of a tile, for routing.sizes.tile_rows: 8, unless experts have more rows than that in the mean, with a margin.
IMBREX_FN constexpr int moe_gemv_tile_rows(int tokens, int experts, int top_k) {
    return std::int64_t{tokens} * top_k <= std::int64_t{experts} * 5 ? 8 : 16;
}

// The tiles of a routing: a block has some columns of one of them.
template <moe_rows Rows>
struct expert_rows {
    static constexpr bool follows_routing = true;
    static constexpr bool waits_first = Rows == moe_rows::gathered;
    moe_routing routing;
    int weight_tiles;  // of an expert

    IMBREX_KERNEL gemv_place at(int number, int tiles) const {
        const int row_tile = number / tiles, column_tile = number % tiles;
        // Both are loaded at once.
        const int expert = read_element(routing.expert_of_tile, row_tile), in_use = read_element(routing.tiles, 0);
        return {row_tile < in_use, column_tile, expert * weight_tiles + column_tile, row_tile * routing.sizes.tile_rows,
                expert};
    }
    template <int Count, int Columns, bool Holds, class View>
    IMBREX_KERNEL auto rows_of(const warp& self, const View& a, int first_row, int column) const {
        using element = std::remove_const_t<typename View::element>;
        const auto row_pointer = [&](int row) -> const element* {
            if constexpr (Rows == moe_rows::sorted) return a.at(0, first_row + row, column).pointer;
            const int token = read_element(routing.token_of_row, first_row + row);
            return token == moe_routing::no_token ? nullptr : a.at(0, token, column).pointer;
        };
        return cp_async_gather_iterator<element, Count, Columns>(self, row_pointer, a.columns() - column);
    }
    // The rows after those of the tile belong to another.
    template <int Count, class T>
    IMBREX_KERNEL static global_tile<T> out_rows(global_tile<T> all) {
        all.rows = all.rows < Count ? all.rows : Count;
        return all;
    }
};

inline namespace IMBREX_WORLDS {

// Warps: of a block. Unquantised weights with a GLU need fewer, and subtiles of 32 rows: shared memory holds no more.
template <class Weights, class Out, moe_rows Rows, class Epilogue = epilogue::identity, int Warps = gemv_shape{}.warps>
class moe_gemv {
    static_assert(detail::check_gemm_epilogue<Epilogue>());

  public:
    using element = typename Weights::element;
    using problem = moe_gemm_problem<element, Out>;  // its b is ignored
    static constexpr bool is_glu = epilogue::is_glu<Epilogue>;
    // After the router nothing of the next launch's weights is known either, so that it may start at once.
    static constexpr gemv_shape shape{.warps = Warps, .pdl_launch_at_once = Rows == moe_rows::gathered};
    template <int TileRows>
    using kernel = gemv_kernel<Weights, Out, Epilogue, TileRows, shape, unnormalised_input, expert_rows<Rows>>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class Memory, class... More>
    static std::optional<hazard> check(const problem& p, const Memory& weights, const host::check_options& options = {},
                                       const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, weights, more...); }, options);
    }

    // Weights as Weights::describe takes them: packed tiles, or an operand.
    template <class Memory>
    static void launch(world where, const problem& p, const Memory& weights, const Epilogue& epilogue = {},
                       void* stream = nullptr) {
        const views all(p);
        const int tile_rows = p.routing.sizes.tile_rows;
        require(tile_rows == 8 || tile_rows == 16, "routing.sizes.tile_rows: ", tile_rows,
                "; must be 8 or 16, the rows of a tile");
        require(p.n % packed_rows == 0, "n: ", p.n, "; must be a multiple of ", packed_rows);
        if (p.routing.sizes.tokens == 0 || p.n == 0) return;
        require(all.a.columns() * static_cast<int>(sizeof(element)) % 16 == 0, "k: ", p.k,
                "; rows of A must end at a multiple of 16 bytes");
        tile_rows == 8 ? launch_tiles<8>(where, p, weights, epilogue, stream)
                       : launch_tiles<16>(where, p, weights, epilogue, stream);
    }

    template <class Kernel, class Memory>
    static typename Kernel::arguments arguments_of(const problem& p, const Memory& weights, const Epilogue& epilogue) {
        const views all(p);
        const int rows = p.n * (is_glu ? 2 : 1);
        return {Weights::describe(weights, p.routing.sizes.experts * rows, p.k),
                all.a,
                all.out,
                epilogue,
                Kernel::tiles_of(p.n),
                Kernel::steps_of(p.k),
                {},
                {p.routing, rows / Kernel::block_n}};
    }

  private:
    template <class Kernel, class Memory>
    static void launch_kernel(world where, const problem& p, const Memory& weights, const Epilogue& epilogue,
                              void* stream) {
        const auto arguments = arguments_of<Kernel>(p, weights, epilogue);
        const std::int64_t blocks = std::int64_t{p.routing.sizes.max_tiles()} * arguments.tiles * Kernel::cluster_size;
        require(blocks <= 2147483647, "n: ", p.n, "; with ", p.routing.sizes.max_tiles(), " tiles of rows, there are ",
                blocks, " blocks; there must be at most 2147483647");
        imbrex::launch<Kernel>(where, {static_cast<int>(blocks)}, arguments, stream);
    }

    // With many tiles, twice as many blocks of half the warps: a block that ends leaves less of an SM idle. (Measured.)
    static constexpr gemv_shape halves{
        .warps = 4, .min_blocks_per_sm = 4, .pdl_launch_at_once = Rows == moe_rows::gathered};
    static constexpr int waves_for_halves = is_glu ? 4 : 2;
    using kernel_of_halves = gemv_kernel<Weights, Out, Epilogue, 8, halves, unnormalised_input, expert_rows<Rows>>;
    using views = moe_gemm_views<element, Out, Rows, is_glu, true>;

    template <int TileRows, class Memory>
    static void launch_tiles(world where, const problem& p, const Memory& weights, const Epilogue& epilogue,
                             void* stream) {
        constexpr bool have_steps = halves.warps * kernel<8>::subtiles * packed_columns % Weights::block_k == 0;
        if constexpr (TileRows == 8 && have_steps && Warps > halves.warps) {
            using large = kernel<TileRows>;
            const std::int64_t blocks = std::int64_t{p.routing.sizes.max_tiles()} * large::tiles_of(p.n);
            if (blocks >= std::int64_t{waves_for_halves} * large::min_blocks_per_sm * imbrex::num_sms(where))
                return launch_kernel<kernel_of_halves>(where, p, weights, epilogue, stream);
        }
        launch_kernel<kernel<TileRows>>(where, p, weights, epilogue, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
