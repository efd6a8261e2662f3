/* Tests of the C API as a C program sees it: results against loops in double, errors, structures of other versions, the
 * checker. Plain C99. */
#include "testing.h"

int failures = 0;

imbrex_execution execution(imbrex_world world) {
    imbrex_execution on;
    memset(&on, 0, sizeof on);
    on.size = sizeof on;
    on.world = world;
    return on;
}

imbrex_tensor tensor1(void* data, imbrex_dtype dtype, int64_t a) {
    return imbrex_contiguous(data, dtype, 1, &a);
}

imbrex_tensor tensor2(void* data, imbrex_dtype dtype, int64_t a, int64_t b) {
    const int64_t sizes[2] = {a, b};
    return imbrex_contiguous(data, dtype, 2, sizes);
}

imbrex_tensor tensor3(void* data, imbrex_dtype dtype, int64_t a, int64_t b, int64_t c) {
    const int64_t sizes[3] = {a, b, c};
    return imbrex_contiguous(data, dtype, 3, sizes);
}

imbrex_tensor tensor4(void* data, imbrex_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t sizes[4] = {a, b, c, d};
    return imbrex_contiguous(data, dtype, 4, sizes);
}

int main(void) {
    test_attention();
    test_attention_backward();
    test_gemm();
    test_session();
    test_checking();
    test_errors();
    printf("%d failures\n", failures);
    return failures == 0 ? 0 : 1;
}
