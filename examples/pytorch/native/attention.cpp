// imbrex::attention_forward and imbrex::attention_backward, and the gradient that joins them.
#include "attention_arguments.hpp"

#include "../../bindings/calls/attention_backward.hpp"
#include "../../bindings/calls/attention_forward.hpp"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

namespace imbrex_torch {

namespace {

struct differentiable_arguments : attention_arguments {
    bool deterministic;
};

using forward_results = std::tuple<Tensor, Tensor>;
using backward_results = std::tuple<Tensor, Tensor, Tensor, Tensor, std::vector<Tensor>>;

forward_results forward(const Tensor& q_given, const Tensor& k_given, const Tensor& v_given,
                        const differentiable_arguments& more) {
    require_16_bit(q_given, "q");
    require_qkv(q_given, k_given, v_given, more);
    const Tensor q = with_contiguous_rows(q_given), k = with_contiguous_rows(k_given),
                 v = with_contiguous_rows(v_given);
    const Tensor out = empty_output(q, v, q.scalar_type()), lse2 = empty_rows(q);
    const attention_functor mask = mask_of(more);
    const attention_functor score = score_of(more);
    imbrex::bindings::attention_forward_call call;
    give_inputs(call, q, k, v, more, mask, score);
    call.out = described(out, "out");
    call.lse2 = described(lse2, "lse2");
    execution_on(q).run(attention_variant("attention_forward", call, mask.type, score.type), call);
    return {out, lse2};
}

// Gradients of the score_mod's tensors: zero where it has none.
std::vector<Tensor> zeros_like(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> made;
    for (const Tensor& one : tensors) made.push_back(at::zeros(one.sizes(), one.options().dtype(at::kFloat)));
    return made;
}

backward_results backward(const Tensor& d_out_given, const optional_tensor& delta, const Tensor& q_given,
                          const Tensor& k_given, const Tensor& v_given, const Tensor& out, const Tensor& lse2,
                          const differentiable_arguments& more) {
    require_16_bit(q_given, "q");
    require_qkv(q_given, k_given, v_given, more);
    const Tensor q = with_contiguous_rows(q_given), k = with_contiguous_rows(k_given),
                 v = with_contiguous_rows(v_given);
    const Tensor d_out = with_contiguous_rows(d_out_given);
    const Tensor d_q = at::empty(q.sizes(), q.options()), d_k = at::empty(k.sizes(), k.options()),
                 d_v = at::empty(v.sizes(), v.options());
    const Tensor d_sinks = more.sinks ? at::zeros_like(*more.sinks) : at::empty({0}, q.options().dtype(at::kFloat));
    const std::vector<Tensor> d_score = zeros_like(more.score_tensors);
    const attention_functor mask = mask_of(more);
    const attention_functor score = functor_of("score", more.score, more.score_tensors, more.score_numbers, d_score);
    imbrex::bindings::attention_backward_call call;
    give_inputs(call, q, k, v, more, mask, score);
    if (delta) {
        call.delta = described(*delta, "delta");
    } else {
        call.out = described(out, "out");
    }
    call.d_out = described(d_out, "d_out");
    call.lse2 = described(lse2, "lse2");
    call.d_q = described(d_q, "d_q");
    call.d_k = described(d_k, "d_k");
    call.d_v = described(d_v, "d_v");
    if (more.sinks) call.d_sinks = described(d_sinks, "d_sinks");
    const std::string variant = attention_variant("attention_backward", call, mask.type, score.type);
    execution_on(q).run(more.deterministic ? variant + ", true" : variant, call);
    return {d_q, d_k, d_v, d_sinks, d_score};
}

forward_results forward_operator(const Tensor& q, const Tensor& k, const Tensor& v, IMBREX_ATTENTION_PARAMETERS,
                                 bool deterministic) {
    return forward(q, k, v, {IMBREX_ATTENTION_ARGUMENTS, deterministic});
}
backward_results backward_operator(const Tensor& d_out, const optional_tensor& delta, const Tensor& q, const Tensor& k,
                                   const Tensor& v, const Tensor& out, const Tensor& lse2, IMBREX_ATTENTION_PARAMETERS,
                                   bool deterministic) {
    return backward(d_out, delta, q, k, v, out, lse2, {IMBREX_ATTENTION_ARGUMENTS, deterministic});
}

forward_results call_forward(const Tensor& q, const Tensor& k, const Tensor& v, const differentiable_arguments& a) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("imbrex::attention_forward", "")
                               .typed<decltype(forward_operator)>();
    return op.call(q, k, v, a.scale, a.sinks, a.cu_seqlens_q, a.cu_seqlens_k, a.seqused_k, a.mask, a.mask_tensors,
                   a.mask_numbers, a.score, a.score_tensors, a.score_numbers, a.deterministic);
}
backward_results call_backward(const Tensor& d_out, const optional_tensor& delta, const Tensor& q, const Tensor& k,
                               const Tensor& v, const Tensor& out, const Tensor& lse2,
                               const differentiable_arguments& a) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("imbrex::attention_backward", "")
                               .typed<decltype(backward_operator)>();
    return op.call(d_out, delta, q, k, v, out, lse2, a.scale, a.sinks, a.cu_seqlens_q, a.cu_seqlens_k, a.seqused_k,
                   a.mask, a.mask_tensors, a.mask_numbers, a.score, a.score_tensors, a.score_numbers, a.deterministic);
}

