/* A decode session with RoPE against loops in double. */
#include "testing.h"

enum { heads = 4, kv_heads = 2, head_dim = 64, prompt = 20, tokens = 26 };

typedef struct conversation {
    uint16_t *q, *k, *v, *out;
    float* lse2;
} conversation;

static conversation make_conversation(void) {
    conversation c;
    c.q = random_bf16((size_t)tokens * heads * head_dim, 8);
    c.k = random_bf16((size_t)tokens * kv_heads * head_dim, 9);
    c.v = random_bf16((size_t)tokens * kv_heads * head_dim, 10);
    c.out = unset((size_t)tokens * heads * head_dim, 2);
    c.lse2 = unset((size_t)tokens * heads, sizeof(float));
    return c;
}

static void free_conversation(conversation* c) {
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->out);
    free(c->lse2);
}

static imbrex_tensor queries(uint16_t* data, int first, int count) {
    return tensor3(data + (size_t)first * heads * head_dim, IMBREX_BF16, count, heads, head_dim);
}
static imbrex_tensor keys(uint16_t* data, int first, int count) {
    return tensor3(data + (size_t)first * kv_heads * head_dim, IMBREX_BF16, count, kv_heads, head_dim);
}

static imbrex_session_configuration configuration(void) {
    imbrex_session_configuration c;
    memset(&c, 0, sizeof c);
    c.size = sizeof c;
    c.dtype = IMBREX_BF16;
    c.heads = heads;
    c.kv_heads = kv_heads;
    c.head_dim = head_dim;
    c.capacity = 40;
    c.page_size = 16;
    c.rope_theta = 10000;
    return c;
}

/* The error of one token's output. The product of a rotated query and key depends on their distance. */
static double error_of(const conversation* c, int token) {
    double worst = 0;
    int head, past, i;
    for (head = 0; head < heads; ++head) {
        const uint16_t* const query = c->q + (token * heads + head) * head_dim;
        double expected[head_dim] = {0}, sum = 0;
        for (past = 0; past <= token; ++past) {
            const int row = (past * kv_heads + head / (heads / kv_heads)) * head_dim, half = head_dim / 2;
            double dot = 0, weight;
            for (i = 0; i < half; ++i) {
                const double angle = (token - past) * pow(10000.0, -2.0 * i / head_dim);
                const double a = from_bf16(query[i]), b = from_bf16(query[i + half]);
                const double x = from_bf16(c->k[row + i]), y = from_bf16(c->k[row + i + half]);
                dot += (a * x + b * y) * cos(angle) + (a * y - b * x) * sin(angle);
            }
            weight = exp(dot / sqrt((double)head_dim));
            sum += weight;
            for (i = 0; i < head_dim; ++i) expected[i] += weight * from_bf16(c->v[row + i]);
        }
        for (i = 0; i < head_dim; ++i) {
            const double found = from_bf16(c->out[(token * heads + head) * head_dim + i]);
            worst = largest(fabs(expected[i] / sum - found), worst);
        }
    }
    return worst;
}

/* A prompt at once, then a token at a time: by step, and by append and decode. Drafts are discarded. */
static void test_tokens(void) {
    conversation c = make_conversation();
    const imbrex_execution on = execution(IMBREX_HOST);
    const imbrex_session_configuration given = configuration();
    imbrex_session* session = NULL;
    double worst = 0;
    int token;
    CHECK(imbrex_session_create(&on, &given, &session) == IMBREX_SUCCESS);
    CHECK(imbrex_session_length(session) == 0 && imbrex_session_capacity(session) == 48);
    for (token = 0; token < tokens;) {
        const int count = token == 0 ? prompt : 1;
        const imbrex_tensor q = queries(c.q, token, count), out = queries(c.out, token, count);
        const imbrex_tensor k = keys(c.k, token, count), v = keys(c.v, token, count);
        const imbrex_tensor lse2 = tensor2(c.lse2, IMBREX_FLOAT, heads, count);
        if (token % 2 == 0) {
            CHECK(imbrex_session_step(session, &q, &k, &v, &out, &lse2, NULL) == IMBREX_SUCCESS);
            CHECK(c.lse2[0] == c.lse2[0] && c.lse2[heads * count - 1] == c.lse2[heads * count - 1]);
        } else {
            CHECK(imbrex_session_append(session, &k, &v, NULL) == IMBREX_SUCCESS);
            CHECK(imbrex_session_decode(session, &q, &out, NULL, NULL) == IMBREX_SUCCESS);
        }
        token += count;
        CHECK(imbrex_session_length(session) == token);
        if (token == 23) { /* two drafts, rejected */
            const imbrex_tensor draft_k = keys(c.k, 0, 2), draft_v = keys(c.v, 0, 2);
            CHECK(imbrex_session_append(session, &draft_k, &draft_v, NULL) == IMBREX_SUCCESS);
            CHECK(imbrex_session_rewind(session, token, NULL) == IMBREX_SUCCESS);
        }
    }
    for (token = 0; token < tokens; ++token) worst = largest(error_of(&c, token), worst);
    CHECK(worst <= 0.02);
    imbrex_session_destroy(session);
    free_conversation(&c);
}

