// imbrex::attention_forward and imbrex::attention_backward, and the gradient that joins them.
#include "attention_arguments.hpp"

#include "../../bindings/calls/attention_backward.hpp"
#include "../../bindings/calls/attention_forward.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
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

// The gradient in the graph: a node as PyTorch's own operators have, which costs less than torch::autograd::Function.
class attention_node : public torch::autograd::Node {
  public:
    attention_node(const Tensor& q, const Tensor& k, const Tensor& v, const differentiable_arguments& given)
        : q_(q, false), k_(k, false), v_(v, false), rest_(given) {
        const auto save = [&](std::optional<Tensor>& one) {
            if (!one) return;
            saved_.emplace_back(*one, false);
            one.reset();
        };
        for_optional(rest_, save);
        for (const auto* tensors : {&given.score_tensors, &given.mask_tensors}) {
            for (const Tensor& one : *tensors) saved_.emplace_back(one, false);
        }
        rest_.score_tensors.clear();
        rest_.mask_tensors.clear();
        has_[0] = given.sinks.has_value(), has_[1] = given.cu_seqlens_q.has_value();
        has_[2] = given.cu_seqlens_k.has_value(), has_[3] = given.seqused_k.has_value();
        score_tensors_ = given.score_tensors.size();
    }
    // Results are saved after they have become results of this node.
    void save_results(const Tensor& out, const Tensor& lse2) {
        out_ = {out, true};
        lse2_ = {lse2, true};
    }

    torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
        const std::lock_guard lock(mutex_);
        const differentiable_arguments more = unpacked();
        const auto self = shared_from_this();
        const Tensor out = out_.unpack(self);
        const Tensor d_out = gradients[0].defined() ? gradients[0] : at::zeros_like(out);
        auto [d_q, d_k, d_v, d_sinks, d_score] = call_backward(d_out, delta_with(gradients[1], d_out, out), q_.unpack(),
                                                               k_.unpack(), v_.unpack(), out, lse2_.unpack(self), more);
        torch::autograd::variable_list results{d_q, d_k, d_v, more.sinks ? d_sinks : Tensor()};
        const bool has_gradients = split_functor(more.score).second.find('g') != std::string_view::npos;
        for (std::size_t i = 0; i < d_score.size(); ++i) {
            results.push_back(has_gradients ? d_score[i].to(more.score_tensors[i].scalar_type()) : Tensor());
        }
        return results;
    }
    std::string name() const override { return "ImbrexAttentionBackward"; }
    void release_variables() override {
        const std::lock_guard lock(mutex_);
        for (auto* one : {&q_, &k_, &v_, &out_, &lse2_}) one->reset_data();
        for (auto& one : saved_) one.reset_data();
    }

  private:
    template <class Call>
    static void for_optional(differentiable_arguments& of, const Call& call) {
        for (auto* one : {&of.sinks, &of.cu_seqlens_q, &of.cu_seqlens_k, &of.seqused_k}) call(*one);
    }

    differentiable_arguments unpacked() {
        differentiable_arguments made = rest_;
        std::size_t next = 0, index = 0;
        for_optional(made, [&](std::optional<Tensor>& one) {
            if (has_[index++]) one = saved_[next++].unpack();
        });
        for (std::size_t i = 0; i < score_tensors_; ++i) made.score_tensors.push_back(saved_[next++].unpack());
        while (next < saved_.size()) made.mask_tensors.push_back(saved_[next++].unpack());
        return made;
    }

    torch::autograd::SavedVariable q_, k_, v_, out_, lse2_;
    std::vector<torch::autograd::SavedVariable>
        saved_;                      // those of for_optional that are given, the score's, the mask's
    differentiable_arguments rest_;  // without tensors
    bool has_[4];
    std::size_t score_tensors_;
};

forward_results forward_with_gradient(const Tensor& q, const Tensor& k, const Tensor& v, IMBREX_ATTENTION_PARAMETERS,
                                      bool deterministic) {
    const differentiable_arguments more{IMBREX_ATTENTION_ARGUMENTS, deterministic};
    bool needed = torch::autograd::compute_requires_grad(q, k, v, more.sinks);
    for (const Tensor& one : more.score_tensors) needed = needed || torch::autograd::compute_requires_grad(one);
    std::shared_ptr<attention_node> node;
    if (needed) {
        node = std::shared_ptr<attention_node>(new attention_node(q, k, v, more), torch::autograd::deleteNode);
        torch::autograd::edge_list edges = torch::autograd::collect_next_edges(q, k, v, more.sinks.value_or(Tensor()));
        for (const Tensor& one : more.score_tensors) edges.push_back(torch::autograd::impl::gradient_edge(one));
        node->set_next_edges(std::move(edges));
    }
    forward_results results = [&] {
        const at::AutoDispatchBelowADInplaceOrView below;
        return call_forward(q, k, v, more);
    }();
    if (needed) {
        auto& [out, lse2] = results;
        torch::autograd::set_history(out, node);
        torch::autograd::set_history(lse2, node);
        node->save_results(out, lse2);
    }
    return results;
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
