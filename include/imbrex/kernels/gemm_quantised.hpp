// Weight-only quantised GEMM in one call: D = epilogue(A W^T), where W [n, k] is int8, e4m3, int4 or MXFP4. W is
// prepacked once (gemm/pack_weights.hpp) and dequantised to bf16 or fp16 in registers (dequantize in American
// spelling). Requires Hopper.
//
//     using weights = int4_weights<bf16, 128, bf16, 512>;         // group size 128, block_k 512
//     using product = gemm_quantised<weights, bf16>;
//     product::launch(world::device, {m, n, k, {a}, {}, {d}}, packed, {}, stream);
//
// Up to 16 rows use the GEMV (gemm/gemv.hpp), one pass over the weights at memory bandwidth. More rows run 32 at a time
// through the small-M GEMM (gemm/small_m.hpp). These do not round grouped weights, and from 17 rows on a row's result
// does not depend on their number.
//
// With a workspace argument, grouped weights may be multiplied by their scales and rounded to the type of A, which is
// faster: 33 to 1024 rows use the fused dequantisation GEMM (gemm/dequantising.hpp), which needs no workspace memory; for
// more rows the weights are dequantised once into the workspace (gemm/dequantise_weights.hpp) and multiplied by the
// unquantised GEMM.
//
//     product::launch(world::device, p, packed, {workspace, product::workspace_bytes(p)}, {}, stream);
//
// Trap (PDL): the kernels read weights before the previous kernel in the stream has finished, so no kernel in the
// stream may write them.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm/block_weights.hpp>
#include <imbrex/kernels/gemm/dequantise_weights.hpp>
#include <imbrex/kernels/gemm/dequantising.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/extension_points.hpp>
#include <imbrex/kernels/gemm/gemv.hpp>
#include <imbrex/kernels/gemm/pack_weights.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/kernels/gemm/small_m.hpp>

#include <cstddef>
#include <optional>
#include <type_traits>

namespace imbrex {

namespace epilogue {

// `glu` for weights with one scale per row. The scales of the up matrix are applied after the gating, which gives the
// same result.
template <class Activation>
struct scaled_glu {
    scale_columns of_gate;
    scale_columns of_up;
    glu<Activation> gate_and_up = {};

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& gate, const Tile& up, gemm_coord at) const {
        of_gate(self, gate, at);
        gate_and_up(self, gate, up, at);
        of_up(self, gate, at);
    }
};
template <class Activation>
inline constexpr bool is_glu<scaled_glu<Activation>> = true;

// Applies an epilogue to a row range of D that starts at `first_row`.
template <class Epilogue>
struct row_offset {
    Epilogue inner;
    int first_row;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const {
        inner(self, values, gemm_coord{at.batch, at.row + first_row, at.column});
    }
    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& gate, const Tile& up, gemm_coord at) const {
        inner(self, gate, up, gemm_coord{at.batch, at.row + first_row, at.column});
    }
};
template <class Epilogue>
inline constexpr bool is_glu<row_offset<Epilogue>> = is_glu<Epilogue>;

}  // namespace epilogue

// The numbers of rows for which the fused dequantisation GEMM is the fastest. (Measured.)
inline constexpr int fused_dequantisation_min_m = 33, fused_dequantisation_max_m = 1024;

// Scratch memory of the world; contents are not preserved.
struct gemm_workspace {
    void* pointer = nullptr;
    std::size_t bytes = 0;
};