// delta = rowsum(dO * O) - d(loss)/d(lse), in the layout of the LSE: a gradient of the LSE acts as if delta were smaller.
optional_tensor delta_with(const Tensor& d_lse2, const Tensor& d_out, const Tensor& out) {
    if (!d_lse2.defined()) return std::nullopt;
    const Tensor sums = (d_out.to(at::kFloat) * out.to(at::kFloat)).sum(-1).transpose(-1, -2);
    return (sums - d_lse2 * (1.0 / std::log(2.0))).contiguous();
}

class attention_function : public torch::autograd::Function<attention_function> {
  public:
    static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& q,
                                                  const Tensor& k, const Tensor& v, const optional_tensor& sinks,
                                                  at::TensorList score_tensors, const differentiable_arguments& more) {
        const at::AutoDispatchBelowADInplaceOrView below;
        auto [out, lse2] = call_forward(q, k, v, more);
        torch::autograd::variable_list saved{q, k, v, out, lse2};
        for (const auto& one : {sinks, more.cu_seqlens_q, more.cu_seqlens_k, more.seqused_k}) {
            saved.push_back(one.value_or(Tensor()));
        }
        saved.insert(saved.end(), score_tensors.begin(), score_tensors.end());
        saved.insert(saved.end(), more.mask_tensors.begin(), more.mask_tensors.end());
        context->save_for_backward(std::move(saved));
        context->set_materialize_grads(false);
        context->saved_data["scale"] = more.scale;
        context->saved_data["mask"] = more.mask;
        context->saved_data["mask_numbers"] = more.mask_numbers;
        context->saved_data["score"] = more.score;
        context->saved_data["score_tensors"] = static_cast<std::int64_t>(score_tensors.size());
        context->saved_data["score_numbers"] = more.score_numbers;
        context->saved_data["deterministic"] = more.deterministic;
        return {out, lse2};
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const auto saved = context->get_saved_variables();
        const Tensor &q = saved[0], &out = saved[3];
        const auto given = [&](int index) {
            return saved[index].defined() ? optional_tensor(saved[index]) : std::nullopt;
        };
        auto& data = context->saved_data;
        const auto score_end = saved.begin() + fixed + data["score_tensors"].toInt();
        const differentiable_arguments more{{data["scale"].toOptional<double>(),
                                             given(5),
                                             given(6),
                                             given(7),
                                             given(8),
                                             data["mask"].toStringRef(),
                                             {score_end, saved.end()},
                                             data["mask_numbers"].toDoubleVector(),
                                             data["score"].toStringRef(),
                                             {saved.begin() + fixed, score_end},
                                             data["score_numbers"].toDoubleVector()},
                                            data["deterministic"].toBool()};
        const Tensor d_out = gradients[0].defined() ? gradients[0] : at::zeros_like(out);
        auto [d_q, d_k, d_v, d_sinks, d_score] =
            call_backward(d_out, delta_with(gradients[1], d_out, out), q, saved[1], saved[2], out, saved[4], more);
        torch::autograd::variable_list results{d_q, d_k, d_v, more.sinks ? d_sinks : Tensor()};
        const bool has_gradients = split_functor(more.score).second.find('g') != std::string_view::npos;
        for (std::size_t i = 0; i < d_score.size(); ++i) {
            results.push_back(has_gradients ? d_score[i].to(more.score_tensors[i].scalar_type()) : Tensor());
        }
        results.emplace_back();  // for the arguments that are no tensors
        return results;
    }

  private:
    static constexpr int fixed = 9;  // saved tensors before those of the score_mod
};

forward_results forward_with_gradient(const Tensor& q, const Tensor& k, const Tensor& v, IMBREX_ATTENTION_PARAMETERS,
                                      bool deterministic) {
    const differentiable_arguments more{IMBREX_ATTENTION_ARGUMENTS, deterministic};
    auto results = attention_function::apply(q, k, v, more.sinks, at::TensorList(more.score_tensors), more);
    return {results[0], results[1]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def("attention_forward(Tensor q, Tensor k, Tensor v, " IMBREX_ATTENTION_SCHEMA
          ", bool deterministic) -> (Tensor out, Tensor lse2)");
    m.def(
        "attention_backward(Tensor d_out, Tensor? delta, Tensor q, Tensor k, Tensor v, Tensor out, Tensor "
        "lse2, " IMBREX_ATTENTION_SCHEMA
        ", bool deterministic) -> (Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_sinks, Tensor[] d_score_tensors)");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("attention_forward", forward_operator);
    m.impl("attention_backward", backward_operator);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("attention_forward", forward_operator);
    m.impl("attention_backward", backward_operator);
}
TORCH_LIBRARY_IMPL(imbrex, Autograd, m) {
    m.impl("attention_forward", forward_with_gradient);
}

}  // namespace imbrex_torch
