/* imbrex_attention and imbrex_attention_backward against loops in double. */
#include "testing.h"

/* A problem [batch, sequence, heads, head_dim] and what the reference needs of it. */
typedef struct problem {
    int batch, seqlen_q, seqlen_k, heads, kv_heads, head_dim;
    uint16_t *q, *k, *v;
    int left, right; /* keys around its own that a query sees, or -1 */
    double scale, softcap;
    const float* sinks;
    const int32_t* seqused_k;
} problem;

static problem make_problem(int batch, int seqlen_q, int seqlen_k, int heads, int kv_heads, int head_dim) {
    problem p;
    memset(&p, 0, sizeof p);
    p.batch = batch;
    p.seqlen_q = seqlen_q;
    p.seqlen_k = seqlen_k;
    p.heads = heads;
    p.kv_heads = kv_heads;
    p.head_dim = head_dim;
    p.q = random_bf16((size_t)batch * seqlen_q * heads * head_dim, 1);
    p.k = random_bf16((size_t)batch * seqlen_k * kv_heads * head_dim, 2);
    p.v = random_bf16((size_t)batch * seqlen_k * kv_heads * head_dim, 3);
    p.left = p.right = -1;
    p.scale = 1 / sqrt((double)head_dim);
    return p;
}

static void free_problem(problem* p) {
    free(p->q);
    free(p->k);
    free(p->v);
}

static size_t query_at(const problem* p, int b, int row, int head) {
    return (((size_t)b * p->seqlen_q + row) * p->heads + head) * p->head_dim;
}
static size_t key_at(const problem* p, int b, int key, int head) {
    return (((size_t)b * p->seqlen_k + key) * p->kv_heads + head / (p->heads / p->kv_heads)) * p->head_dim;
}

/* The probabilities of one query; returns the natural LSE. */
static double probabilities(const problem* p, int b, int row, int head, double* weights) {
    const int keys = p->seqused_k == NULL ? p->seqlen_k : p->seqused_k[b];
    const int own = row + keys - p->seqlen_q;
    double sum = p->sinks == NULL ? 0 : exp((double)p->sinks[head]);
    int key, i;
    for (key = 0; key < p->seqlen_k; ++key) {
        double dot = 0;
        weights[key] = 0;
        if (key >= keys || (p->left >= 0 && key < own - p->left) || (p->right >= 0 && key > own + p->right)) continue;
        for (i = 0; i < p->head_dim; ++i) {
            dot +=
                (double)from_bf16(p->q[query_at(p, b, row, head) + i]) * from_bf16(p->k[key_at(p, b, key, head) + i]);
        }
        dot *= p->scale;
        if (p->softcap > 0) dot = p->softcap * tanh(dot / p->softcap);
        weights[key] = exp(dot);
        sum += weights[key];
    }
    for (key = 0; key < p->seqlen_k; ++key) weights[key] /= sum == 0 ? 1 : sum;
    return log(sum);
}

/* Compares out and lse2 with the reference. */
static void check_forward(const problem* p, const uint16_t* out, const float* lse2) {
    double* const weights = malloc(sizeof(double) * (size_t)p->seqlen_k);
    double worst = 0, worst_lse = 0;
    int b, row, head, key, i;
    for (b = 0; b < p->batch; ++b) {
        for (row = 0; row < p->seqlen_q; ++row) {
            for (head = 0; head < p->heads; ++head) {
                const double lse = probabilities(p, b, row, head, weights);
                const float found = lse2[((size_t)b * p->heads + head) * p->seqlen_q + row];
                worst_lse = largest(fabs(lse / log(2.0) - found), worst_lse);
                for (i = 0; i < p->head_dim; ++i) {
                    double expected = 0;
                    for (key = 0; key < p->seqlen_k; ++key) {
                        expected += weights[key] * from_bf16(p->v[key_at(p, b, key, head) + i]);
                    }
                    worst = largest(fabs(expected - from_bf16(out[query_at(p, b, row, head) + i])), worst);
                }
            }
        }
    }
    CHECK(worst <= 0.01);
    CHECK(worst_lse <= 0.001);
    free(weights);
}

