// paged_decode behind a plain function (../variant.hpp).
#pragma once

#include "../calls/paged_decode.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/paged_decode.hpp>

#include <cstddef>

namespace imbrex::bindings {

template <class In, class Cache, int HeadDim, class Mask, class Score>
struct paged_decode {
    using call = paged_decode_call;
    static constexpr decode_config config{.head_dims = {HeadDim}};
    using launcher = imbrex::paged_decode<In, config, Mask, Score, Cache>;
    using problem = typename launcher::problem;

    static void run(const execution& on, const call& c) {
        const problem p = problem_of(c);
        const std::size_t bytes = launcher::workspace_bytes(on.where, p, 0, c.split_size);
        if (c.workspace_bytes_needed != nullptr) {
            *c.workspace_bytes_needed = bytes;
            return;
        }
        const decode_options options{
            .workspace = workspace(on, c, bytes), .total_seqlen_k = c.total_seqlen_k, .split_size = c.split_size};
        launch_or_check<launcher>(on, p, options, c.mask.make<Mask>("mask"), c.score.make<Score>("score"));
    }

  private:
    static problem problem_of(const call& c) {
        problem p{.q = attention_view_of<const In>(c.q, "q"),
                  .k = attention_view_of<const Cache>(c.k, "k_cache"),
                  .v = attention_view_of<const Cache>(c.v, "v_cache"),
                  .out = attention_view_of<In>(c.out, "out"),
                  .lse2 = attention_rows_of(c.lse2, "lse2")};
        c.give_to(p);
        p.paged_kv = block_table_of(c.block_table, p.batches());
        p.k_scales = kv_scales_of(c.k_scales, "k_scales", p.k.extents[0], p.kv_heads());
        p.v_scales = kv_scales_of(c.v_scales, "v_scales", p.k.extents[0], p.kv_heads());
        return p;
    }
    static void* workspace(const execution& on, const call& c, std::size_t bytes) {
        if (!c.workspace.given()) return allocate_zeroed(on, bytes, launcher::workspace_bytes_to_zero(on.where));
        auto* const given = elements_of<std::uint8_t>(c.workspace, "workspace");
        require(static_cast<std::size_t>(c.workspace.count()) >= bytes, "workspace: ", c.workspace.count(), " bytes; ",
                bytes, " are needed");
        return given;
    }
};

}  // namespace imbrex::bindings
