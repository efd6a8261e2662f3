// Attention in one call: O = softmax(mask(score(Q K^T))) V, with the base-2 logarithm of each row's sum of exponentials.
//
//     using attention = attention_forward<bf16, causal_mask>;
//     attention_problem<bf16> p{.q = batch_sequence_head(q, batches, queries, heads, depth),
//                               .k = batch_sequence_head(k, batches, keys, key_heads, depth),
//                               .v = batch_sequence_head(v, batches, keys, key_heads, depth),
//                               .out = batch_sequence_head(out, batches, queries, heads, depth)};
//     attention::launch(world::device, p, {}, {}, stream);
//
// Keys and values may also lie in pages that a table names (attention_keys::in_pages, see attention/problem.hpp). Who wants the last
// percents of speed for a little more rounding says so (attention_softmax::relaxed, see attention/result.hpp).
//
// A view is a pointer, extents and distances (attention/views.hpp). Heads of queries are any multiple of those of keys, which
// neighbours share. A row that sees no key gives 0, and a logarithm of -infinity. The kernel is chosen from the depths and
// distances (attention/choice.hpp). Nothing is allocated and nothing waited for, so that a launch can be captured in a CUDA
// graph. What is refused is refused before anything is launched.
//
// NaN and infinity in keys that a query does not see change nothing for it, nor what lies behind the end of a sequence in keys and
// values. Values inside a sequence are multiplied with a weight of zero where a mask hides them, and must be finite.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/ampere.hpp>
#include <imbrex/kernels/attention/choice.hpp>
#include <imbrex/kernels/attention/dealing.hpp>
#include <imbrex/kernels/attention/hopper.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/views.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Mask = full_mask, class Score = plain_score,
          attention_result Result = attention_result::normalised, class Tiles = all_attention_tiles,
          attention_keys Keys = attention_keys::in_rows, attention_softmax Softmax = attention_softmax::exact>
class attention_forward {
  public:
    using problem = attention_problem<In, Result>;

    static attention_kernel choice(world where, const problem& p) {
        require_attention(where, p, Keys);
        attention_kernel chosen{};
        for_tile(p, [&]<attention_depths Depths>() { chosen = choose_attention(situation<Depths>(where, p)); });
        return chosen;
    }

    static void launch(world where, const problem& p, const Mask& mask = {}, const Score& score = {},
                       void* stream = nullptr) {
        require_attention(where, p, Keys);
        for_tile(p, [&]<attention_depths Depths>() {
            if (p.empty()) return;
            if (choose_attention(situation<Depths>(where, p)) == attention_kernel::hopper) {
                launch_hopper<Depths>(where, p, mask, score, stream);
            } else {
                launch_ampere<Depths>(where, p, mask, score, stream);
            }
        });
    }

  private:
    static constexpr bool normalised = Result == attention_result::normalised;
    static constexpr bool paged = Keys == attention_keys::in_pages;
    using lengths = std::conditional_t<paged, paged_lengths, attention_lengths>;
    template <attention_depths Depths>
    using hopper = attention_hopper<In, Depths.key, Depths.value, Mask, Score,
                                    attention_shape_for(Depths, attention_demand_of<Mask, Score, Result>(), Softmax),
                                    Result, lengths>;
    template <attention_depths Depths>
    using ampere =
        attention_ampere<In, Depths.key, Depths.value, Mask, Score,
                         attention_ampere_shape_for(Depths.key, Depths.value, score_changes_nothing<Score>()), Result,
                         lengths>;

    template <class Call>
    static void for_tile(const problem& p, const Call& call) {
        const int number = Tiles::number_for({p.key_depth(), p.value_depth()});
        require(number < Tiles::count, "q.extents[3], v.extents[3]: ", p.key_depth(), ", ", p.value_depth(),
                "; this attention has kernels of ", Tiles::text());
        Tiles::visit(number, call);
    }

    template <attention_depths Depths>
    static attention_situation situation(world where, const problem& p) {
        const bool can_copy =
            engine_can_copy(p.q) && engine_can_copy(p.k) && engine_can_copy(p.v) && engine_can_copy(p.out);
        const bool no_page = paged && p.k.extents[0] == 0;
        return {can_run<hopper<Depths>>(where), can_copy, no_page ? 0 : p.keys(Keys)};
    }