static imbrex_attention_arguments arguments_of(const problem* p, uint16_t* out, float* lse2) {
    imbrex_attention_arguments a;
    memset(&a, 0, sizeof a);
    a.size = sizeof a;
    a.q = tensor4(p->q, IMBREX_BF16, p->batch, p->seqlen_q, p->heads, p->head_dim);
    a.k = tensor4(p->k, IMBREX_BF16, p->batch, p->seqlen_k, p->kv_heads, p->head_dim);
    a.v = tensor4(p->v, IMBREX_BF16, p->batch, p->seqlen_k, p->kv_heads, p->head_dim);
    a.out = tensor4(out, IMBREX_BF16, p->batch, p->seqlen_q, p->heads, p->head_dim);
    a.lse2 = tensor3(lse2, IMBREX_FLOAT, p->batch, p->heads, p->seqlen_q);
    a.mask = IMBREX_MASK_CAUSAL;
    return a;
}

static void test_causal(void) {
    problem p = make_problem(2, 70, 90, 4, 2, 64);
    const size_t elements = (size_t)2 * 70 * 4 * 64;
    uint16_t* const out = unset(elements, sizeof *out);
    float* const lse2 = unset((size_t)2 * 4 * 70, sizeof *lse2);
    const imbrex_execution on = execution(IMBREX_HOST);
    const imbrex_attention_arguments a = arguments_of(&p, out, lse2);
    p.right = 0;
    CHECK(imbrex_attention(&on, &a) == IMBREX_SUCCESS);
    check_forward(&p, out, lse2);
    free(out);
    free(lse2);
    free_problem(&p);
}

/* A narrower head_dim than the compiled one, scale, sinks, and lengths of a padded batch. */
static void test_options(void) {
    problem p = make_problem(2, 20, 50, 2, 1, 48);
    uint16_t* const out = unset((size_t)2 * 20 * 2 * 48, sizeof *out);
    float* const lse2 = unset((size_t)2 * 2 * 20, sizeof *lse2);
    float sinks[2] = {1.5f, -1.0f};
    int32_t seqused_k[2] = {50, 33};
    const imbrex_execution on = execution(IMBREX_HOST);
    imbrex_attention_arguments a = arguments_of(&p, out, lse2);
    a.scale = 0.3f;
    a.sinks = tensor1(sinks, IMBREX_FLOAT, 2);
    a.seqused_k = tensor1(seqused_k, IMBREX_INT32, 2);
    p.right = 0;
    p.scale = 0.3f;
    p.sinks = sinks;
    p.seqused_k = seqused_k;
    CHECK(imbrex_attention(&on, &a) == IMBREX_SUCCESS);
    check_forward(&p, out, lse2);
    free(out);
    free(lse2);
    free_problem(&p);
}

static void test_window_and_softcap(void) {
    problem p = make_problem(1, 60, 75, 2, 2, 64);
    uint16_t* const out = unset((size_t)60 * 2 * 64, sizeof *out);
    float* const lse2 = unset((size_t)2 * 60, sizeof *lse2);
    const imbrex_execution on = execution(IMBREX_HOST);
    imbrex_attention_arguments a = arguments_of(&p, out, lse2);
    a.mask = IMBREX_MASK_WINDOW;
    a.window_left = p.left = 9;
    a.window_right = p.right = 3;
    a.softcap = 0.5f;
    p.softcap = 0.5f;
    CHECK(imbrex_attention(&on, &a) == IMBREX_SUCCESS);
    check_forward(&p, out, lse2);
    a.window_left = p.left = -1;
    CHECK(imbrex_attention(&on, &a) == IMBREX_SUCCESS);
    check_forward(&p, out, lse2);
    free(out);
    free(lse2);
    free_problem(&p);
}

/* Q, K and V interleaved in one tensor [batch, sequence, 3, heads, head_dim]. */
static void test_strides(void) {
    problem p = make_problem(1, 33, 33, 2, 2, 64);
    const size_t row = 2 * 64, elements = 33 * row;
    uint16_t* const qkv = malloc(3 * elements * sizeof *qkv);
    uint16_t* const out = unset(elements, sizeof *out);
    float* const lse2 = unset((size_t)2 * 33, sizeof *lse2);
    const imbrex_execution on = execution(IMBREX_HOST);
    imbrex_attention_arguments a = arguments_of(&p, out, lse2);
    size_t i;
    for (i = 0; i < elements; ++i) {
        uint16_t* const to = qkv + i / row * 3 * row + i % row;
        to[0] = p.q[i];
        to[row] = p.k[i];
        to[2 * row] = p.v[i];
    }
    a.q.data = qkv;
    a.k.data = qkv + row;
    a.v.data = qkv + 2 * row;
    a.q.strides[1] = a.k.strides[1] = a.v.strides[1] = 3 * (int64_t)row;
    p.right = 0;
    CHECK(imbrex_attention(&on, &a) == IMBREX_SUCCESS);
    check_forward(&p, out, lse2);
    free(qkv);
    free(out);
    free(lse2);
    free_problem(&p);
}

