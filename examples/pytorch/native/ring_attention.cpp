// imbrex::ring_attention_forward and imbrex::ring_attention_backward: attention over sequences whose tokens are spread over
// the ranks of a process group, which is given by its name. The gradient that joins them is in imbrex_torch/distributed.py.
#include "operator.hpp"
#include "ring_plans.hpp"

#include "../../bindings/calls/ring_attention.hpp"
#include "../../bindings/calls/ring_attention_backward.hpp"

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

namespace imbrex_torch {

namespace {

using optional_tensor = std::optional<Tensor>;

// The arguments of both operators after their own tensors.
struct ring_arguments {
    optional_tensor sinks;
    std::optional<double> scale, softcap;
    std::optional<std::int64_t> tokens;  // of a sequence, on all ranks
    std::int64_t left, right;
    std::string placement;
    std::int64_t q_chunks;
    bool deterministic;
    std::string group;
};

#define IMBREX_RING_SCHEMA                                                                                            \
    "Tensor? sinks, float? scale, float? softcap, SymInt? tokens, int left, int right, str placement, int q_chunks, " \
    "bool deterministic, str group_name"
#define IMBREX_RING_PARAMETERS                                                                            \
    const optional_tensor &sinks, std::optional<double> scale, std::optional<double> softcap,             \
        std::optional<std::int64_t> tokens, std::int64_t left, std::int64_t right, std::string placement, \
        std::int64_t q_chunks, bool deterministic, std::string group
#define IMBREX_RING_ARGUMENTS                                                                                       \
    ring_arguments {                                                                                                \
        sinks, scale, softcap, tokens, left, right, std::move(placement), q_chunks, deterministic, std::move(group) \
    }

void require_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const ring_arguments& more) {
    TORCH_CHECK_TYPE(q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf, "q.dtype: ", q.scalar_type(),
                     "; must be BFloat16 or Half");
    TORCH_CHECK_VALUE(q.dim() == 4, "q: shape ", q.sizes(), "; [batch, tokens, heads, head_dim] is needed");
    for (const auto& [name, other] : {std::pair{"k", k}, {"v", v}}) {
        TORCH_CHECK_TYPE(other.scalar_type() == q.scalar_type(), name, ".dtype: ", other.scalar_type(), "; must be ",
                         q.scalar_type(), ", that of q");
        TORCH_CHECK_VALUE(other.dim() == 4 && other.size(0) == q.size(0) && other.size(1) == q.size(1), name,
                          ": shape ", other.sizes(), "; the batch and tokens of q are needed, ", q.size(0), " and ",
                          q.size(1));
    }
    TORCH_CHECK_VALUE(k.size(2) == v.size(2), "v: ", v.size(2), " heads; k has ", k.size(2));
    TORCH_CHECK_VALUE(k.size(2) > 0 && q.size(2) % k.size(2) == 0, "q: ", q.size(2),
                      " heads; a multiple of the heads of k and v is needed, which is ", k.size(2));
    TORCH_CHECK_VALUE(k.size(3) == q.size(3), "k: head_dim ", k.size(3), "; q has ", q.size(3));
    require_same_device(q, {{"k", k}, {"v", v}, {"sinks", more.sinks}});
}

int int_of(std::int64_t value, const char* name) {
    TORCH_CHECK_VALUE(value >= 0 && value <= std::numeric_limits<int>::max(), name, ": ", value, "; 0 to ",
                      std::numeric_limits<int>::max(), " is allowed");
    return static_cast<int>(value);
}

imbrex::token_placement placement_of(const std::string& text) {
    for (const auto one :
         {imbrex::token_placement::contiguous, imbrex::token_placement::zigzag, imbrex::token_placement::striped}) {
        if (text == name_of(one)) return one;
    }
    TORCH_CHECK_VALUE(false, "placement: ", text, "; contiguous, zigzag and striped are allowed");
}

imbrex::ring_schedule schedule_of(const Tensor& q, const Tensor& k, const Tensor& v, int ranks,
                                  const ring_arguments& more) {
    return {.tokens = int_of(more.tokens.value_or(q.size(1) * ranks), "tokens"),
            .ranks = ranks,
            .q_chunks = int_of(more.q_chunks, "q_chunks"),
            .placement = placement_of(more.placement),
            .mask = {int_of(more.left, "window"), int_of(more.right, "window")},
            .rotation = imbrex::kv_rotation::while_visible,
            .sizes = {.heads = int_of(q.size(2), "heads"),
                      .kv_heads = int_of(k.size(2), "heads"),
                      .head_dim = int_of(q.size(3), "head_dim"),
                      .head_dim_v = int_of(v.size(3), "head_dim"),
                      .element_bytes = static_cast<int>(q.element_size()),
                      .batches = int_of(q.size(0), "batch")}};
}

// A pass on the ranks of a group. Tensors are contiguous.
class ring_pass_on {
  public:
    ring_pass_on(imbrex::ring_pass pass, const Tensor& q, const Tensor& k, const Tensor& v, const ring_arguments& more)
        : on_(q), more_(more), group_(c10d::resolve_process_group(more.group)), comm_(group_, q.device()) {
        TORCH_CHECK_NOT_IMPLEMENTED(on_.where().where != imbrex::world::host_checked,
                                    "check: ring attention has several processes; the checker runs in one");
        const auto schedule = schedule_of(q, k, v, comm_.ranks(), more);
        plan_ = with_python_errors(
            [&] { return ring_plan_of(group_, comm_, schedule, pass, described(q, "q").type, q.size(1)); });
        inputs_.q = described(q, "q");
        inputs_.k = described(k, "k");
        inputs_.v = described(v, "v");
        inputs_.sinks = described(more.sinks, "sinks");
        if (more.scale) inputs_.scale = static_cast<float>(*more.scale);
        if (more.softcap) inputs_.score.add(static_cast<float>(*more.softcap));
        inputs_.comm = &comm_;
        inputs_.plan = plan_.get();
    }

