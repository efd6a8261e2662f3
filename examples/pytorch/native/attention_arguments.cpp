#include "attention_arguments.hpp"

#include <cstdint>

namespace imbrex_torch {

std::pair<std::string_view, std::string_view> split_functor(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    const bool has_members = colon != std::string_view::npos && (colon == 0 || text[colon - 1] != ':');
    return has_members ? std::pair{text.substr(0, colon), text.substr(colon + 1)} : std::pair{text, std::string_view()};
}

attention_functor functor_of(const char* name, const std::string& text, const std::vector<Tensor>& tensors,
                             const std::vector<double>& numbers, const std::vector<Tensor>& gradients) {
    const auto [type, kinds] = split_functor(text);
    attention_functor made{std::string(type), {}};
    std::size_t tensor = 0, number = 0;
    const auto next_number = [&] {
        TORCH_CHECK_VALUE(number < numbers.size(), name, ": ", numbers.size(), " numbers; ", text, " needs more");
        return numbers[number++];
    };
    for (const char kind : kinds) {
        if (kind == 't') {
            TORCH_CHECK_VALUE(tensor < tensors.size(), name, ": ", tensors.size(), " tensors; ", text, " needs more");
            TORCH_CHECK_VALUE(tensors[tensor].is_contiguous(), name, ": tensor ", tensor,
                              " is strided; it must be contiguous");
            made.members.add(static_cast<const void*>(tensors[tensor++].data_ptr()));
        } else if (kind == 'g') {
            made.members.add(gradients.empty() ? nullptr : gradients[tensor - 1].data_ptr());
        } else if (kind == 'i') {
            made.members.add(static_cast<int>(next_number()));
        } else if (kind == 'l') {
            made.members.add(static_cast<std::int64_t>(next_number()));
        } else {
            TORCH_CHECK_VALUE(kind == 'f', name, ": ", text, "; members are t, g, i, l and f");
            made.members.add(static_cast<float>(next_number()));
        }
    }
    TORCH_CHECK_VALUE(tensor == tensors.size() && number == numbers.size(), name, ": ", tensors.size(), " tensors and ",
                      numbers.size(), " numbers; ", text, " has other members");
    return made;
}

void require_16_bit(const Tensor& t, const char* name) {
    TORCH_CHECK_TYPE(t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kHalf, name,
                     ".dtype: ", t.scalar_type(), "; must be BFloat16 or Half");
}

void require_same_device(const Tensor& like, const attention_arguments& more) {
    require_same_device(like, {{"sinks", more.sinks},
                               {"cu_seqlens_q", more.cu_seqlens_q},
                               {"cu_seqlens_k", more.cu_seqlens_k},
                               {"seqused_k", more.seqused_k}});
    for (const Tensor& one : more.mask_tensors) require_same_device(like, {{"mask_tensors", one}});
    for (const Tensor& one : more.score_tensors) require_same_device(like, {{"score_tensors", one}});
}

void require_qkv(const Tensor& q, const Tensor& k, const Tensor& v, const attention_arguments& more) {
    const bool varlen = more.cu_seqlens_q || more.cu_seqlens_k;
    TORCH_CHECK_VALUE(q.dim() == (varlen ? 3 : 4), "q: shape ", q.sizes(), "; ",
                      varlen ? "[tokens, heads, head_dim]" : "[batch, sequence, heads, head_dim]", " is needed");
    TORCH_CHECK_VALUE(!varlen || (more.cu_seqlens_q && more.cu_seqlens_k),
                      "cu_seqlens_q, cu_seqlens_k: one is missing; a varlen batch needs both");
    for (const auto& [name, other] : {std::pair{"k", k}, {"v", v}}) {
        TORCH_CHECK_VALUE(other.dim() == q.dim(), name, ": shape ", other.sizes(), "; ", q.dim(),
                          " dimensions are needed, as q has");
        TORCH_CHECK_TYPE(other.scalar_type() == q.scalar_type(), name, ".dtype: ", other.scalar_type(), "; must be ",
                         q.scalar_type(), ", that of q");
    }
    require_same_device(q, {{"k", k}, {"v", v}});
    require_same_device(q, more);
}

void give_inputs(imbrex::bindings::attention_inputs& call, const Tensor& q, const Tensor& k, const Tensor& v,
                 const attention_arguments& more, const attention_functor& mask, const attention_functor& score) {
    call.q = described(q, "q");
    call.k = described(k, "k");
    call.v = described(v, "v");
    if (more.scale) call.scale = static_cast<float>(*more.scale);
    call.sinks = described(more.sinks, "sinks");
    call.seqused_k = described(more.seqused_k, "seqused_k");
    call.cu_seqlens_q = described(more.cu_seqlens_q, "cu_seqlens_q");
    call.cu_seqlens_k = described(more.cu_seqlens_k, "cu_seqlens_k");
    call.mask = mask.members;
    call.score = score.members;
}

Tensor empty_output(const Tensor& q, const Tensor& v, at::ScalarType type) {
    auto sizes = q.sizes().vec();
    sizes.back() = v.size(-1);
    return at::empty(sizes, q.options().dtype(type));
}

Tensor empty_rows(const Tensor& q) {
    const auto options = q.options().dtype(at::kFloat);
    return q.dim() == 4 ? at::empty({q.size(0), q.size(2), q.size(1)}, options)
                        : at::empty({q.size(1), q.size(0)}, options);
}

}  // namespace imbrex_torch
