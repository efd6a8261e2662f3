// decode_session behind virtual functions, made by a plain function (../variant.hpp).
#pragma once

#include "../calls/decode_session.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/decode_session.hpp>

#include <memory>
#include <type_traits>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class In, int HeadDim, class Mask, class Score>
struct decode_session {
    using call = decode_session_call;

    static void run(const execution& on, const call& c) { *c.made = std::make_unique<session>(on.where, c); }

  private:
    class session final : public any_decode_session {
      public:
        session(world where, const call& c) : session_(where, configuration_of(c), mask_of(c), score_of(c)) {}

        void append(const tensor& k, const tensor& v, void* stream) override {
            session_.append(in(k, "k"), in(v, "v"), stream);
        }
        void decode(const tensor& q, const tensor& out, const tensor& lse2, void* stream) override {
            session_.decode(in(q, "q"), attention_view_of<In>(out, "out"), attention_rows_of(lse2, "lse2", q), stream);
        }
        void step(const tensor& q, const tensor& k, const tensor& v, const tensor& out, const tensor& lse2,
                  void* stream) override {
            session_.step(in(q, "q"), in(k, "k"), in(v, "v"), attention_view_of<In>(out, "out"),
                          attention_rows_of(lse2, "lse2", q), stream);
        }
        void rewind(int length, void* stream) override { session_.rewind(length, stream); }
        int length() const override { return session_.length(); }
        int capacity() const override { return session_.capacity(); }

      private:
        static attention_view<const In> in(const tensor& t, const char* name) {
            return attention_view_of<const In>(t, name);
        }
        static decode_session_configuration configuration_of(const call& c) {
            decode_session_configuration made{.heads = c.heads,
                                              .kv_heads = c.kv_heads,
                                              .head_dim = c.head_dim,
                                              .capacity = c.capacity,
                                              .tokens = c.tokens,
                                              .page_size = c.page_size,
                                              .scale = c.scale,
                                              .sinks = c.sinks};
            if (c.rope_theta != 0) made.rope = rope_frequencies{.theta = c.rope_theta, .rotary_dim = c.rotary_dim};
            made.style = c.rope_interleaved ? rope_style::interleaved : rope_style::half_split;
            return made;
        }
        static Mask mask_of(const call& c) {
            if constexpr (std::is_same_v<Mask, window_mask>) {
                return {c.window.value_or(unbounded), 0};
            } else {
                return {};
            }
        }
        static Score score_of(const call& c) {
            if constexpr (std::is_same_v<Score, score_mod::softcap>) {
                return {c.softcap.value()};
            } else {
                return {};
            }
        }

        imbrex::decode_session<In, head_dim_set{HeadDim}, Mask, Score> session_;
    };
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