/* Two sequences in one tensor have the results of two calls. */
static void test_varlen(void) {
    enum { first_q = 21, first_k = 40, all_q = 50, all_k = 77, width = 2 * 64 };
    problem p = make_problem(1, all_q, all_k, 2, 2, 64);
    uint16_t* const out = unset(all_q * width, sizeof *out);
    float* const lse2 = unset(2 * all_q, sizeof *lse2);
    int32_t cu_seqlens_q[3] = {0, first_q, all_q}, cu_seqlens_k[3] = {0, first_k, all_k};
    const imbrex_execution on = execution(IMBREX_HOST);
    imbrex_attention_arguments a = arguments_of(&p, out, lse2);
    int sequence, head, row;
    a.q = tensor3(p.q, IMBREX_BF16, all_q, 2, 64);
    a.k = tensor3(p.k, IMBREX_BF16, all_k, 2, 64);
    a.v = tensor3(p.v, IMBREX_BF16, all_k, 2, 64);
    a.out = tensor3(out, IMBREX_BF16, all_q, 2, 64);
    a.lse2 = tensor2(lse2, IMBREX_FLOAT, 2, all_q);
    a.cu_seqlens_q = tensor1(cu_seqlens_q, IMBREX_INT32, 3);
    a.cu_seqlens_k = tensor1(cu_seqlens_k, IMBREX_INT32, 3);
    CHECK(imbrex_attention(&on, &a) == IMBREX_SUCCESS);
    for (sequence = 0; sequence < 2; ++sequence) {
        const int from_q = cu_seqlens_q[sequence], from_k = cu_seqlens_k[sequence];
        float own_lse2[2 * all_q];
        problem one = p;
        one.seqlen_q = cu_seqlens_q[sequence + 1] - from_q;
        one.seqlen_k = cu_seqlens_k[sequence + 1] - from_k;
        one.q += from_q * width;
        one.k += from_k * width;
        one.v += from_k * width;
        one.right = 0;
        for (head = 0; head < 2; ++head) {
            for (row = 0; row < one.seqlen_q; ++row) {
                own_lse2[head * one.seqlen_q + row] = lse2[head * all_q + from_q + row];
            }
        }
        check_forward(&one, out + from_q * width, own_lse2);
    }
    a.cu_seqlens_k.dtype = IMBREX_NONE;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "cu_seqlens_k: null; 3 numbers are needed");
    a.cu_seqlens_k.dtype = IMBREX_INT32;
    a.cu_seqlens_q.dtype = IMBREX_NONE;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "cu_seqlens_q: shape []; a varlen batch needs");
    free(out);
    free(lse2);
    free_problem(&p);
}

static void test_no_queries(void) {
    problem p = make_problem(1, 0, 5, 1, 1, 64);
    const imbrex_execution on = execution(IMBREX_HOST);
    imbrex_attention_arguments a = arguments_of(&p, NULL, NULL);
    a.q.data = NULL;
    CHECK(imbrex_attention(&on, &a) == IMBREX_SUCCESS);
    free_problem(&p);
}

void test_attention(void) {
    test_causal();
    test_options();
    test_window_and_softcap();
    test_strides();
    test_varlen();
    test_no_queries();
}

/* The gradients of a causal problem, by the formula. */
static void reference_gradients(const problem* p, const uint16_t* d_out, double* d_q, double* d_k, double* d_v) {
    double* const weights = malloc(sizeof(double) * (size_t)p->seqlen_k);
    double* const d_weights = malloc(sizeof(double) * (size_t)p->seqlen_k);
    int b, row, head, key, i;
    for (b = 0; b < p->batch; ++b) {
        for (row = 0; row < p->seqlen_q; ++row) {
            for (head = 0; head < p->heads; ++head) {
                const size_t q = query_at(p, b, row, head);
                double delta = 0;
                probabilities(p, b, row, head, weights);
                for (key = 0; key < p->seqlen_k; ++key) {
                    const size_t k = key_at(p, b, key, head);
                    d_weights[key] = 0;
                    for (i = 0; i < p->head_dim; ++i) {
                        d_weights[key] += (double)from_bf16(d_out[q + i]) * from_bf16(p->v[k + i]);
                        d_v[k + i] += weights[key] * from_bf16(d_out[q + i]);
                    }
                    delta += weights[key] * d_weights[key];
                }
                for (key = 0; key < p->seqlen_k; ++key) {
                    const size_t k = key_at(p, b, key, head);
                    const double d_score = weights[key] * (d_weights[key] - delta) * p->scale;
                    for (i = 0; i < p->head_dim; ++i) {
                        d_q[q + i] += d_score * from_bf16(p->k[k + i]);
                        d_k[k + i] += d_score * from_bf16(p->q[q + i]);
                    }
                }
            }
        }
    }
    free(weights);
    free(d_weights);
}

