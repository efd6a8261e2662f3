// ring_attention behind a plain function (../variant.hpp), on any_transport.
#pragma once

#include "../calls/ring_attention.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/ring_attention.hpp>

#include <type_traits>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class In, int HeadDimQK, int HeadDimV, class Mask, class Score>
struct ring_attention {
    static_assert(std::is_same_v<Mask, window_mask>, "imbrex: the masks of ring attention are windows");
    using call = ring_attention_call;
    static constexpr attention_head_dim_set head_dims{attention_head_dims(HeadDimQK, HeadDimV)};
    using launcher = imbrex::ring_attention<In, head_dims, Score>;

    static void run(const execution& on, const call& c) {
        const ring_problem<In> p{
            .q = elements_of<const In>(c.q, "q"),
            .k = elements_of<const In>(c.k, "k"),
            .v = elements_of<const In>(c.v, "v"),
            .out = static_cast<float*>(on.allocate(static_cast<std::size_t>(c.out.count()) * sizeof(float))),
            .lse2 = elements_of<float>(c.lse2, "lse2"),
            .workspace = on.allocate(launcher::workspace_bytes(*c.plan)),
            .rounded = elements_of<In>(c.out, "out"),
            .scale = c.scale,
            .sinks = elements_of<const float>(c.sinks, "sinks", c.plan->sizes().heads)};
        launcher::launch(*c.comm, *c.plan, p, c.score.template make<Score>("score"), on.stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
