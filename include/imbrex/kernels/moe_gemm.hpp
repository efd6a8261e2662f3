// Grouped GEMM over the experts of a mixture-of-experts layer, in one launch.
//
//     // gate and up: the tokens' rows are gathered in the load; SwiGLU with biases in the epilogue
//     moe_gemm<bf16, bf16, moe_rows::gathered, glu>::launch(
//         world::device, {.n = ffn, .k = hidden, .routing = routing, .a = {x}, .b = {w1}, .out = {h}}, epilogue, stream);
//     // down: the rows are sorted already
//     moe_gemm<bf16, bf16, moe_rows::sorted>::launch(
//         world::device, {.n = hidden, .k = ffn, .routing = routing, .a = {h}, .b = {w2}, .out = {y}}, {}, stream);
//     moe_combine<bf16>::launch(...)                      // kernels/moe_combine.hpp
//
// The routing comes from kernels/moe_router.hpp, with tile_rows 128, or 64 for experts with few rows. Empty and uneven experts cost what their tiles cost:
// the kernel reads from device memory how many there are. Epilogues are those of gemm.hpp; `batch` of their coordinate is
// the expert, so a bias of [experts, n] has batch_stride n, and rows are sorted rows. bf16, fp16 and e4m3 on Hopper; e4m3
// promotes its sums, or takes block scales: the mainloops of gemm.hpp, and promoted_with_gathered_block_scales. No launch
// allocates memory or synchronises, so launches can be captured in a CUDA graph. Invalid arguments throw imbrex::error.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/extension_points.hpp>
#include <imbrex/kernels/gemm/mainloop.hpp>
#include <imbrex/kernels/gemm/shape.hpp>
#include <imbrex/kernels/moe_gemm/gathered_block_scales.hpp>
#include <imbrex/kernels/moe_gemm/hopper.hpp>
#include <imbrex/kernels/moe_gemm/problem.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

inline namespace IMBREX_WORLDS {

// As many blocks as are resident at once, fewer if there are certainly fewer tiles.
template <class Kernel>
void launch_moe_tiles(world where, const moe_sizes& sizes, const typename Kernel::arguments& arguments, void* stream) {
    const std::int64_t tiles = std::int64_t{sizes.max_tiles()} * arguments.tile_columns;
    require(tiles <= 2147483647, "n: ", arguments.out_view.columns(), "; with ", sizes.max_tiles(),
            " tiles of rows, there are ", tiles, " tiles; there must be at most 2147483647");
    const int blocks = static_cast<int>(std::min<std::int64_t>(tiles, imbrex::num_sms(where)));
    imbrex::launch<Kernel>(where, {blocks}, arguments, stream);
}

template <class In, class Out, moe_rows Rows, class Epilogue = epilogue::identity,
          class Mainloop = default_mainloop<In>>
class moe_gemm {
    static_assert(sizeof(In) == 2 || std::is_same_v<In, e4m3>,
                  "imbrex: the operands of moe_gemm are bf16, fp16 or e4m3");
    static_assert(detail::check_gemm_epilogue<Epilogue>());
    static_assert(detail::check_gemm_mainloop<Mainloop>());

  public:
    using problem = moe_gemm_problem<In, Out>;
    static constexpr bool in_place = std::is_same_v<Mainloop, accumulate_in_place>;
    // A promoted accumulator is in registers three times.
    static constexpr gemm_shape shape{.block_n = in_place ? 256 : 128,
                                      .block_k = 128 / static_cast<int>(sizeof(In)),
                                      .stages = in_place ? 4 : 6,
                                      .cluster = 1};
    template <int BlockM>
    using kernel = moe_gemm_hopper<In, Out, Rows, Epilogue, BlockM, shape, Mainloop>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, const Epilogue& epilogue = {}, void* stream = nullptr,
                       const Mainloop& mainloop = {}) {
        [[maybe_unused]] const typename kernel<128>::views refused_here_if_wrong(p);
        if (p.routing.sizes.tokens == 0 || p.n == 0) return;
        if constexpr (requires { mainloop.require_valid(p); }) mainloop.require_valid(p);
        if (p.routing.sizes.tile_rows == 64) {
            launch_moe_tiles<kernel<64>>(where, p.routing.sizes, kernel<64>::describe(p, epilogue, mainloop), stream);
        } else {
            launch_moe_tiles<kernel<128>>(where, p.routing.sizes, kernel<128>::describe(p, epilogue, mainloop), stream);
        }
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
