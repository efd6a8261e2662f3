// What the attention operators share: their schema after their own tensors, its checks, and masks and score_mods by name.
//
// Masks and score_mods are named as in C++ (the template arguments of a variant), followed by the members they take from the
// lists of tensors and numbers, in order: "window_mask:ii".
//
//     t   a pointer to a tensor's elements          i   an int        l   a 64-bit int        f   a float
//     g   a pointer to the fp32 gradient of the tensor before it: null in the forward pass
#pragma once

#include "operator.hpp"

#include "../../bindings/calls/attention.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace imbrex_torch {

using optional_tensor = std::optional<Tensor>;

struct attention_arguments {
    std::optional<double> scale;
    optional_tensor sinks, cu_seqlens_q, cu_seqlens_k, seqused_k;
    std::string mask;
    std::vector<Tensor> mask_tensors;
    std::vector<double> mask_numbers;
    std::string score;
    std::vector<Tensor> score_tensors;
    std::vector<double> score_numbers;
};

#define IMBREX_ATTENTION_SCHEMA                                                                    \
    "float? scale, Tensor? sinks, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_k, " \
    "str mask, Tensor[] mask_tensors, float[] mask_numbers, str score, Tensor[] score_tensors, "   \
    "float[] score_numbers"
#define IMBREX_ATTENTION_PARAMETERS                                                                 \
    std::optional<double> scale, const optional_tensor &sinks, const optional_tensor &cu_seqlens_q, \
        const optional_tensor &cu_seqlens_k, const optional_tensor &seqused_k, std::string mask,    \
        std::vector<Tensor> mask_tensors, std::vector<double> mask_numbers, std::string score,      \
        std::vector<Tensor> score_tensors, std::vector<double> score_numbers
#define IMBREX_ATTENTION_ARGUMENTS                                                                        \
    attention_arguments {                                                                                 \
        scale, sinks, cu_seqlens_q, cu_seqlens_k, seqused_k, std::move(mask), std::move(mask_tensors),    \
            std::move(mask_numbers), std::move(score), std::move(score_tensors), std::move(score_numbers) \
    }

struct attention_functor {
    std::string type;
    imbrex::bindings::functor_members members;
};

// "window_mask" and "ii" of "window_mask:ii".
std::pair<std::string_view, std::string_view> split_functor(std::string_view text);

// `gradients`: of each tensor, undefined where none is asked for; empty in the forward pass.
attention_functor functor_of(const char* name, const std::string& text, const std::vector<Tensor>& tensors,
                             const std::vector<double>& numbers, const std::vector<Tensor>& gradients = {});

inline attention_functor mask_of(const attention_arguments& more) {
    return functor_of("mask", more.mask, more.mask_tensors, more.mask_numbers);
}
inline attention_functor score_of(const attention_arguments& more) {
    return functor_of("score", more.score, more.score_tensors, more.score_numbers);
}

void require_16_bit(const Tensor& t, const char* name);

// Raises TypeError unless all tensors among the arguments are on the device of `like`.
void require_same_device(const Tensor& like, const attention_arguments& more);

// [batch, sequence, heads, head_dim] of one type, or [tokens, heads, head_dim] of a varlen batch.
void require_qkv(const Tensor& q, const Tensor& k, const Tensor& v, const attention_arguments& more);

void give_inputs(imbrex::bindings::attention_inputs& call, const Tensor& q, const Tensor& k, const Tensor& v,
                 const attention_arguments& more, const attention_functor& mask, const attention_functor& score);

// q with the columns of v.
Tensor empty_output(const Tensor& q, const Tensor& v, at::ScalarType type);

// fp32 [batch, heads, rows], or [heads, tokens] of a varlen batch.
Tensor empty_rows(const Tensor& q);

}  // namespace imbrex_torch
