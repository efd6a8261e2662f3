/* imbrex_gemm against loops in double. */
#include "testing.h"

typedef struct product {
    int batches, m, n, k;
    uint16_t *a, *b, *bias, *out;
    imbrex_gemm_arguments arguments;
} product;

/* out = a b^T + bias with contiguous a [m, k] and b [n, k]. */
static product make_product(int batches, int m, int n, int k) {
    product p;
    p.batches = batches;
    p.m = m;
    p.n = n;
    p.k = k;
    p.a = random_bf16((size_t)batches * m * k, 5);
    p.b = random_bf16((size_t)n * k, 6);
    p.bias = random_bf16((size_t)n, 7);
    p.out = unset((size_t)batches * m * n, sizeof *p.out);
    memset(&p.arguments, 0, sizeof p.arguments);
    p.arguments.size = sizeof p.arguments;
    p.arguments.a = tensor3(p.a, IMBREX_BF16, batches, m, k);
    p.arguments.b = tensor2(p.b, IMBREX_BF16, k, n);
    p.arguments.b.strides[0] = 1;
    p.arguments.b.strides[1] = k;
    p.arguments.out = tensor3(p.out, IMBREX_BF16, batches, m, n);
    p.arguments.bias = tensor1(p.bias, IMBREX_BF16, n);
    return p;
}

static void free_product(product* p) {
    free(p->a);
    free(p->b);
    free(p->bias);
    free(p->out);
}

static void check_product(const product* p) {
    double worst = 0;
    int row, column, i;
    for (row = 0; row < p->batches * p->m; ++row) {
        for (column = 0; column < p->n; ++column) {
            double expected = from_bf16(p->bias[column]), error;
            for (i = 0; i < p->k; ++i) {
                expected += (double)from_bf16(p->a[row * p->k + i]) * from_bf16(p->b[column * p->k + i]);
            }
            error = fabs(expected - from_bf16(p->out[row * p->n + column]));
            worst = largest(error / (1 + fabs(expected)), worst);
        }
    }
    CHECK(worst <= 0.005);
}

static void test_sizes(int batches, int m, int n, int k) {
    product p = make_product(batches, m, n, k);
    const imbrex_execution on = execution(IMBREX_HOST);
    CHECK(imbrex_gemm(&on, &p.arguments) == IMBREX_SUCCESS);
    check_product(&p);
    free_product(&p);
}

static void test_shapes_that_do_not_fit(void) {
    product p = make_product(2, 16, 24, 32);
    const imbrex_execution on = execution(IMBREX_HOST);
    imbrex_gemm_arguments a = p.arguments;
    a.b.sizes[0] = 31;
    CHECK_FAILS(imbrex_gemm(&on, &a), IMBREX_INVALID_ARGUMENT, "b: shape [31, 24]; [2, 32, 24] or [32, 24] is needed");
    a = p.arguments;
    a.b.strides[1] = 16;
    CHECK_FAILS(imbrex_gemm(&on, &a), IMBREX_INVALID_ARGUMENT, "b.strides: 1, 16; rows or columns must be contiguous");
    a = p.arguments;
    a.bias.sizes[0] = 23;
    CHECK_FAILS(imbrex_gemm(&on, &a), IMBREX_INVALID_ARGUMENT, "bias: shape [23]; 24 elements are needed");
    a = p.arguments;
    a.out.strides[2] = 2;
    CHECK_FAILS(imbrex_gemm(&on, &a), IMBREX_INVALID_ARGUMENT, "out.strides[2]: 2; the last dimension");
    a = p.arguments;
    a.out.strides[0] = 0;
    CHECK_FAILS(imbrex_gemm(&on, &a), IMBREX_INVALID_ARGUMENT, "out.batch_stride: 0");
    a = p.arguments;
    a.a.rank = 1;
    CHECK_FAILS(imbrex_gemm(&on, &a), IMBREX_INVALID_ARGUMENT, "a: shape [2]; [rows, columns]");
    a = p.arguments;
    a.a.dtype = a.b.dtype = IMBREX_FLOAT;
    CHECK_FAILS(imbrex_gemm(&on, &a), IMBREX_UNKNOWN_VARIANT, "gemm, float, bf16, matrix_layout::row_major");
    a = p.arguments;
    a.b.dtype = IMBREX_FP16;
    CHECK_FAILS(imbrex_gemm(&on, &a), IMBREX_INVALID_ARGUMENT, "b.dtype: fp16; must be bf16");
    free_product(&p);
}

void test_gemm(void) {
    test_sizes(1, 128, 256, 64);
    test_sizes(1, 1, 40, 72);
    test_sizes(1, 70, 33, 19);
    test_sizes(3, 20, 48, 32);
    test_sizes(1, 0, 8, 8);
    test_sizes(1, 4, 8, 0);
    test_shapes_that_do_not_fit();
}
