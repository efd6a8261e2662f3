// attention_forward behind a plain function (../variant.hpp).
#pragma once

#include "../calls/attention_forward.hpp"
#include "../masks.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/attention_forward.hpp>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class In, int HeadDimQK, int HeadDimV, class Mask, class Score>
struct attention_forward {
    using call = attention_forward_call;
    static constexpr attention_options options{.head_dims = {attention_head_dims(HeadDimQK, HeadDimV)}};
    using launcher = imbrex::attention_forward<In, options, Mask, Score>;

    static void run(const execution& on, const call& c) {
        attention_problem<In> p{.q = attention_view_of<const In>(c.q, "q"),
                                .k = attention_view_of<const In>(c.k, "k"),
                                .v = attention_view_of<const In>(c.v, "v"),
                                .out = attention_view_of<In>(c.out, "out"),
                                .lse2 = attention_rows_of(c.lse2, "lse2", c.q)};
        c.give_to(p);
        launch_or_check<launcher>(on, p, c.mask.make<Mask>("mask"), c.score.make<Score>("score"));
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
