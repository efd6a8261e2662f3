/* The C API on a GPU: the results of the device are those of the host world. Returns 77 without a GPU. */
#include "../testing.h"

#include <cuda_runtime_api.h>

int failures = 0;

#define CUDA(call) CHECK((call) == cudaSuccess)

enum { rows = 200, heads = 4, kv_heads = 2, head_dim = 64, width = heads * head_dim, kv_width = kv_heads * head_dim };

/* bf16 values on the host and on the device. */
typedef struct mirrored {
    size_t count;
    uint16_t* host;
    void* device;
} mirrored;

static mirrored random_values(size_t count, uint32_t seed) {
    mirrored made;
    made.count = count;
    made.host = random_bf16(count, seed);
    CUDA(cudaMalloc(&made.device, 2 * count));
    CUDA(cudaMemcpy(made.device, made.host, 2 * count, cudaMemcpyHostToDevice));
    return made;
}

static void* at(const mirrored* m, imbrex_world world, size_t first) {
    return world == IMBREX_DEVICE ? (uint16_t*)m->device + first : m->host + first;
}

/* Compares what both worlds have written, and frees it. */
static void check_same(mirrored* m, double limit) {
    uint16_t* const found = malloc(2 * m->count);
    double worst = 0;
    size_t i;
    CUDA(cudaMemcpy(found, m->device, 2 * m->count, cudaMemcpyDeviceToHost));
    for (i = 0; i < m->count; ++i) worst = largest(fabs(from_bf16(found[i]) - from_bf16(m->host[i])), worst);
    CHECK(worst <= limit);
    free(found);
}

static void free_mirrored(mirrored* m) {
    free(m->host);
    CUDA(cudaFree(m->device));
}

static imbrex_tensor tensor(const mirrored* m, imbrex_world world, size_t first, int64_t tokens, int64_t count) {
    const int64_t sizes[3] = {tokens, count, head_dim};
    return imbrex_contiguous(at(m, world, first), IMBREX_BF16, 3, sizes);
}

static imbrex_execution execution_in(imbrex_world world, cudaStream_t stream) {
    imbrex_execution on;
    memset(&on, 0, sizeof on);
    on.size = sizeof on;
    on.world = world;
    on.stream = world == IMBREX_DEVICE ? (void*)stream : NULL;
    return on;
}

static void* take(void* context, size_t bytes) {
    void* memory = NULL;
    CUDA(cudaMallocAsync(&memory, bytes, (cudaStream_t)context));
    return memory;
}

/* Forward and backward. */
static void compare_attention(cudaStream_t stream) {
    mirrored q = random_values(rows * width, 1), k = random_values(rows * kv_width, 2);
    mirrored v = random_values(rows * kv_width, 3), d_out = random_values(rows * width, 4);
    mirrored out = random_values(rows * width, 5), d_q = random_values(rows * width, 6);
    mirrored d_k = random_values(rows * kv_width, 7), d_v = random_values(rows * kv_width, 8);
    mirrored* const all[] = {&q, &k, &v, &d_out, &out, &d_q, &d_k, &d_v};
    mirrored lse2 = random_values((size_t)2 * heads * rows, 9); /* as bytes of floats */
    imbrex_world world;
    size_t i;
    for (world = IMBREX_HOST; world <= IMBREX_DEVICE; world += IMBREX_DEVICE) {
        imbrex_execution on = execution_in(world, stream);
        imbrex_attention_arguments a;
        imbrex_attention_backward_arguments b;
        const int64_t lse_sizes[2] = {heads, rows};
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        a.size = sizeof a;
        b.size = sizeof b;
        a.mask = b.mask = IMBREX_MASK_CAUSAL;
        a.q = b.q = tensor(&q, world, 0, rows, heads);
        a.k = b.k = tensor(&k, world, 0, rows, kv_heads);
        a.v = b.v = tensor(&v, world, 0, rows, kv_heads);
        a.out = b.out = tensor(&out, world, 0, rows, heads);
        a.lse2 = b.lse2 = imbrex_contiguous(at(&lse2, world, 0), IMBREX_FLOAT, 2, lse_sizes);
        b.d_out = tensor(&d_out, world, 0, rows, heads);
        b.d_q = tensor(&d_q, world, 0, rows, heads);
        b.d_k = tensor(&d_k, world, 0, rows, kv_heads);
        b.d_v = tensor(&d_v, world, 0, rows, kv_heads);
        if (world == IMBREX_DEVICE) {
            CHECK_FAILS(imbrex_attention_backward(&on, &b), IMBREX_INVALID_ARGUMENT, "on.allocate: null");
            on.allocate = take;
            on.allocate_context = stream;
        }
        CHECK(imbrex_attention(&on, &a) == IMBREX_SUCCESS);
        CHECK(imbrex_attention_backward(&on, &b) == IMBREX_SUCCESS);
    }
    CUDA(cudaStreamSynchronize(stream));
    check_same(&out, 0.01);
    check_same(&d_q, 0.02);
    check_same(&d_k, 0.05);
    check_same(&d_v, 0.05);
    for (i = 0; i < sizeof all / sizeof *all; ++i) free_mirrored(all[i]);
    free_mirrored(&lse2);
}

