/* The checker through the C API: silent on correct calls; aliased tensors are a race. */
#include "testing.h"

enum { rows = 256, head_dim = 64 };

static imbrex_attention_arguments small_attention(uint16_t* q, uint16_t* k, uint16_t* v, uint16_t* out) {
    imbrex_attention_arguments a;
    memset(&a, 0, sizeof a);
    a.size = sizeof a;
    a.q = tensor4(q, IMBREX_BF16, 1, rows, 1, head_dim);
    a.k = tensor4(k, IMBREX_BF16, 1, rows, 1, head_dim);
    a.v = tensor4(v, IMBREX_BF16, 1, rows, 1, head_dim);
    a.out = tensor4(out, IMBREX_BF16, 1, rows, 1, head_dim);
    a.mask = IMBREX_MASK_CAUSAL;
    return a;
}

static void test_one_call(void) {
    uint16_t *const q = random_bf16(rows * head_dim, 1), *const k = random_bf16(rows * head_dim, 2);
    uint16_t *const v = random_bf16(rows * head_dim, 3), *const out = unset(rows * head_dim, 2);
    imbrex_execution on = execution(IMBREX_HOST_CHECKED);
    imbrex_attention_arguments a = small_attention(q, k, v, out);
    on.schedules = 5;
    CHECK(imbrex_attention(&on, &a) == IMBREX_SUCCESS);
    CHECK(out[0] != 0xffff && out[rows * head_dim - 1] != 0xffff);
    a.out.data = k; /* blocks write O where others still read K */
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_HAZARD, "hazard: race");
    CHECK(strstr(imbrex_last_error(), "attention/") != NULL);
    free(q);
    free(k);
    free(v);
    free(out);
}

/* Work of imbrex_check: a token of a session, decoded into `out`. */
typedef struct work {
    uint16_t *q, *k, *v, *out;
    int runs;
    imbrex_status last;
} work;

static imbrex_status decode_a_token(void* context) {
    work* const w = context;
    const imbrex_execution on = execution(IMBREX_HOST_CHECKED);
    imbrex_session_configuration given;
    imbrex_session* session = NULL;
    const imbrex_tensor q = tensor3(w->q, IMBREX_BF16, 1, 2, head_dim), k = tensor3(w->k, IMBREX_BF16, 1, 1, head_dim);
    const imbrex_tensor v = tensor3(w->v, IMBREX_BF16, 1, 1, head_dim),
                        out = tensor3(w->out, IMBREX_BF16, 1, 2, head_dim);
    imbrex_status status;
    memset(&given, 0, sizeof given);
    given.size = sizeof given;
    given.dtype = IMBREX_BF16;
    given.heads = 2;
    given.kv_heads = 1;
    given.head_dim = head_dim;
    given.capacity = 16;
    given.page_size = 16;
    ++w->runs;
    status = imbrex_session_create(&on, &given, &session);
    if (status == IMBREX_SUCCESS) status = imbrex_session_step(session, &q, &k, &v, &out, NULL, NULL);
    if (status == IMBREX_SUCCESS) status = imbrex_session_step(session, &q, &k, &v, &out, NULL, NULL);
    imbrex_session_destroy(session);
    w->last = status;
    return status;
}

static imbrex_status race(void* context) {
    work* const w = context;
    const imbrex_execution on = execution(IMBREX_HOST_CHECKED);
    const imbrex_attention_arguments a = small_attention(w->q, w->k, w->v, w->k);
    ++w->runs;
    w->last = imbrex_attention(&on, &a);
    if (w->last == IMBREX_HAZARD) CHECK(imbrex_attention(&on, &a) == IMBREX_HAZARD); /* nothing is launched after it */
    return IMBREX_SUCCESS; /* the hazard is found all the same */
}

static imbrex_status fail(void* context) {
    ++((work*)context)->runs;
    return imbrex_gemm(NULL, NULL);
}

static void test_several_calls(void) {
    imbrex_execution on = execution(IMBREX_HOST_CHECKED);
    work w;
    memset(&w, 0, sizeof w);
    w.q = random_bf16(rows * head_dim, 1);
    w.k = random_bf16(rows * head_dim, 2);
    w.v = random_bf16(rows * head_dim, 3);
    w.out = unset(rows * head_dim, 2);
    on.schedules = 8;
    CHECK(imbrex_check(&on, decode_a_token, &w) == IMBREX_SUCCESS);
    CHECK(w.runs == 8);
    w.runs = 0;
    CHECK_FAILS(imbrex_check(&on, race, &w), IMBREX_HAZARD, "hazard: race");
    CHECK(w.runs >= 1);
    w.runs = 0;
    CHECK_FAILS(imbrex_check(&on, fail, &w), IMBREX_INVALID_ARGUMENT, "on: null");
    CHECK(w.runs == 1);
    on.world = IMBREX_HOST;
    CHECK_FAILS(imbrex_check(&on, fail, &w), IMBREX_INVALID_ARGUMENT, "on.world: 0; must be 1, IMBREX_HOST_CHECKED");
    on.world = IMBREX_HOST_CHECKED;
    CHECK_FAILS(imbrex_check(&on, NULL, &w), IMBREX_INVALID_ARGUMENT, "work: null");
    free(w.q);
    free(w.k);
    free(w.v);
    free(w.out);
}

void test_checking(void) {
    test_one_call();
    test_several_calls();
}