inline namespace IMBREX_WORLDS {

template <class Weights, class Out, class Epilogue = epilogue::identity>
class gemm_quantised {
    static_assert(detail::check_gemm_epilogue<Epilogue>());

  public:
    using element = typename Weights::element;
    using problem = gemm_problem<element, Out>;  // its b is ignored

    // Whether a launch with a workspace argument uses the fused dequantisation GEMM.
    static constexpr bool fuses(int m) { return m >= fused_dequantisation_min_m && m <= fused_dequantisation_max_m; }

    // The workspace size in bytes; 0 if no workspace memory would be used.
    static std::size_t workspace_bytes(const problem& p) {
        if (p.m <= fused_dequantisation_max_m || p.n <= 0 || p.k <= 0) return 0;
        return static_cast<std::size_t>(rows_of_weights(p)) * static_cast<std::size_t>(p.k) * sizeof(element);
    }

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, const typename Weights::weight_tile* weights,
                       const gemm_workspace& workspace, const Epilogue& epilogue = {}, void* stream = nullptr) {
        const std::size_t needed = workspace_bytes(p);
        if (fuses(p.m)) return launch_fused(where, p, weights, epilogue, stream);
        if (needed == 0) return launch(where, p, weights, epilogue, stream);
        require_product(where, p);
        require(workspace.pointer != nullptr, "workspace.pointer: null; ", needed, " bytes are needed");
        require(workspace.bytes >= needed, "workspace.bytes: ", workspace.bytes, "; ", needed, " are needed");
        auto* const dequantised = static_cast<element*>(workspace.pointer);
        dequantise_weights<Weights>::launch(where, rows_of_weights(p), p.k, weights, dequantised, stream);
        problem plain = p;
        plain.b = {dequantised};
        gemm<element, Out, gemm_options{.b = matrix_layout::column_major}, Epilogue>::launch(where, plain, epilogue,
                                                                                             stream);
    }

    static void launch(world where, const problem& p, const typename Weights::weight_tile* weights,
                       const Epilogue& epilogue = {}, void* stream = nullptr) {
        require_product(where, p);
        if (p.m == 0 || p.n == 0) return;
        const auto packed = Weights::describe(weights, rows_of_weights(p), p.k);
        if (p.m <= 16 && gemv<8, 1>::can_implement(p.a, p.k)) {
            return p.m <= 8 ? launch_gemv<8>(where, p, packed, {epilogue, 0}, stream)
                            : launch_gemv<16>(where, p, packed, {epilogue, 0}, stream);
        }
        for (int first = 0; first < p.m; first += 32) {
            problem some = p;
            some.m = p.m - first < 32 ? p.m - first : 32;
            some.a.pointer += first * (p.a.stride == 0 ? p.k : p.a.stride);
            some.out.pointer += first * (p.out.stride == 0 ? p.n : p.out.stride);
            launch_rows<32>(where, some, packed, {epilogue, first}, stream);
        }
    }

    // The fused dequantisation GEMM, for numbers of rows for which `fuses`.
    static void launch_fused(world where, const problem& p, const typename Weights::weight_tile* weights,
                             const Epilogue& epilogue = {}, void* stream = nullptr) {
        require_product(where, p);
        require(fuses(p.m), "m: ", p.m, "; the fused dequantisation GEMM takes ", fused_dequantisation_min_m, " to ",
                fused_dequantisation_max_m, " rows");
        if (p.n == 0) return;
        const gemm_dequantising_tile best = choose_dequantising_tile(
            p.m, fused<64, 1>::tile_columns_of(p.n), fused<64, 1>::steps_of(p.k), imbrex::num_sms(where));
        const auto packed = Weights::describe(weights, rows_of_weights(p), p.k);
        const bool alone = best.cluster_size == 1;
        if (best.rows == 64 && alone) return launch_fused_tile<64, 1>(where, p, packed, epilogue, stream);
        if (best.rows == 64) return launch_fused_tile<64, 2>(where, p, packed, epilogue, stream);
        if (best.rows == 128 && alone) return launch_fused_tile<128, 1>(where, p, packed, epilogue, stream);
        if (best.rows == 128) return launch_fused_tile<128, 2>(where, p, packed, epilogue, stream);
        launch_fused_tile<256, 1>(where, p, packed, epilogue, stream);
    }

  private:
    static int rows_of_weights(const problem& p) { return p.n * (epilogue::is_glu<Epilogue> ? 2 : 1); }

    static void require_product(world where, const problem& p) {
        require(p.m >= 0, "m: ", p.m, "; the number of rows must not be negative");
        require(p.n >= 0, "n: ", p.n, "; the number of columns must not be negative");
        require(p.batches == 1, "batches: ", p.batches, "; must be 1 with quantised weights");
        if (p.m == 0 || p.n == 0) return;
        require(can_run<gemv<8, 1>>(where),
                "world: device; products with quantised weights are made for Hopper (sm_90a), and this device or "
                "program is not");
        require(!epilogue::is_glu<Epilogue> || p.n % packed_rows == 0, "n: ", p.n,
                "; gate and up must be a multiple of ", packed_rows, " columns each");
    }

    template <int Rows, int ClusterSize>
    using small_m = gemm_small_m<Weights, Out, epilogue::row_offset<Epilogue>, Rows,
                                 small_m_shape{.cluster_size = ClusterSize, .pdl_prefetch_weights = true}>;

    template <int Rows, int ClusterSize>
    using fused = gemm_dequantising<Weights, Out, Epilogue, Rows, gemm_dequantising_shape{.cluster_size = ClusterSize}>;

    template <int Rows, int ClusterSize>
    static void launch_fused_tile(world where, const problem& p, const typename Weights::argument& packed,
                                  const Epilogue& epilogue, void* stream) {
        using kernel = fused<Rows, ClusterSize>;
        imbrex::launch<kernel>(where, {kernel::blocks_of(p.m, p.n)}, kernel::describe(p, packed, epilogue), stream);
    }

    template <int Rows, int ClusterSize>
    using gemv =
        gemv_kernel<Weights, Out, epilogue::row_offset<Epilogue>, Rows, gemv_shape{.cluster_size = ClusterSize}>;

    // Doubles the cluster size until the SMs are busy, while each warp still has a K step.
    template <int Rows, int ClusterSize = 1>
    static void launch_gemv(world where, const problem& p, const typename Weights::argument& packed,
                            const epilogue::row_offset<Epilogue>& epilogue, void* stream) {
        using kernel = gemv<Rows, ClusterSize>;
        const int sms = imbrex::num_sms(where);
        if constexpr (ClusterSize < 4 && kernel::can_split) {
            if (kernel::tiles_of(p.n) * ClusterSize * 2 <= sms &&
                kernel::steps_of(p.k) >= ClusterSize * 2 * kernel::warps) {
                return launch_gemv<Rows, ClusterSize * 2>(where, p, packed, epilogue, stream);
            }
        }
        imbrex::launch<kernel>(where, {kernel::blocks_of(p.n, sms)}, kernel::describe(p, packed, epilogue), stream);
    }

    template <int Rows>
    static void launch_rows(world where, const problem& p, const typename Weights::argument& packed,
                            const epilogue::row_offset<Epilogue>& epilogue, void* stream) {
        using alone = small_m<Rows, 1>;
        using two = small_m<Rows, 2>;
        const int sms = imbrex::num_sms(where);
        // Dequantisation, unlike reading weights, needs every SM: uses the cluster size of 32 rows.
        constexpr int many_rows = 32;
        if (small_m_cluster_size(many_rows, alone::tiles_of(p.n), alone::steps_of(p.k), sms) > 1) {
            imbrex::launch<two>(where, {two::blocks_of(p.n, sms)}, two::describe(p, packed, epilogue), stream);
        } else {
            imbrex::launch<alone>(where, {alone::blocks_of(p.n, sms)}, alone::describe(p, packed, epilogue), stream);
        }
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