static void compare_gemm(cudaStream_t stream) {
    enum { m = 300, n = 256, k = 128 };
    mirrored a = random_values(m * k, 1), b = random_values(n * k, 2), bias = random_values(n, 3);
    mirrored out = random_values(m * n, 4);
    imbrex_world world;
    for (world = IMBREX_HOST; world <= IMBREX_DEVICE; world += IMBREX_DEVICE) {
        const imbrex_execution on = execution_in(world, stream);
        const int64_t a_sizes[2] = {m, k}, b_sizes[2] = {k, n}, out_sizes[2] = {m, n};
        imbrex_gemm_arguments g;
        memset(&g, 0, sizeof g);
        g.size = sizeof g;
        g.a = imbrex_contiguous(at(&a, world, 0), IMBREX_BF16, 2, a_sizes);
        g.b = imbrex_contiguous(at(&b, world, 0), IMBREX_BF16, 2, b_sizes);
        g.b.strides[0] = 1;
        g.b.strides[1] = k;
        g.out = imbrex_contiguous(at(&out, world, 0), IMBREX_BF16, 2, out_sizes);
        g.bias = imbrex_contiguous(at(&bias, world, 0), IMBREX_BF16, 1, &b_sizes[1]);
        CHECK(imbrex_gemm(&on, &g) == IMBREX_SUCCESS);
    }
    CUDA(cudaStreamSynchronize(stream));
    check_same(&out, 0.15); /* half of the last bit of values up to 32 */
    free_mirrored(&a);
    free_mirrored(&b);
    free_mirrored(&bias);
    free_mirrored(&out);
}

/* A prompt and single tokens. */
static void compare_session(cudaStream_t stream) {
    mirrored q = random_values(rows * width, 1), k = random_values(rows * kv_width, 2);
    mirrored v = random_values(rows * kv_width, 3), out = random_values(rows * width, 4);
    imbrex_world world;
    for (world = IMBREX_HOST; world <= IMBREX_DEVICE; world += IMBREX_DEVICE) {
        const imbrex_execution on = execution_in(world, stream);
        imbrex_session_configuration c;
        imbrex_session* session = NULL;
        int first;
        memset(&c, 0, sizeof c);
        c.size = sizeof c;
        c.dtype = IMBREX_BF16;
        c.heads = heads;
        c.kv_heads = kv_heads;
        c.head_dim = head_dim;
        c.capacity = rows;
        c.rope_theta = 10000;
        CHECK(imbrex_session_create(&on, &c, &session) == IMBREX_SUCCESS);
        for (first = 0; first < rows; first += first == 0 ? 60 : 1) {
            const int count = first == 0 ? 60 : 1;
            const imbrex_tensor one_q = tensor(&q, world, (size_t)first * width, count, heads);
            const imbrex_tensor one_k = tensor(&k, world, (size_t)first * kv_width, count, kv_heads);
            const imbrex_tensor one_v = tensor(&v, world, (size_t)first * kv_width, count, kv_heads);
            const imbrex_tensor one_out = tensor(&out, world, (size_t)first * width, count, heads);
            CHECK(imbrex_session_step(session, &one_q, &one_k, &one_v, &one_out, NULL, on.stream) == IMBREX_SUCCESS);
        }
        CUDA(cudaStreamSynchronize(stream));
        imbrex_session_destroy(session);
    }
    check_same(&out, 0.02);
    free_mirrored(&q);
    free_mirrored(&k);
    free_mirrored(&v);
    free_mirrored(&out);
}

int main(void) {
    int devices = 0;
    cudaStream_t stream;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: there is no GPU\n");
        return 77;
    }
    CUDA(cudaStreamCreate(&stream));
    compare_attention(stream);
    compare_gemm(stream);
    compare_session(stream);
    CUDA(cudaStreamDestroy(stream));
    printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
