// Tuning of the Hopper attention kernel: the compile-time decisions that change its speed and not its result, each with
// its measured effect (H200, bf16; docs/lab/attention.md has the measurements). "Faster" compares with the kernel
// without it. Tile shapes and register budgets are in heuristics.hpp.
#pragma once

#include <imbrex/kernels/attention/hopper_softmax.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/shape.hpp>

#include <type_traits>

namespace imbrex {

template <class Mask, class Score, attention_shape Shape, attention_output_mode Mode, int HeadDimV>
struct attention_tuning {
  private:
    static constexpr bool normalised = Mode == attention_output_mode::normalised;
    static constexpr bool full = std::is_same_v<Mask, full_mask>;
    static constexpr bool ranges = mask_has_ranges<Mask>();
    static constexpr bool three_warpgroups = Shape.consumer_warpgroups > 2;
    static constexpr int warpgroup_rows = 64;
    static constexpr int block_m = Shape.consumer_warpgroups * warpgroup_rows;
    // With three warpgroups registers are scarce: lazy rescaling under a mask is possible only if little else is live.
    static constexpr bool may_rescale_lazily = !three_warpgroups || full || (normalised && ranges);

  public:
    // Ping-pong order barrier between the warpgroups: 1 to 6% faster.
    static constexpr bool pingpong = Shape.pingpong;

    // A block may have this many query rows fewer than others: 96 instead of 101 key tiles per head at 2k (causal). With
    // two warpgroups it is not worth the producer's registers.
    static constexpr int block_m_step = three_warpgroups ? warpgroup_rows : block_m;

    // A warpgroup skips the last key tile if only the others see it: head_dim 64 causal, 5, 1, 2% faster at 1k, 2k, 4k.
    // With two warpgroups such tiles are rare.
    static constexpr bool can_skip_last_tile = three_warpgroups && Shape.block_n < block_m && ranges && !full;

    // A warpgroup without queries skips all key tiles of a work tile but one: head_dim 64 full, with block_m_step,
    // 6, 3, 3, 1, 1% faster at 1k to 16k. 3% slower with a mask; rare with two warpgroups.
    static constexpr bool can_idle = three_warpgroups && full;

    // Lazy rescaling, as a power of 2; 0: exact. head_dim 96: 4 to 7% faster, others 0 to 3%.
    static constexpr int rescale_threshold = may_rescale_lazily ? rescale_threshold_of<Mode>(Shape.rescaling) : 0;

    // Lazy rescaling votes before it reduces row maxima across threads. Three warpgroups: 3 to 7% faster; two: 1 to 2%
    // slower.
    static constexpr bool vote_before_row_max = rescale_threshold > 0 && three_warpgroups;

    // Softcap by a tanh polynomial: 12 to 18% faster than tanh if most scores are within half of the cap, and as much
    // slower if many are not. It needs no row maximum, but lazy rescaling.
    static constexpr bool softcap_by_polynomial = score_has_polynomial<Score>() && rescale_threshold > 0;

    // The score_mod runs on all tiles: not a choice, but most of the choices below are slower then.
    static constexpr bool modify_all_tiles = !score_is_identity<Score>() && !softcap_by_polynomial;

    // Partially masked tiles have a loop of their own: the other loop keeps no registers for the mask and waits for no
    // condition (no figure was kept). Where masks or outputs take more instructions, the compiler outlines the doubled
    // body into a function and serialises the WGMMAs (C7510).
    static constexpr bool separate_masked_loop =
        !modify_all_tiles && !softcap_by_polynomial && !full && ranges && normalised;

    // Processes a thread's rows one after the other: 2% faster with two warpgroups and no mask (head_dim 192 and 256:
    // 1 to 4%). 2% slower with a mask, 0 to 5% with three warpgroups.
    static constexpr bool row_by_row =
        Shape.consumer_warpgroups == 2 && full && !modify_all_tiles && !softcap_by_polynomial && normalised;

    // Row maximum by integer comparison: 3% faster with two warpgroups and a mask, 2% with three; up to 4% slower if all
    // scores are negative. 4% slower with a score_mod on all tiles. Lazy rescaling: 3% faster without a mask, up to 13%
    // slower with one.
    static constexpr bool integer_row_max =
        normalised && !modify_all_tiles && !softcap_by_polynomial &&
        (rescale_threshold == 0 ? three_warpgroups || separate_masked_loop || row_by_row : full);

    // Rescales the output without a vote first: head_dim 128 causal 3% faster (with integer_row_max), head_dim 64 1 to
    // 2%. head_dim 256: up to 4% slower; head_dim 96: 2% slower at 8k.
    static constexpr bool rescale_without_vote =
        rescale_threshold == 0 && (three_warpgroups ? HeadDimV <= 64 : separate_masked_loop && HeadDimV <= 128);

    // Where in the softmax to wait for P V: other points take 1 to 8% more cycles. With three warpgroups there is more to
    // overlap, so the wait comes earlier; lazily under a mask no register is left, and it comes after the softmax.
    static constexpr softmax_wait_point wait_point = !three_warpgroups ? softmax_wait_point::in_first_row
                                                     : rescale_threshold > 0 && !full
                                                         ? softmax_wait_point::none
                                                         : softmax_wait_point::after_row_max;
};

}  // namespace imbrex
