// attention_backward behind a plain function (../variant.hpp).
#pragma once

#include "../calls/attention_backward.hpp"
#include "../masks.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/attention_backward.hpp>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class In, int HeadDimQK, int HeadDimV, class Mask, class Score, bool Deterministic = false>
struct attention_backward {
    using call = attention_backward_call;
    static constexpr attention_backward_options options{.head_dims = {attention_head_dims(HeadDimQK, HeadDimV)},
                                                        .deterministic = Deterministic};
    using launcher = imbrex::attention_backward<In, options, Mask, Score>;

    static void run(const execution& on, const call& c) {
        attention_backward_problem<In> p{.q = attention_view_of<const In>(c.q, "q"),
                                         .k = attention_view_of<const In>(c.k, "k"),
                                         .v = attention_view_of<const In>(c.v, "v"),
                                         .out = {},
                                         .d_out = attention_view_of<const In>(c.d_out, "d_out"),
                                         .lse2 = attention_rows_of(c.lse2, "lse2", c.q),
                                         .delta = attention_rows_of(c.delta, "delta", c.q),
                                         .d_q = attention_view_of<In>(c.d_q, "d_q"),
                                         .d_k = attention_view_of<In>(c.d_k, "d_k"),
                                         .d_v = attention_view_of<In>(c.d_v, "d_v")};
        if (c.out.given()) p.out = attention_view_of<const In>(c.out, "out");
        c.give_to(p);
        p.d_sinks = elements_of<float>(c.d_sinks, "d_sinks", p.heads());
        p.workspace_bytes = launcher::workspace_bytes(p);
        if (p.workspace_bytes > 0) p.workspace = on.allocate(p.workspace_bytes);
        launch_or_check<launcher>(on, p, c.mask.make<Mask>("mask"), c.score.make<Score>("score"));
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
