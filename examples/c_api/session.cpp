#include "checking.hpp"
#include "execution.hpp"
#include "status.hpp"

#include "../bindings/calls/decode_session.hpp"

#include <memory>

struct imbrex_session {
    std::unique_ptr<imbrex::bindings::any_decode_session> session;
    bool checked;
};

namespace imbrex_c {

namespace {

using imbrex::bindings::tensor;

imbrex::bindings::decode_session_call call_of(const imbrex_session_configuration& c) {
    imbrex::bindings::decode_session_call call;
    require(c.dtype == IMBREX_BF16 || c.dtype == IMBREX_FP16, "dtype: ", c.dtype,
            "; must be IMBREX_BF16 or IMBREX_FP16");
    require(c.window >= 0, "window: ", c.window, "; must be a number of keys, or 0 for all");
    require(c.softcap >= 0, "softcap: ", c.softcap, "; must be positive, or 0 for none");
    call.type = static_cast<imbrex::bindings::element>(c.dtype);
    call.heads = c.heads;
    call.kv_heads = c.kv_heads;
    call.head_dim = c.head_dim;
    call.capacity = c.capacity;
    call.tokens = c.tokens == 0 ? 64 : c.tokens;
    call.page_size = c.page_size == 0 ? 64 : c.page_size;
    if (c.scale != 0) call.scale = c.scale;
    if (c.window > 0) call.window = c.window;
    if (c.softcap > 0) call.softcap = c.softcap;
    call.rope_theta = c.rope_theta;
    call.rotary_dim = c.rotary_dim == 0 ? c.head_dim : c.rotary_dim;
    call.rope_interleaved = c.rope_interleaved != 0;
    call.sinks = c.sinks;
    return call;
}

imbrex::bindings::any_decode_session& session_of(imbrex_session* session) {
    require(session != nullptr, "session: null; imbrex_session_create makes one");
    if (session->checked) is_checking();
    return *session->session;
}

tensor tensor_at(const imbrex_tensor* t, const char* name) {
    require(t != nullptr, name, ": null; a tensor is needed");
    return needed_tensor(*t, name);
}
tensor optional_tensor_at(const imbrex_tensor* t, const char* name) {
    return t == nullptr ? tensor{} : optional_tensor(*t, name);
}

}  // namespace

}  // namespace imbrex_c

using namespace imbrex_c;

imbrex_status imbrex_session_create(const imbrex_execution* on, const imbrex_session_configuration* configuration,
                                    imbrex_session** session) {
    return guarded([&] {
        require(session != nullptr, "session: null; the address of a pointer is needed");
        *session = nullptr;
        execution_on here(on);
        auto call = call_of(structure_given(configuration, "configuration"));
        auto made = std::make_unique<imbrex_session>();
        made->checked = here.where() == imbrex::world::host_checked;
        call.made = &made->session;
        here.run(decode_session_variant(call), call);
        *session = made.release();
    });
}

void imbrex_session_destroy(imbrex_session* session) {
    delete session;
}

imbrex_status imbrex_session_append(imbrex_session* session, const imbrex_tensor* k, const imbrex_tensor* v,
                                    void* stream) {
    return guarded([&] { session_of(session).append(tensor_at(k, "k"), tensor_at(v, "v"), stream); });
}

imbrex_status imbrex_session_decode(imbrex_session* session, const imbrex_tensor* q, const imbrex_tensor* out,
                                    const imbrex_tensor* lse2, void* stream) {
    return guarded([&] {
        session_of(session).decode(tensor_at(q, "q"), tensor_at(out, "out"), optional_tensor_at(lse2, "lse2"), stream);
    });
}

imbrex_status imbrex_session_step(imbrex_session* session, const imbrex_tensor* q, const imbrex_tensor* k,
                                  const imbrex_tensor* v, const imbrex_tensor* out, const imbrex_tensor* lse2,
                                  void* stream) {
    return guarded([&] {
        session_of(session).step(tensor_at(q, "q"), tensor_at(k, "k"), tensor_at(v, "v"), tensor_at(out, "out"),
                                 optional_tensor_at(lse2, "lse2"), stream);
    });
}

imbrex_status imbrex_session_rewind(imbrex_session* session, std::int32_t length, void* stream) {
    return guarded([&] { session_of(session).rewind(length, stream); });
}

std::int32_t imbrex_session_length(const imbrex_session* session) {
    return session == nullptr ? -1 : session->session->length();
}

std::int32_t imbrex_session_capacity(const imbrex_session* session) {
    return session == nullptr ? -1 : session->session->capacity();
}
