// Matrix products in one call: D = epilogue(A B), batched, or a list of them.
//
//     using product = gemm<bf16, bf16, plain_product, stored::normal, stored::transposed>;
//     gemm_problem<bf16, bf16> p{m, n, k, {a}, {b}, {d}};
//     product::launch(world::device, p, {}, stream);
//
// The kernel is chosen from the sizes (gemm/choice.hpp). Nothing is allocated and nothing waited for, and no kernel needs a
// workspace, so that a launch can be captured in a CUDA graph. What is refused is refused before anything is launched.
//
// Products of few rows wait for memory alone. Where B are weights that no kernel writes, `right_operand::constant_weights` lets
// them begin to read before the kernel before them in the stream has ended, if that one allows it, as these products do; and up to
// 8 rows take a kernel that is made for chains of them (gemm/plain_stream.hpp). The next kernel may then begin before those before
// this one have ended: what it reads early must not be written by them either.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/ampere.hpp>
#include <imbrex/kernels/gemm/choice.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/few_rows.hpp>
#include <imbrex/kernels/gemm/hopper.hpp>
#include <imbrex/kernels/gemm/plain_stream.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/kernels/gemm/shared_depth.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace imbrex {

// Sums of 8-bit floats are promoted; who is content with what the tensor cores keep says accumulate_in_place.
template <class In>
using default_mainloop = std::conditional_t<std::is_same_v<In, e4m3>, promoted, accumulate_in_place>;

