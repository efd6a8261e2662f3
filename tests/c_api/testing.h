/* Checks, random bf16 values and memory for the tests of the C API. */
#ifndef IMBREX_TESTS_C_API_TESTING_H
#define IMBREX_TESTS_C_API_TESTING_H

#include <imbrex_c.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int failures;

#define CHECK(condition)                                                  \
    do {                                                                  \
        if (!(condition)) {                                               \
            ++failures;                                                   \
            printf("%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition); \
            printf("    last error: %s\n", imbrex_last_error());          \
        }                                                                 \
    } while (0)

/* A call that fails with this status and a message that contains the text. */
#define CHECK_FAILS(call, wanted, text)                                                                            \
    do {                                                                                                           \
        const imbrex_status found_ = (call);                                                                       \
        if (found_ != (wanted) || strstr(imbrex_last_error(), (text)) == NULL) {                                   \
            ++failures;                                                                                            \
            printf("%s:%d: %s, \"%s\"\n    expected %s, \"%s\"\n", __FILE__, __LINE__, imbrex_status_name(found_), \
                   imbrex_last_error(), imbrex_status_name(wanted), text);                                         \
        }                                                                                                          \
    } while (0)

static inline float from_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* `count` random bf16 values with few significant bits, between -1 and 1; to be freed. */
static inline uint16_t* random_bf16(size_t count, uint32_t seed) {
    uint16_t* const values = malloc(count * sizeof *values + 1);
    size_t i;
    for (i = 0; i < count; ++i) {
        float value;
        uint32_t bits;
        seed = seed * 1664525u + 1013904223u;
        value = ((float)(seed >> 24) - 128.0f) / 128.0f;
        memcpy(&bits, &value, sizeof bits);
        values[i] = (uint16_t)(bits >> 16);
    }
    return values;
}

/* `count` elements that no test expects (NaN as a floating-point number); to be freed. */
static inline void* unset(size_t count, size_t element_bytes) {
    void* const values = malloc(count * element_bytes + 1);
    memset(values, 0xff, count * element_bytes);
    return values;
}

/* Unlike fmax, NaN if one is. */
static inline double largest(double a, double b) {
    return a >= b ? a : b;
}

imbrex_execution execution(imbrex_world world);
imbrex_tensor tensor1(void* data, imbrex_dtype dtype, int64_t a);
imbrex_tensor tensor2(void* data, imbrex_dtype dtype, int64_t a, int64_t b);
imbrex_tensor tensor3(void* data, imbrex_dtype dtype, int64_t a, int64_t b, int64_t c);
imbrex_tensor tensor4(void* data, imbrex_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t d);

void test_attention(void);
void test_attention_backward(void);
void test_gemm(void);
void test_session(void);
void test_checking(void);
void test_errors(void);

#endif
