// GEMM in one call: D = epilogue(A B); a single product, a batched GEMM, or a grouped GEMM over a host list of
// problems. This launcher validates the problem, picks a kernel from its sizes (gemm/heuristics.hpp) and launches it.
//
//     using product = gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major}>;
//     gemm_problem<bf16, bf16> p{m, n, k, {a}, {b}, {d}};
//     product::launch(world::device, p, {}, stream);
//
// No launch allocates memory or synchronizes, and no kernel needs a workspace, so launches can be captured in a CUDA
// graph. Split-K partial sums stay in distributed shared memory (cluster split-K); there is no stream-K. Invalid
// arguments throw imbrex::error before launch.
//
// A small-M GEMM is bound by memory bandwidth. If no kernel in the stream writes B, `pdl_prefetch::weights` uses PDL
// (programmatic dependent launch) to read the weights while the previous kernel still runs, provided that kernel
// triggers its dependents early, as these kernels do. Up to 8 rows then use a GEMV (skinny GEMM) kernel built for
// chains of such launches (gemm/gemv_16bit.hpp). Trap: the kernel after it may start before the kernels ahead of it in
// the stream have finished, so they must not write anything it reads before its own pdl_wait either.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/ampere.hpp>
#include <imbrex/kernels/gemm/cluster_split_k.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/extension_points.hpp>
#include <imbrex/kernels/gemm/gemv_16bit.hpp>
#include <imbrex/kernels/gemm/heuristics.hpp>
#include <imbrex/kernels/gemm/hopper.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/kernels/gemm/small_m.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Out, gemm_options Options = gemm_options{}, class Epilogue = epilogue::identity,
          class Mainloop = default_mainloop<In>>
class gemm {
    static_assert(detail::check_gemm_epilogue<Epilogue>());
    static_assert(detail::check_gemm_mainloop<Mainloop>());

  public:
    using problem = gemm_problem<In, Out>;
    static constexpr bool is_glu = epilogue::is_glu<Epilogue>;
    static constexpr int problems_per_launch = 24;  // kernel-argument capacity of a grouped GEMM

    static gemm_kernel_kind choice(world where, const problem& p) {
        return choose_gemm_kernel(heuristic_inputs(where, p));
    }

