// gemm_quantised behind a plain function (../variant.hpp): a linear layer with quantised weights. The same variant
// dequantises them.
#pragma once

#include "../calls/quantised_weights.hpp"
#include "../variant.hpp"
#include "pack_weights.hpp"

#include <imbrex/kernels/gemm_quantised.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace imbrex::bindings {

// The scales of rows of weights, which are columns of D, and a bias: tested inside the kernel, so that one instantiation
// serves all combinations.
template <class T>
struct scales_and_bias {
    epilogue::scale_columns scales = {};
    epilogue::bias<T> bias = {};

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const {
        if (scales.factors.pointer != nullptr) scales(self, values, at);
        if (bias.vector.pointer != nullptr) bias(self, values, at);
    }
};

template <class Weights>
struct linear_quantised {
    using call = linear_quantised_call;
    using element = typename Weights::element;
    using tile = typename Weights::weight_tile;
    using product = gemm_quantised<Weights, element, scales_and_bias<element>>;

    static void run(const execution& on, const call& c) {
        const std::size_t tile_bytes = packed_tile_bytes<Weights>(c.rows, c.k);
        const auto* const packed = elements_of<const std::uint8_t>(
            c.packed, "packed", static_cast<std::int64_t>(tile_bytes + packed_scale_bytes<Weights>(c.rows)));
        const auto* const tiles = reinterpret_cast<const tile*>(packed);
        if (c.dequantised.given()) {
            return launch_or_check<dequantisation>(on, dequantisation_problem{c.rows, c.k, tiles, dequantised_of(c)});
        }
        const gemm_problem<element, element> p = problem_of(c);
        const gemm_workspace workspace = workspace_of(on, p);
        scales_and_bias<element> after;
        if (Weights::group == 0) after.scales = {{reinterpret_cast<const float*>(packed + tile_bytes), c.rows}};
        after.bias = {{elements_of<const element>(c.bias, "bias", c.rows), c.rows}};
        launch_or_check<product>(on, p, tiles, workspace, after);
    }

  private:
    struct dequantisation_problem {
        int rows, k;
        const tile* tiles;
        element* out;
    };
    // dequantise_weights with the arguments of launch_or_check.
    struct dequantisation {
        using launcher = dequantise_weights<Weights>;
        static void launch(world where, const dequantisation_problem& p, void* stream) {
            launcher::launch(where, p.rows, p.k, p.tiles, p.out, stream);
        }
        static std::optional<hazard> check(const dequantisation_problem& p, const host::check_options& options) {
            return launcher::check(p.rows, p.k, p.tiles, p.out, options);
        }
    };

    static element* dequantised_of(const call& c) {
        return elements_of<element>(c.dequantised, "dequantised", std::int64_t{c.rows} * c.k);
    }
    static gemm_problem<element, element> problem_of(const call& c) {
        const row_view<const element> x = rows_of<const element>(c.x, "x");
        require(x.extents[2] == c.k, "x: ", x.extents[2], " columns; the weights have ", c.k);
        const int m = static_cast<int>(x.extents[0]);
        element* const out = elements_of<element>(c.out, "out", std::int64_t{m} * c.rows);
        return {m, c.rows, c.k, {x.pointer, x.strides[0]}, {}, {out}};
    }
    static gemm_workspace workspace_of(const execution& on, const gemm_problem<element, element>& p) {
        const std::size_t bytes = product::workspace_bytes(p);
        return bytes == 0 ? gemm_workspace{} : gemm_workspace{on.allocate(bytes), bytes};
    }
};

}  // namespace imbrex::bindings