static double worst_error(const double* expected, const uint16_t* found, size_t count) {
    double worst = 0;
    size_t i;
    for (i = 0; i < count; ++i) worst = largest(fabs(expected[i] - from_bf16(found[i])), worst);
    return worst;
}

/* Counts the bytes that the library asks for. */
typedef struct workspace {
    size_t bytes;
    void* memory;
    int refuses;
} workspace;

static void* take(void* context, size_t bytes) {
    workspace* const w = context;
    w->bytes = bytes;
    if (w->refuses) return NULL;
    w->memory = calloc(1, bytes + 256);
    return (void*)(((uintptr_t)w->memory + 255) / 256 * 256);
}

void test_attention_backward(void) {
    problem p = make_problem(1, 40, 56, 4, 2, 64);
    const size_t queries = (size_t)40 * 4 * 64, keys = (size_t)56 * 2 * 64;
    uint16_t *const out = unset(queries, 2), *const d_out = random_bf16(queries, 4);
    uint16_t *const d_q = unset(queries, 2), *const d_k = unset(keys, 2), *const d_v = unset(keys, 2);
    float* const lse2 = unset((size_t)4 * 40, sizeof *lse2);
    double *const expected_q = calloc(queries, sizeof(double)), *const expected_k = calloc(keys, sizeof(double));
    double* const expected_v = calloc(keys, sizeof(double));
    imbrex_execution on = execution(IMBREX_HOST);
    const imbrex_attention_arguments forward = arguments_of(&p, out, lse2);
    imbrex_attention_backward_arguments a;
    workspace taken = {0, NULL, 0};
    memset(&a, 0, sizeof a);
    a.size = sizeof a;
    a.q = forward.q;
    a.k = forward.k;
    a.v = forward.v;
    a.out = forward.out;
    a.lse2 = forward.lse2;
    a.mask = IMBREX_MASK_CAUSAL;
    a.d_out = forward.out;
    a.d_out.data = d_out;
    a.d_q = forward.q;
    a.d_q.data = d_q;
    a.d_k = forward.k;
    a.d_k.data = d_k;
    a.d_v = forward.v;
    a.d_v.data = d_v;
    p.right = 0;
    CHECK(imbrex_attention(&on, &forward) == IMBREX_SUCCESS);
    CHECK(imbrex_attention_backward(&on, &a) == IMBREX_SUCCESS);
    reference_gradients(&p, d_out, expected_q, expected_k, expected_v);
    CHECK(worst_error(expected_q, d_q, queries) <= 0.02);
    CHECK(worst_error(expected_k, d_k, keys) <= 0.02);
    CHECK(worst_error(expected_v, d_v, keys) <= 0.02);

    /* The same with workspace of the caller. */
    memset(d_q, 0xff, queries * sizeof *d_q);
    on.allocate = take;
    on.allocate_context = &taken;
    CHECK(imbrex_attention_backward(&on, &a) == IMBREX_SUCCESS);
    CHECK(taken.bytes > 0);
    CHECK(worst_error(expected_q, d_q, queries) <= 0.02);
    taken.refuses = 1;
    CHECK(imbrex_attention_backward(&on, &a) == IMBREX_OUT_OF_MEMORY);
    a.deterministic = 1;
    CHECK_FAILS(imbrex_attention_backward(&on, &a), IMBREX_UNKNOWN_VARIANT,
                "attention_backward, bf16, 64, 64, causal_mask, score_mod::identity, true for the host");
    a.out.dtype = IMBREX_NONE;
    CHECK_FAILS(imbrex_attention_backward(&on, &a), IMBREX_INVALID_ARGUMENT, "out: not given");

    free(taken.memory);
    free(out);
    free(d_out);
    free(d_q);
    free(d_k);
    free(d_v);
    free(lse2);
    free(expected_q);
    free(expected_k);
    free(expected_v);
    free_problem(&p);
}