    // Bytes of device workspace that a launch needs: always 0.
    static std::size_t workspace_bytes(world, const problem&) { return 0; }

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, const Epilogue& epilogue = {}, void* stream = nullptr,
                       const Mainloop& mainloop = {}) {
        const views all(p);
        if (empty(p)) return;
        const gemm_kernel_kind kernel = choice(where, p);
        if constexpr (hopper_supported) {
            if (kernel == gemm_kernel_kind::hopper_wide_tile)
                return launch_hopper<wide>(where, p, epilogue, mainloop, stream);
            if constexpr (narrow_tile_supported) {
                if (kernel == gemm_kernel_kind::hopper_narrow_tile)
                    return launch_hopper<narrow>(where, p, epilogue, mainloop, stream);
            }
        }
        if constexpr (gemv_eligible) {
            if (kernel == gemm_kernel_kind::gemv) return gemv::launch(where, p, epilogue, {}, stream);
        }
        if constexpr (small_m_supported) {
            if (kernel == gemm_kernel_kind::small_m_16) return launch_small_m<16>(where, p, epilogue, stream);
            if (kernel == gemm_kernel_kind::small_m_64) return launch_small_m<64>(where, p, epilogue, stream);
            if (kernel == gemm_kernel_kind::cluster_split_k) return launch_cluster_split_k(where, p, epilogue, stream);
        }
        launch_ampere(where, p, all, epilogue, stream);
    }

    // The same for `launch_grouped`.
    static std::optional<hazard> check_grouped(const std::vector<problem>& problems,
                                               const std::vector<Epilogue>& epilogues,
                                               const host::check_options& options = {}) {
        return host::check_launches([&] { launch_grouped(world::host_checked, problems, epilogues); }, options);
    }

    // Grouped GEMM: problems of any sizes, for example the experts of an MoE layer, in as few launches as possible.
    static void launch_grouped(world where, const std::vector<problem>& problems,
                               const std::vector<Epilogue>& epilogues, void* stream = nullptr) {
        require(problems.size() == epilogues.size(), "epilogues: ", epilogues.size(),
                "; there must be one for each of ", problems.size(), " problems");
        for (const problem& p : problems) {
            [[maybe_unused]] const views refused_here_if_wrong(p);
        }
        typename grouped::arguments together{};
        const auto flush = [&] {
            if (together.count > 0) launch_tiles<grouped>(where, together, stream);
            together.count = 0;
        };
        for (std::size_t i = 0; i < problems.size(); ++i) {
            if (empty(problems[i])) continue;
            if (choice(where, problems[i]) == gemm_kernel_kind::ampere_class) {
                launch_ampere(where, problems[i], views(problems[i]), epilogues[i], stream);
                continue;
            }
            together.problems[together.count++] = grouped::describe(problems[i], epilogues[i]);
            if (together.count == problems_per_launch) flush();
        }
        flush();
    }

  private:
    static constexpr matrix_layout A = Options.a;
    static constexpr matrix_layout B = Options.b;
    using views = gemm_views<In, Out, A, B, is_glu>;
    static constexpr bool half = sizeof(In) == 2;
    static constexpr bool hopper_supported =
        half || (std::is_same_v<In, e4m3> && A == matrix_layout::row_major && B == matrix_layout::column_major);
    static constexpr bool small_m_supported = half && A == matrix_layout::row_major;
    static constexpr bool in_place = std::is_same_v<Mainloop, accumulate_in_place>;
    static constexpr bool narrow_tile_supported = !is_glu && in_place;
    static_assert(!is_glu || in_place, "imbrex: a GLU epilogue requires accumulate_in_place");

    // One mainloop step covers 128 bytes of K: one row of a 128-byte swizzled tile.
    static constexpr int block_k = 128 / static_cast<int>(sizeof(In));
    static constexpr gemm_shape wide_shape{.block_n = 256, .block_k = block_k, .stages = 4, .cluster = 1};
    static constexpr gemm_shape narrow_shape{.block_n = 128, .block_k = block_k, .stages = 6, .cluster = 1};
    static constexpr gemm_shape grouped_shape = is_glu ? wide_shape : narrow_shape;
    using wide = gemm_hopper<In, Out, Epilogue, A, B, in_place ? wide_shape : narrow_shape, Mainloop>;
    using narrow = gemm_hopper<In, Out, Epilogue, A, B, narrow_shape, Mainloop>;
    using grouped = gemm_hopper<In, Out, Epilogue, A, B, grouped_shape, Mainloop, problems_per_launch>;
    using ampere = gemm_ampere<In, Out, Epilogue, A, B>;
    using short_tile_ampere = gemm_ampere<In, Out, Epilogue, A, B, short_tile_ampere_shape>;
    // With more than 16 rows and clusters, prefetching the weights measured slower.
    static constexpr bool prefetch_requested = Options.prefetch == pdl_prefetch::weights;
    static constexpr bool gemv_eligible = prefetch_requested && small_m_supported && B == matrix_layout::column_major;
    using gemv = gemv_16bit<In, Out, Epilogue>;
    template <int Rows>
    static constexpr bool prefetches_weights = prefetch_requested && (Rows <= 16);
    template <int Rows, int ClusterSize>
    using small_m =
        gemm_small_m<unquantised_tma_weights<In, B>, Out, Epilogue, Rows,
                     small_m_shape{.cluster_size = ClusterSize, .pdl_prefetch_weights = prefetches_weights<Rows>}>;
    template <int ClusterSize>
    using cluster_split_k =
        gemm_cluster_split_k<In, Out, Epilogue, B, cluster_split_k_shape{.cluster_size = ClusterSize}>;

    static bool empty(const problem& p) { return p.m == 0 || p.n == 0 || p.batches == 0; }

    static gemm_heuristic_inputs heuristic_inputs(world where, const problem& p) {
        const views all(p);
        bool hopper = false;
        if constexpr (hopper_supported) hopper = can_run<wide>(where);
        bool gemv_fits = false;
        if constexpr (gemv_eligible) gemv_fits = gemv::can_implement(p);
        return {.m = p.m,
                .n = p.n * (is_glu ? 2 : 1),
                .k = p.k,
                .batches = p.batches,
                .num_sms = imbrex::num_sms(where),
                .hopper = hopper,
                .tma_can_read = tma_can_read(all.a) && tma_can_read(all.b),
                .small_m_supported = small_m_supported,
                .narrow_tile_supported = narrow_tile_supported,
                .gemv_supported = gemv_fits};
    }

    static bool tma_can_read(const gemm_view<const In>& view) {
        const auto is_16_byte_multiple = [](std::int64_t elements) {
            return elements * static_cast<int>(sizeof(In)) % 16 == 0;
        };
        return is_16_byte_multiple(view.strides[1]) && (view.extents[0] == 1 || is_16_byte_multiple(view.strides[0])) &&
               reinterpret_cast<std::uintptr_t>(view.pointer) % 16 == 0;
    }

    // Persistent kernel: at most as many blocks as are resident at once, fewer if there are fewer tiles.
    template <class Kernel>
    static void launch_tiles(world where, const typename Kernel::arguments& arguments, void* stream) {
        std::int64_t blocks = 0;
        for (int i = 0; i < arguments.count; ++i) {
            blocks += std::int64_t{arguments.problems[i].cluster_tiles()} * Kernel::cluster;
        }
        const int max_blocks = imbrex::num_sms(where) / Kernel::cluster * Kernel::cluster;
        const int min_blocks = Kernel::cluster;
        imbrex::launch<Kernel>(where,
                               {static_cast<int>(blocks < max_blocks       ? blocks
                                                 : max_blocks < min_blocks ? min_blocks
                                                                           : max_blocks)},
                               arguments, stream);
    }

    template <class Kernel>
    static void launch_hopper(world where, const problem& p, const Epilogue& epilogue, const Mainloop& mainloop,
                              void* stream) {
        launch_tiles<Kernel>(where, {{Kernel::describe(p, epilogue, mainloop)}, 1}, stream);
    }

    static void launch_ampere(world where, const problem& p, const views& all, const Epilogue& epilogue, void* stream) {
        if constexpr (Options.targets == kernel_targets::hopper) {
            require(
                false, "m, n, k: ", p.m, ", ", p.n, ", ", p.k,
                "; kernel_targets::hopper needs sm_90a, k of at least 1 and rows that are multiples of 16 bytes apart");
        } else if constexpr (std::is_same_v<In, e4m3>) {
            require(false, "m, n, k: ", p.m, ", ", p.n, ", ", p.k, " with rows of A ", all.a.strides[1], " and of B ",
                    all.b.strides[1],
                    " elements apart; e4m3 requires Hopper, k of at least 1 and row strides that are multiples of 16");
        } else {
            if (gemm_prefers_short_tiles(heuristic_inputs(where, p))) {
                launch_ampere_as<short_tile_ampere>(where, p, all, epilogue, stream);
            } else {
                launch_ampere_as<ampere>(where, p, all, epilogue, stream);
            }
        }
    }
    template <class Kernel>
    static void launch_ampere_as(world where, const problem& p, const views& all, const Epilogue& epilogue,
                                 void* stream) {
        const int tile_rows = ceil_div(p.m, Kernel::block_m);
        const int tile_columns = ceil_div(p.n, Kernel::block_n);
        const int steps = ceil_div(p.k, Kernel::block_k);
        const std::int64_t tiles = std::int64_t{tile_rows} * tile_columns * p.batches;
        require(tiles <= 2147483647, "m, n, batches: ", p.m, ", ", p.n, ", ", p.batches, " make ", tiles,
                " tiles; a grid has at most 2147483647 blocks");
        imbrex::launch<Kernel>(where, {static_cast<int>(tiles)},
                               {all.a, all.b, all.out, epilogue, tile_rows, tile_columns, steps, p.batches}, stream);
    }

    template <int Rows>
    static void launch_small_m(world where, const problem& p, const Epilogue& epilogue, void* stream) {
        using alone = small_m<Rows, 1>;
        const int cluster_size =
            small_m_cluster_size(Rows, alone::tiles_of(p.n), alone::steps_of(p.k), imbrex::num_sms(where));
        const auto launch_with = [&]<int ClusterSize>(std::integral_constant<int, ClusterSize>) {
            using kernel = small_m<Rows, ClusterSize>;
            const auto weights = unquantised_tma_weights<In, B>::describe(p.b, p.n * (is_glu ? 2 : 1), p.k);
            imbrex::launch<kernel>(where, {kernel::blocks_of(p.n, imbrex::num_sms(where))},
                                   kernel::describe(p, weights, epilogue), stream);
        };
        if constexpr (Rows <= 16) {
            if (cluster_size == 4) return launch_with(std::integral_constant<int, 4>{});
        }
        if (cluster_size > 1) return launch_with(std::integral_constant<int, 2>{});
        launch_with(std::integral_constant<int, 1>{});
    }

    static void launch_cluster_split_k(world where, const problem& p, const Epilogue& epilogue, void* stream) {
        using alone = cluster_split_k<1>;
        const int tiles = alone::tiles_of(p.n), sms = imbrex::num_sms(where);
        const auto launch_with = [&]<int ClusterSize>(std::integral_constant<int, ClusterSize>) {
            using kernel = cluster_split_k<ClusterSize>;
            imbrex::launch<kernel>(where, {small_m_grid_blocks(tiles, ClusterSize, sms)}, kernel::describe(p, epilogue),
                                   stream);
        };
        if (small_m_cluster_size(alone::block_m, tiles, alone::steps_of(p.k), sms) > 1) {
            return launch_with(std::integral_constant<int, 2>{});
        }
        launch_with(std::integral_constant<int, 1>{});
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