    // What the arguments of both kernels have. `processors`: among which blocks are dealt out in turn; 1 if they are not.
    template <class Kernel>
    static typename Kernel::arguments arguments_of(const problem& p, const Mask& mask, const Score& score,
                                                   int processors) {
        typename Kernel::arguments made{};
        made.mask = mask;
        made.score = score;
        made.scale = p.scale_used();
        made.factor = factor_after(score, made.scale);
        made.heads_per_key_head = p.heads() / p.key_heads();
        made.sinks = p.sinks;
        made.outputs.log2_sums = p.log2_sums;
        made.outputs.largest = p.largest;
        made.outputs.sums = p.sums;
        if constexpr (!normalised) made.outputs.wide = p.out;
        made.lengths.queries = p.queries();
        made.lengths.keys = p.keys(Keys);
        made.lengths.key_lengths = p.key_lengths;
        made.lengths.query_starts = p.packed.query_starts;
        made.lengths.key_starts = p.packed.key_starts;
        if constexpr (paged) {
            made.lengths.table = p.pages.table;
            made.lengths.pages_per_sequence = p.pages.pages_per_sequence;
            made.lengths.page_rows = p.k.rows();
        }
        const int blocks = p.packed.given() ? attention_order::packed_blocks(p.queries(), p.packed.count, Kernel::rows)
                                            : (p.queries() + Kernel::rows - 1) / Kernel::rows;
        const std::int64_t all = std::int64_t{blocks} * p.heads() * (p.packed.given() ? 1 : p.batches());
        require(all <= 2147483647, "q: ", p.batches(), " x ", p.heads(), " x ", p.queries(), " queries make ", all,
                " blocks; there may be at most 2147483647");
        const double key_and_value_bytes = static_cast<double>(sizeof(In)) * p.batches() * p.key_heads() *
                                           p.keys(Keys) * (p.key_depth() + p.value_depth());
        made.order = {p.batches(), p.heads(), blocks, 0};
        if (!p.packed.given()) {
            const attention_blocks one{Kernel::rows, Kernel::part_rows, Kernel::columns, Kernel::can_rest};
            const auto costs = attention_costs(one, p.queries(), p.keys(Keys), mask);
            made.order.sections = attention_sections(costs, p.batches() * p.heads(), key_and_value_bytes, processors);
        }
        return made;
    }

    template <attention_depths Depths>
    static void launch_hopper(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        using kernel = hopper<Depths>;
        const int processors = processors_of(where);
        auto arguments = arguments_of<kernel>(p, mask, score, processors);
        arguments.q = tensor_of<typename kernel::q_tile>(for_engine(p.q));
        const int part = paged ? std::gcd(p.k.rows(), kernel::columns) : kernel::columns;
        arguments.k = tensor_of<typename kernel::k_tile>(for_engine(p.k), tensor_use::load, part);
        arguments.v = tensor_of<typename kernel::v_tile>(for_engine(p.v), tensor_use::load, part);
        if constexpr (normalised) {
            arguments.out_view = p.out;
            arguments.out = tensor_of<typename kernel::out_tile>(for_engine(p.out), tensor_use::store);
        }
        arguments.counter = p.work_counter;
        const int blocks = arguments.order.total(arguments.lengths);
        imbrex::launch<kernel>(where, {std::min(blocks, processors)}, arguments, stream);
    }

    template <attention_depths Depths>
    static void launch_ampere(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        using kernel = ampere<Depths>;
        require(
            can_run<kernel>(where), "world: ", name_of(where),
            "; the program has no attention kernel for this device, or none for tensors that the copy engine cannot "
            "read, the distances in which are not multiples of 16 bytes");
        auto arguments = arguments_of<kernel>(p, mask, score, 1);
        arguments.q = p.q;
        arguments.k = p.k;
        arguments.v = p.v;
        if constexpr (normalised) arguments.out = p.out;
        imbrex::launch<kernel>(where, {arguments.order.total(arguments.lengths)}, arguments, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