inline namespace IMBREX_WORLDS {

template <class In, class Out, class Epilogue = plain_product, stored A = stored::normal, stored B = stored::normal,
          right_operand Right = right_operand::any, class Mainloop = default_mainloop<In>>
class gemm {
  public:
    using problem = gemm_problem<In, Out>;
    static constexpr bool gated = is_gated<Epilogue>;
    static constexpr int list_length = 24;  // problems in one launch

    static gemm_kernel choice(world where, const problem& p) { return choose_gemm(situation(where, p)); }

    // Bytes of device memory that a launch needs beside the matrices: none. Sums that blocks share stay inside the chip.
    static std::size_t workspace_bytes(world, const problem&) { return 0; }

    static void launch(world where, const problem& p, const Epilogue& epilogue = {}, void* stream = nullptr,
                       const Mainloop& mainloop = {}) {
        const views all(p);
        if (empty(p)) return;
        const gemm_kernel kernel = choice(where, p);
        if constexpr (hopper_can_do) {
            if (kernel == gemm_kernel::wide) return launch_hopper<wide>(where, p, epilogue, mainloop, stream);
            if constexpr (narrow_can_do) {
                if (kernel == gemm_kernel::narrow) return launch_hopper<narrow>(where, p, epilogue, mainloop, stream);
            }
        }
        if constexpr (can_stream) {
            if (kernel == gemm_kernel::weight_stream) return stream_of_weights::launch(where, p, epilogue, {}, stream);
        }
        if constexpr (few_rows_can_do) {
            if (kernel == gemm_kernel::few_rows_16) return launch_few_rows<16>(where, p, epilogue, stream);
            if (kernel == gemm_kernel::few_rows_64) return launch_few_rows<64>(where, p, epilogue, stream);
            if (kernel == gemm_kernel::shared_depth) return launch_shared_depth(where, p, epilogue, stream);
        }
        launch_ampere(where, p, all, epilogue, stream);
    }

    // Problems of any sizes, as a mixture of experts has them: as few launches as can be.
    static void launch_list(world where, const std::vector<problem>& problems, const std::vector<Epilogue>& epilogues,
                            void* stream = nullptr) {
        require(problems.size() == epilogues.size(), "epilogues: ", epilogues.size(), " of them for ", problems.size(),
                " problems; each needs its own");
        for (const problem& p : problems) {
            [[maybe_unused]] const views refused_here_if_wrong(p);
        }
        typename listed::arguments together{};
        const auto send = [&] {
            if (together.count > 0) launch_tiles<listed>(where, together, stream);
            together.count = 0;
        };
        for (std::size_t i = 0; i < problems.size(); ++i) {
            if (empty(problems[i])) continue;
            if (choice(where, problems[i]) == gemm_kernel::ampere_class) {
                launch_ampere(where, problems[i], views(problems[i]), epilogues[i], stream);
                continue;
            }
            together.problems[together.count++] = listed::describe(problems[i], epilogues[i]);
            if (together.count == list_length) send();
        }
        send();
    }

  private:
    using views = gemm_views<In, Out, A, B, gated>;
    static constexpr bool half = sizeof(In) == 2;
    static constexpr bool hopper_can_do =
        half || (std::is_same_v<In, e4m3> && A == stored::normal && B == stored::transposed);
    static constexpr bool few_rows_can_do = half && A == stored::normal;
    static constexpr bool in_place = std::is_same_v<Mainloop, accumulate_in_place>;
    static constexpr bool narrow_can_do = !gated && in_place;
    static_assert(!gated || in_place, "imbrex: a gated product is summed in place (accumulate_in_place)");

    // A step of K is 128 bytes.
    static constexpr int depth = 128 / static_cast<int>(sizeof(In));
    static constexpr gemm_shape wide_shape{.columns = 256, .depth = depth, .stages = 4, .cluster = 1};
    static constexpr gemm_shape narrow_shape{.columns = 128, .depth = depth, .stages = 6, .cluster = 1};
    static constexpr gemm_shape list_shape = gated ? wide_shape : narrow_shape;
    using wide = gemm_hopper<In, Out, Epilogue, A, B, in_place ? wide_shape : narrow_shape, Mainloop>;
    using narrow = gemm_hopper<In, Out, Epilogue, A, B, narrow_shape, Mainloop>;
    using listed = gemm_hopper<In, Out, Epilogue, A, B, list_shape, Mainloop, list_length>;
    using ampere = gemm_ampere<In, Out, Epilogue, A, B>;
    using low_ampere = gemm_ampere<In, Out, Epilogue, A, B, low_ampere_shape>;
    // With more rows, in clusters, it was measured to be slower.
    static constexpr bool constant_weights = Right == right_operand::constant_weights;
    static constexpr bool can_stream = constant_weights && few_rows_can_do && B == stored::transposed;
    using stream_of_weights = plain_stream<In, Out, Epilogue>;
    template <int Rows>
    static constexpr bool reads_early = constant_weights && (Rows <= 16);
    template <int Rows, int Sharers>
    using few_rows = gemm_few_rows<weights_as_stored<In, B>, Out, Epilogue, Rows,
                                   few_rows_shape{.sharers = Sharers, .early = reads_early<Rows>}>;
    template <int Sharers>
    using shared_depth = gemm_shared_depth<In, Out, Epilogue, B, shared_depth_shape{.sharers = Sharers}>;

    static bool empty(const problem& p) { return p.m == 0 || p.n == 0 || p.batches == 0; }

    static gemm_situation situation(world where, const problem& p) {
        const views all(p);
        bool hopper = false;
        if constexpr (hopper_can_do) hopper = can_run<wide>(where);
        bool streams = false;
        if constexpr (can_stream) streams = stream_of_weights::can_take(p);
        return {.m = p.m,
                .n = p.n * (gated ? 2 : 1),
                .k = p.k,
                .batches = p.batches,
                .processors = processors_of(where),
                .hopper = hopper,
                .engine_can_read = engine_can_read(all.a) && engine_can_read(all.b),
                .few_rows_can_do = few_rows_can_do,
                .narrow_can_do = narrow_can_do,
                .weights_can_stream = streams};
    }

    static bool engine_can_read(const gemm_view<const In>& view) {
        const auto whole_chunks = [](std::int64_t elements) {
            return elements * static_cast<int>(sizeof(In)) % 16 == 0;
        };
        return whole_chunks(view.strides[1]) && (view.extents[0] == 1 || whole_chunks(view.strides[0])) &&
               reinterpret_cast<std::uintptr_t>(view.pointer) % 16 == 0;
    }

    // As many blocks as work at the same time, or fewer if there is less to do.
    template <class Kernel>
    static void launch_tiles(world where, const typename Kernel::arguments& arguments, void* stream) {
        std::int64_t blocks = 0;
        for (int i = 0; i < arguments.count; ++i) {
            blocks += std::int64_t{arguments.problems[i].cluster_tiles()} * Kernel::cluster;
        }
        const int most = processors_of(where) / Kernel::cluster * Kernel::cluster;
        const int least = Kernel::cluster;
        imbrex::launch<Kernel>(where,
                               {static_cast<int>(blocks < most  ? blocks
                                                 : most < least ? least
                                                                : most)},
                               arguments, stream);
    }

    template <class Kernel>
    static void launch_hopper(world where, const problem& p, const Epilogue& epilogue, const Mainloop& mainloop,
                              void* stream) {
        launch_tiles<Kernel>(where, {{Kernel::describe(p, epilogue, mainloop)}, 1}, stream);
    }

    static void launch_ampere(world where, const problem& p, const views& all, const Epilogue& epilogue, void* stream) {
        if constexpr (std::is_same_v<In, e4m3>) {
            require(false, "m, n, k: ", p.m, ", ", p.n, ", ", p.k, " with rows of A ", all.a.strides[1], " and of B ",
                    all.b.strides[1],
                    " elements apart; e4m3 is multiplied on Hopper, with k at least 1 and rows a multiple of 16 apart");
        } else {
            if (gemm_wants_low_tiles(situation(where, p))) {
                launch_ampere_as<low_ampere>(where, p, all, epilogue, stream);
            } else {
                launch_ampere_as<ampere>(where, p, all, epilogue, stream);
            }
        }
    }
    template <class Kernel>
    static void launch_ampere_as(world where, const problem& p, const views& all, const Epilogue& epilogue,
                                 void* stream) {
        const int tile_rows = (p.m + Kernel::rows - 1) / Kernel::rows;
        const int tile_columns = (p.n + Kernel::columns - 1) / Kernel::columns;
        const int steps = (p.k + Kernel::depth - 1) / Kernel::depth;
        const std::int64_t tiles = std::int64_t{tile_rows} * tile_columns * p.batches;
        require(tiles <= 2147483647, "m, n, batches: ", p.m, ", ", p.n, ", ", p.batches, " make ", tiles,
                " tiles; a grid has at most 2147483647 blocks");
        imbrex::launch<Kernel>(where, {static_cast<int>(tiles)},
                               {all.a, all.b, all.out, epilogue, tile_rows, tile_columns, steps, p.batches}, stream);
    }

    template <int Rows>
    static void launch_few_rows(world where, const problem& p, const Epilogue& epilogue, void* stream) {
        using alone = few_rows<Rows, 1>;
        const int sharers = few_rows_sharers(Rows, alone::tiles_of(p.n), alone::steps_of(p.k), processors_of(where));
        const auto launch_with = [&]<int Sharers>(std::integral_constant<int, Sharers>) {
            using kernel = few_rows<Rows, Sharers>;
            const auto weights = weights_as_stored<In, B>::describe(p.b, p.n * (gated ? 2 : 1), p.k);
            imbrex::launch<kernel>(where, {kernel::blocks_of(p.n, processors_of(where))},
                                   kernel::describe(p, weights, epilogue), stream);
        };
        if constexpr (Rows <= 16) {
            if (sharers == 4) return launch_with(std::integral_constant<int, 4>{});
        }
        if (sharers > 1) return launch_with(std::integral_constant<int, 2>{});
        launch_with(std::integral_constant<int, 1>{});
    }

    static void launch_shared_depth(world where, const problem& p, const Epilogue& epilogue, void* stream) {
        using alone = shared_depth<1>;
        const int tiles = alone::tiles_of(p.n), processors = processors_of(where);
        const auto launch_with = [&]<int Sharers>(std::integral_constant<int, Sharers>) {
            using kernel = shared_depth<Sharers>;
            imbrex::launch<kernel>(where, {few_rows_blocks(tiles, Sharers, processors)}, kernel::describe(p, epilogue),
                                   stream);
        };
        if (few_rows_sharers(alone::rows, tiles, alone::steps_of(p.k), processors) > 1) {
            return launch_with(std::integral_constant<int, 2>{});
        }
        launch_with(std::integral_constant<int, 1>{});
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
