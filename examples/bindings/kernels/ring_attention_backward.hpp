// ring_attention_backward behind a plain function (../variant.hpp), on any_transport.
#pragma once

#include "../calls/ring_attention_backward.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/ring_attention_backward.hpp>

#include <type_traits>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class In, int HeadDimQK, int HeadDimV, class Mask, class Score, bool Deterministic = false>
struct ring_attention_backward {
    static_assert(std::is_same_v<Mask, window_mask>, "imbrex: the masks of ring attention are windows");
    using call = ring_attention_backward_call;
    static constexpr attention_head_dim_set head_dims{attention_head_dims(HeadDimQK, HeadDimV)};
    using launcher = imbrex::ring_attention_backward<In, head_dims, Score, Deterministic>;

    static void run(const execution& on, const call& c) {
        const auto exact = [&](const tensor& rounded) {
            return static_cast<float*>(on.allocate(static_cast<std::size_t>(rounded.count()) * sizeof(float)));
        };
        ring_backward_problem<In> p{};
        p.q = elements_of<const In>(c.q, "q");
        p.k = elements_of<const In>(c.k, "k");
        p.v = elements_of<const In>(c.v, "v");
        p.lse2 = elements_of<float>(c.lse2, "lse2");
        p.delta = elements_of<float>(c.delta, "delta");
        p.d_out = elements_of<const In>(c.d_out, "d_out");
        p.d_q = exact(c.d_q);
        p.d_k = exact(c.d_k);
        p.d_v = exact(c.d_v);
        p.workspace = on.allocate(launcher::workspace_bytes(*c.plan));
        p.rounded_d_q = elements_of<In>(c.d_q, "d_q");
        p.rounded_d_k = elements_of<In>(c.d_k, "d_k");
        p.rounded_d_v = elements_of<In>(c.d_v, "d_v");
        p.scale = c.scale;
        p.sinks = elements_of<const float>(c.sinks, "sinks", c.plan->sizes().heads);
        p.d_sinks = elements_of<float>(c.d_sinks, "d_sinks", c.plan->sizes().heads);
        launcher::launch(*c.comm, *c.plan, p, c.score.template make<Score>("score"), on.stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
