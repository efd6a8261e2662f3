// The arguments of the binding decode_session: a call makes a session, whose functions are virtual.
#pragma once

#include "attention.hpp"

#include <memory>
#include <optional>
#include <string>

namespace imbrex::bindings {

// imbrex::decode_session for any types. Tensors are [tokens, heads, head_dim], the LSE is [heads, tokens].
class any_decode_session {
  public:
    virtual ~any_decode_session() = default;
    virtual void append(const tensor& k, const tensor& v, void* stream) = 0;
    virtual void decode(const tensor& q, const tensor& out, const tensor& lse2, void* stream) = 0;
    virtual void step(const tensor& q, const tensor& k, const tensor& v, const tensor& out, const tensor& lse2,
                      void* stream) = 0;
    virtual void rewind(int length, void* stream) = 0;
    virtual int length() const = 0;
    virtual int capacity() const = 0;
};

struct decode_session_call {
    element type = element::none;
    int heads = 0, kv_heads = 0, head_dim = 0;
    int capacity = 0, tokens = 0, page_size = 0;
    std::optional<float> scale = {};
    double rope_theta = 0;  // 0: no RoPE
    int rotary_dim = 0;
    bool rope_interleaved = false;
    std::optional<int> window = {};  // keys before its own that a query sees
    std::optional<float> softcap = {};
    const float* sinks = nullptr;
    std::unique_ptr<any_decode_session>* made = nullptr;
};

// The template arguments: decode_session, bf16, 128, causal_mask, score_mod::identity
inline std::string decode_session_variant(const decode_session_call& c) {
    require(c.type == element::bf16 || c.type == element::fp16, "dtype: ", name_of(c.type), "; must be bf16 or fp16");
    return str_cat("decode_session, ", type_of(c.type), ", ", padded_head_dim(c.head_dim), ", ",
                   c.window ? "window_mask" : "causal_mask", ", ",
                   c.softcap ? "score_mod::softcap" : "score_mod::identity");
}

}  // namespace imbrex::bindings
