// imbrex::sample: token ids drawn from rows of logits.
#include "operator.hpp"

#include "../../bindings/calls/sample.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>

namespace imbrex_torch {

namespace {

using optional_tensor = std::optional<Tensor>;

template <class T>
imbrex::bindings::per_row<T> per_row_of(T all, const optional_tensor& each, const char* name, const Tensor& logits) {
    if (!each) return {all, {}};
    constexpr element wanted = imbrex::bindings::element_of<T>();
    const imbrex::bindings::tensor found = described(each, name);
    TORCH_CHECK_TYPE(found.type == wanted, name, ".dtype: ", each->scalar_type(), "; must be ",
                     imbrex::bindings::name_of(wanted));
    require_same_device(logits, {{name, each}});
    return {all, found};
}

int int_of(std::int64_t number, const char* name) {
    TORCH_CHECK_VALUE(number >= 0 && number <= std::numeric_limits<int>::max(), name, ": ", number,
                      "; must be from 0 to ", std::numeric_limits<int>::max());
    return static_cast<int>(number);
}

// The vocabulary is the last dimension; tensors of parameters have one number for each row before it.
std::tuple<Tensor, Tensor, Tensor, Tensor> sample(
    const Tensor& logits_given, double temperature, const optional_tensor& temperatures, std::int64_t top_k,
    const optional_tensor& top_ks, double top_p, const optional_tensor& top_ps, double min_p,
    const optional_tensor& min_ps, std::int64_t seed, const optional_tensor& seeds, std::int64_t position,
    const optional_tensor& positions, bool return_logprobs, std::int64_t num_top_logprobs) {
    const auto type = logits_given.scalar_type();
    TORCH_CHECK_TYPE(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf, "logits.dtype: ", type,
                     "; must be Float, BFloat16 or Half");
    TORCH_CHECK_VALUE(logits_given.dim() >= 1 && logits_given.size(-1) > 0, "logits: shape ", logits_given.sizes(),
                      "; [..., vocabulary] is needed");
    const Tensor logits = with_contiguous_rows(logits_given.reshape({-1, logits_given.size(-1)}));
    const auto rows = logits_given.sizes().slice(0, logits_given.dim() - 1);
    const auto with_top = [&] {
        auto sizes = rows.vec();
        sizes.push_back(int_of(num_top_logprobs, "num_top_logprobs"));
        return sizes;
    };
    const auto ints = logits.options().dtype(at::kInt), floats = logits.options().dtype(at::kFloat);
    const Tensor tokens = at::empty(rows, ints), top_tokens = at::empty(with_top(), ints),
                 top_logprobs = at::empty(with_top(), floats);
    const Tensor logprobs = return_logprobs ? at::empty(rows, floats) : at::empty({0}, floats);
    imbrex::bindings::sample_call call;
    const Tensor flat_top = num_top_logprobs > 0 ? top_logprobs.view({-1, num_top_logprobs}) : Tensor();
    call.logits = described(logits, "logits");
    call.temperature = per_row_of(static_cast<float>(temperature), temperatures, "temperature", logits);
    call.top_k = per_row_of(int_of(top_k, "top_k"), top_ks, "top_k", logits);
    call.top_p = per_row_of(static_cast<float>(top_p), top_ps, "top_p", logits);
    call.min_p = per_row_of(static_cast<float>(min_p), min_ps, "min_p", logits);
    call.seed = per_row_of(seed, seeds, "seed", logits);
    call.position = per_row_of(int_of(position, "position"), positions, "position", logits);
    call.tokens = described(tokens, "tokens");
    if (return_logprobs) call.logprobs = described(logprobs, "logprobs");
    call.top_logprobs = described(flat_top, "top_logprobs");
    call.top_logprobs_tokens = described(top_tokens, "top_logprobs_tokens");
    execution_on(logits).run(sample_variant(call), call);
    return {tokens, logprobs, top_tokens, top_logprobs};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def(
        "sample(Tensor logits, float temperature, Tensor? temperatures, int top_k, Tensor? top_ks, float top_p, "
        "Tensor? top_ps, float min_p, Tensor? min_ps, int seed, Tensor? seeds, int position, Tensor? positions, "
        "bool return_logprobs, int num_top_logprobs) -> (Tensor tokens, Tensor logprobs, Tensor top_tokens, "
        "Tensor top_logprobs)");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("sample", sample);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("sample", sample);
}

}  // namespace imbrex_torch