    const imbrex::bindings::ring_attention_inputs& inputs() const { return inputs_; }

    template <class Call>
    void run(const char* binding, const Call& call, const char* last_argument = "") const {
        const char* const score = more_.softcap ? "score_mod::softcap" : "score_mod::identity";
        on_.run(ring_attention_variant(binding, call, score) + last_argument, call);
    }

  private:
    execution_on on_;
    const ring_arguments& more_;
    process_group group_;
    process_group_transport comm_;
    std::shared_ptr<const imbrex::ring_plan> plan_;
    imbrex::bindings::ring_attention_inputs inputs_;
};

std::tuple<Tensor, Tensor> forward(const Tensor& q_given, const Tensor& k_given, const Tensor& v_given,
                                   IMBREX_RING_PARAMETERS) {
    const ring_arguments more = IMBREX_RING_ARGUMENTS;
    require_inputs(q_given, k_given, v_given, more);
    const Tensor q = q_given.contiguous(), k = k_given.contiguous(), v = v_given.contiguous();
    const Tensor out = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    const Tensor lse2 = at::empty({q.size(2), q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
    const ring_pass_on pass(imbrex::ring_pass::forward, q, k, v, more);
    imbrex::bindings::ring_attention_call call{pass.inputs()};
    call.out = described(out, "out");
    call.lse2 = described(lse2, "lse2");
    pass.run("ring_attention", call);
    return {out, lse2};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward(const Tensor& d_out_given, const Tensor& delta_given,
                                                    const Tensor& q_given, const Tensor& k_given, const Tensor& v_given,
                                                    const Tensor& lse2_given, IMBREX_RING_PARAMETERS) {
    const ring_arguments more = IMBREX_RING_ARGUMENTS;
    require_inputs(q_given, k_given, v_given, more);
    const Tensor q = q_given.contiguous(), k = k_given.contiguous(), v = v_given.contiguous();
    const Tensor d_out = d_out_given.contiguous(), delta = delta_given.contiguous(), lse2 = lse2_given.contiguous();
    const Tensor d_q = at::empty_like(q), d_k = at::empty_like(k), d_v = at::empty_like(v);
    const Tensor d_sinks = more.sinks ? at::zeros_like(*more.sinks) : at::empty({0}, lse2.options());
    const ring_pass_on pass(imbrex::ring_pass::backward, q, k, v, more);
    imbrex::bindings::ring_attention_backward_call call{pass.inputs()};
    call.d_out = described(d_out, "d_out");
    call.lse2 = described(lse2, "lse2");
    call.delta = described(delta, "delta");
    call.d_q = described(d_q, "d_q");
    call.d_k = described(d_k, "d_k");
    call.d_v = described(d_v, "d_v");
    if (more.sinks) call.d_sinks = described(d_sinks, "d_sinks");
    pass.run("ring_attention_backward", call, more.deterministic ? ", true" : "");
    return {d_q, d_k, d_v, d_sinks};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def("ring_attention_forward(Tensor q, Tensor k, Tensor v, " IMBREX_RING_SCHEMA ") -> (Tensor out, Tensor lse2)");
    m.def(
        "ring_attention_backward(Tensor d_out, Tensor delta, Tensor q, Tensor k, Tensor v, Tensor "
        "lse2, " IMBREX_RING_SCHEMA ") -> (Tensor d_q, Tensor d_k, Tensor d_v, Tensor d_sinks)");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("ring_attention_forward", forward);
    m.impl("ring_attention_backward", backward);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("ring_attention_forward", forward);
    m.impl("ring_attention_backward", backward);
}

}  // namespace imbrex_torch
