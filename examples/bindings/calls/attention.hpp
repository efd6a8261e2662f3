// What attention_forward, attention_backward and their callers share: functors whose types are known at run time only.
#pragma once

#include "../tensor.hpp"

#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

namespace imbrex::bindings {

// The members of a mask or score_mod, in their order, as the compiler lays them out.
struct functor_members {
    static constexpr int capacity = 128;

    alignas(8) std::byte bytes[capacity] = {};
    int used = 0;
    int alignment = 1;

    template <class T>
    void add(const T& member) {
        const int at =
            (used + static_cast<int>(alignof(T)) - 1) / static_cast<int>(alignof(T)) * static_cast<int>(alignof(T));
        require(at + static_cast<int>(sizeof(T)) <= capacity, "members: more than ", capacity,
                " bytes; that is the limit of a mask or score_mod");
        std::memcpy(bytes + at, &member, sizeof(T));
        used = at + static_cast<int>(sizeof(T));
        if (alignment < static_cast<int>(alignof(T))) alignment = static_cast<int>(alignof(T));
    }
    int size() const { return (used + alignment - 1) / alignment * alignment; }

    template <class Functor>
    Functor make(const char* name) const {
        static_assert(std::is_trivially_copyable_v<Functor>,
                      "imbrex: a mask or score_mod is trivially copyable: numbers and pointers");
        constexpr int needed = std::is_empty_v<Functor> ? 0 : static_cast<int>(sizeof(Functor));
        require(size() == needed, name, ": ", size(), " bytes of members; the compiled type has ", needed);
        Functor made{};
        if constexpr (needed > 0) std::memcpy(static_cast<void*>(&made), bytes, sizeof(Functor));
        return made;
    }
};

// The arguments that forward and backward have in common.
struct attention_inputs {
    tensor q, k, v;
    std::optional<float> scale = {};
    tensor sinks = {};
    tensor seqused_k = {};
    tensor cu_seqlens_q = {};
    tensor cu_seqlens_k = {};
    functor_members mask = {};
    functor_members score = {};

    std::int64_t sequences() const { return cu_seqlens_q.given() ? cu_seqlens_q.count() - 1 : q.sizes[0]; }

    template <class Problem>
    void give_to(Problem& p) const {
        p.scale = scale;
        p.sinks = elements_of<const float>(sinks, "sinks", q.sizes[q.rank - 2]);
        p.seqused_k = elements_of<const int>(seqused_k, "seqused_k", sequences());
        if (cu_seqlens_q.given() || cu_seqlens_k.given()) {
            p.varlen.count = static_cast<int>(cu_seqlens_q.count()) - 1;
            p.varlen.cu_seqlens_q = elements_of<const int>(cu_seqlens_q, "cu_seqlens_q");
            p.varlen.cu_seqlens_k = elements_of<const int>(cu_seqlens_k, "cu_seqlens_k", p.varlen.count + 1);
        }
    }
};

// A head_dim between those that kernels are made for takes the next larger one.
inline int padded_head_dim(std::int64_t head_dim) {
    for (const int compiled : {64, 96, 128, 192}) {
        if (head_dim <= compiled) return compiled;
    }
    return 256;
}

// The template arguments of a variant: bf16, 128, 128, causal_mask, score_mod::identity.
inline std::string attention_variant(const char* binding, const attention_inputs& in, const std::string& mask,
                                     const std::string& score) {
    require(in.q.type == element::bf16 || in.q.type == element::fp16, "q.dtype: ", name_of(in.q.type),
            "; must be bf16 or fp16");
    int qk = padded_head_dim(in.q.sizes[in.q.rank - 1]), v = padded_head_dim(in.v.sizes[in.v.rank - 1]);
    if (qk != v && !(qk == 192 && v == 128)) qk = v = qk > v ? qk : v;
    return str_cat(binding, ", ", type_of(in.q.type), ", ", qk, ", ", v, ", ", mask, ", ", score);
}

}  // namespace imbrex::bindings
