/* Status codes and messages, and structures of other versions. */
#include "testing.h"

static uint16_t elements[64 * 64];

static imbrex_attention_arguments valid(void) {
    imbrex_attention_arguments a;
    memset(&a, 0, sizeof a);
    a.size = sizeof a;
    a.q = a.k = a.v = a.out = tensor4(elements, IMBREX_BF16, 1, 8, 1, 64);
    a.out.data = elements + 8 * 64;
    a.mask = IMBREX_MASK_CAUSAL;
    return a;
}

static void test_null_pointers(void) {
    const imbrex_execution on = execution(IMBREX_HOST);
    imbrex_attention_arguments a = valid();
    CHECK_FAILS(imbrex_attention(NULL, &a), IMBREX_INVALID_ARGUMENT, "on: null; a structure is needed");
    CHECK_FAILS(imbrex_attention(&on, NULL), IMBREX_INVALID_ARGUMENT, "arguments: null; a structure is needed");
    CHECK_FAILS(imbrex_attention_backward(&on, NULL), IMBREX_INVALID_ARGUMENT, "arguments: null");
    CHECK_FAILS(imbrex_gemm(&on, NULL), IMBREX_INVALID_ARGUMENT, "arguments: null");
    a.k.data = NULL;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "k.data: null; it has 512 elements");
}

static void test_tensors(void) {
    const imbrex_execution on = execution(IMBREX_HOST);
    imbrex_attention_arguments a = valid();
    a.v.dtype = IMBREX_NONE;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "v: not given (IMBREX_NONE); it is needed");
    a.v.dtype = 9;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "v.dtype: 9; there is no such type");
    a.v.dtype = IMBREX_FLOAT;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "v.dtype: float; must be bf16");
    a = valid();
    a.q.dtype = IMBREX_FLOAT;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "q.dtype: float; must be bf16 or fp16");
    a = valid();
    a.q.rank = 6;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "q.rank: 6; must be 1 to 5");
    a = valid();
    a.q.rank = 2;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT,
                "q: shape [1, 8]; [batch, sequence, heads, head_dim]");
    a = valid();
    a.k.sizes[1] = -1;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "k.sizes[1]: -1; must not be negative");
    a = valid();
    a.k.sizes[2] = 3;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "heads");
    a = valid();
    a.q.strides[3] = 2;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT,
                "q.strides[3]: 2; the last dimension must be contiguous");
    a = valid();
    a.lse2 = tensor3(elements, IMBREX_FLOAT, 1, 1, 7);
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT,
                "lse2: shape [1, 1, 7]; [batch, heads, sequence] is needed for q of shape [1, 8, 1, 64]");
    a = valid();
    a.sinks = tensor1(elements, IMBREX_FLOAT, 2);
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "sinks: shape [2]; 1 elements are needed");
}

static void test_values(void) {
    imbrex_execution on = execution(IMBREX_HOST);
    imbrex_attention_arguments a = valid();
    a.mask = 7;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "mask: 7; must be IMBREX_MASK_FULL");
    a.mask = IMBREX_MASK_WINDOW;
    a.window_left = -2;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "window_left: -2; must be a number of keys");
    a = valid();
    a.softcap = -1;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "softcap: -1; must be positive");
    a = valid();
    a.scale = -1;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "scale: -1");
    a = valid();
    a.reserved = 1;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "reserved: 1; must be 0");
    a = valid();
    on.world = 3;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "on.world: 3; must be IMBREX_HOST");
    on.world = IMBREX_HOST_CHECKED;
    on.schedules = -1;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_INVALID_ARGUMENT, "on.schedules: -1");
}

static void test_variants(void) {
    imbrex_execution on = execution(IMBREX_HOST);
    imbrex_attention_arguments a = valid();
    a.q = a.k = a.v = a.out = tensor4(elements, IMBREX_FP16, 1, 2, 1, 256);
    CHECK_FAILS(
        imbrex_attention(&on, &a), IMBREX_UNKNOWN_VARIANT,
        "variant: attention_forward, fp16, 256, 256, causal_mask, score_mod::identity for the host; it is not in "
        "this build, which has\n    attention_backward, bf16, ");
    CHECK(strstr(imbrex_variants(IMBREX_HOST),
                 "\nattention_forward, bf16, 64, 64, causal_mask, score_mod::identity\n") != NULL);
    CHECK(imbrex_variants(IMBREX_HOST)[0] == 'a');
    on.world = IMBREX_DEVICE;
    CHECK_FAILS(imbrex_attention(&on, &a), IMBREX_UNKNOWN_VARIANT,
                "fp16, 256, 256, causal_mask, score_mod::identity for the device");
}

/* A newer caller's structure has members that this library does not know, an older one's is too short for any version. */
static void test_versions(void) {
    struct newer_arguments {
        imbrex_attention_arguments known;
        int64_t added;
    } a;
    struct newer_execution {
        imbrex_execution known;
        int64_t added;
    } on;
    memset(&a, 0, sizeof a);
    memset(&on, 0, sizeof on);
    a.known = valid();
    a.known.size = sizeof a;
    on.known = execution(IMBREX_HOST);
    on.known.size = sizeof on;
    CHECK(imbrex_attention(&on.known, &a.known) == IMBREX_SUCCESS);
    a.added = 1;
    CHECK_FAILS(imbrex_attention(&on.known, &a.known), IMBREX_INVALID_ARGUMENT, "it needs a newer library");
    a.known.size = 8;
    CHECK_FAILS(imbrex_attention(&on.known, &a.known), IMBREX_INVALID_ARGUMENT, "arguments.size: 8; must be the size");
    on.known.size = 0;
    CHECK_FAILS(imbrex_attention(&on.known, &a.known), IMBREX_INVALID_ARGUMENT, "on.size: 0; must be the size");
    CHECK(imbrex_version() == IMBREX_C_VERSION);
    CHECK(strcmp(imbrex_status_name(IMBREX_HAZARD), "IMBREX_HAZARD") == 0);
    CHECK(strcmp(imbrex_status_name(99), "unknown status") == 0);
}

void test_errors(void) {
    test_null_pointers();
    test_tensors();
    test_values();
    test_variants();
    test_versions();
}