static void test_session_errors(void) {
    conversation c = make_conversation();
    const imbrex_execution on = execution(IMBREX_HOST);
    imbrex_session_configuration given = configuration();
    imbrex_session* session = NULL;
    const imbrex_tensor q = queries(c.q, 0, 1), k = keys(c.k, 0, 1), v = keys(c.v, 0, 1), out = queries(c.out, 0, 1);
    const imbrex_tensor many_k = keys(c.k, 0, tokens), many_v = keys(c.v, 0, tokens);
    CHECK_FAILS(imbrex_session_create(&on, &given, NULL), IMBREX_INVALID_ARGUMENT, "session: null");
    CHECK_FAILS(imbrex_session_create(&on, NULL, &session), IMBREX_INVALID_ARGUMENT, "configuration: null");
    given.kv_heads = 3;
    CHECK_FAILS(imbrex_session_create(&on, &given, &session), IMBREX_INVALID_ARGUMENT,
                "kv_heads: 3; the 4 query heads");
    CHECK(session == NULL);
    given = configuration();
    given.dtype = IMBREX_FLOAT;
    CHECK_FAILS(imbrex_session_create(&on, &given, &session), IMBREX_INVALID_ARGUMENT,
                "dtype: 3; must be IMBREX_BF16 or IMBREX_FP16");
    given = configuration();
    given.window = 5;
    CHECK_FAILS(imbrex_session_create(&on, &given, &session), IMBREX_UNKNOWN_VARIANT,
                "decode_session, bf16, 64, window_mask, score_mod::identity for the host");
    given = configuration();
    CHECK(imbrex_session_create(&on, &given, &session) == IMBREX_SUCCESS);
    CHECK_FAILS(imbrex_session_decode(session, &q, &out, NULL, NULL), IMBREX_INVALID_ARGUMENT, "0 tokens");
    CHECK_FAILS(imbrex_session_append(session, &k, NULL, NULL), IMBREX_INVALID_ARGUMENT, "v: null");
    CHECK_FAILS(imbrex_session_append(session, &q, &v, NULL), IMBREX_INVALID_ARGUMENT, "k.extents[1]: 4");
    CHECK_FAILS(imbrex_session_rewind(session, 1, NULL), IMBREX_INVALID_ARGUMENT,
                "length: 1; the sequence has 0 tokens");
    CHECK(imbrex_session_append(session, &many_k, &many_v, NULL) == IMBREX_SUCCESS);
    CHECK_FAILS(imbrex_session_append(session, &many_k, &many_v, NULL), IMBREX_INVALID_ARGUMENT,
                "has room for 48 keys");
    CHECK_FAILS(imbrex_session_append(NULL, &k, &v, NULL), IMBREX_INVALID_ARGUMENT, "session: null");
    CHECK(imbrex_session_length(NULL) == -1 && imbrex_session_capacity(NULL) == -1);
    imbrex_session_destroy(session);
    imbrex_session_destroy(NULL);
    free_conversation(&c);
}

void test_session(void) {
    test_tokens();
    test_session_errors();
}
