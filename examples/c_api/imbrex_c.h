/* The C API of Imbrex: attention, GEMM and decode sessions as plain functions of the library imbrex_c, for C, C++ and
 * every language that calls C. docs/c_api.md is its guide.
 *
 *     const imbrex_execution on = {.size = sizeof on, .world = IMBREX_DEVICE, .stream = stream};
 *     imbrex_attention_arguments a = {.size = sizeof a, .mask = IMBREX_MASK_CAUSAL};
 *     a.q = imbrex_contiguous(q, IMBREX_BF16, 4, sizes);
 *     ...
 *     if (imbrex_attention(&on, &a) != IMBREX_SUCCESS) fprintf(stderr, "%s\n", imbrex_last_error());
 *
 * A function that can fail returns a status; no C++ exception leaves the library. Functions may be called from any thread;
 * a session from one at a time. Calls for the device are asynchronous: they are ordered by the stream.
 *
 * Versions. The first member of a structure of arguments is its size as the caller compiled it. Later versions append
 * members, for which 0 means "as before"; imbrex_tensor never changes. A caller with an older header works with a newer
 * library. A caller with a newer header works with an older library if the members that the library does not know are 0; else
 * the call returns IMBREX_INVALID_ARGUMENT. So set a structure to zero first, then its size. */
#ifndef IMBREX_C_H
#define IMBREX_C_H

#include <stddef.h>
#include <stdint.h>

#define IMBREX_C_VERSION 200 /* 10000 * major + 100 * minor + patch */

#if defined(_WIN32)
#define IMBREX_C_API
#else
#define IMBREX_C_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t imbrex_status;
enum {
    IMBREX_SUCCESS = 0,
    IMBREX_INVALID_ARGUMENT = 1, /* nothing was launched */
    IMBREX_UNKNOWN_VARIANT = 2,  /* the library was built without this combination of types and options */
    IMBREX_HAZARD = 3,           /* the checker found a hazard; imbrex_last_error() is its report */
    IMBREX_CUDA_ERROR = 4,
    IMBREX_OUT_OF_MEMORY = 5,
    IMBREX_INTERNAL_ERROR = 6
};

typedef int32_t imbrex_dtype;
enum {
    IMBREX_NONE = 0, /* a tensor that is not given */
    IMBREX_BF16 = 1,
    IMBREX_FP16 = 2,
    IMBREX_FLOAT = 3,
    IMBREX_E4M3 = 4,
    IMBREX_INT8 = 5,
    IMBREX_UINT8 = 6,
    IMBREX_INT32 = 7,
    IMBREX_INT64 = 8
};

/* Memory of the caller, in the world of the call. Strides are in elements. */
typedef struct imbrex_tensor {
    void* data;
    imbrex_dtype dtype;
    int32_t rank;
    int64_t sizes[5];
    int64_t strides[5];
} imbrex_tensor;

/* A contiguous tensor, row-major. */
static inline imbrex_tensor imbrex_contiguous(void* data, imbrex_dtype dtype, int32_t rank, const int64_t* sizes) {
    imbrex_tensor made;
    int64_t stride = 1;
    int32_t i;
    made.data = data;
    made.dtype = dtype;
    made.rank = rank;
    for (i = 4; i >= 0; --i) {
        made.sizes[i] = i < rank ? sizes[i] : 0;
        made.strides[i] = i < rank ? stride : 0;
        if (i < rank) stride *= sizes[i];
    }
    return made;
}

/* Where kernels run: on the CPU, on the CPU with the checker, or on the current CUDA device. */
typedef int32_t imbrex_world;
enum { IMBREX_HOST = 0, IMBREX_HOST_CHECKED = 1, IMBREX_DEVICE = 2 };

/* Where and how to run a call. */
typedef struct imbrex_execution {
    size_t size;
    imbrex_world world;
    int32_t schedules;   /* IMBREX_HOST_CHECKED: how many to run; 0: 100 */
    uint64_t first_seed; /* IMBREX_HOST_CHECKED: the seed of the first schedule */
    void* stream;        /* IMBREX_DEVICE: a cudaStream_t, or null for the default stream */
    /* Returns workspace: memory of the world, aligned to 256 bytes, that lives until the call's kernels have finished, or
     * null if there is none. Only imbrex_attention_backward asks for it. Null: the library allocates it, in the host
     * worlds only. */
    void* (*allocate)(void* allocate_context, size_t bytes);
    void* allocate_context;
} imbrex_execution;

typedef int32_t imbrex_mask;
enum {
    IMBREX_MASK_FULL = 0,   /* every query sees every key */
    IMBREX_MASK_CAUSAL = 1, /* the last query is aligned with the last key */
    IMBREX_MASK_WINDOW = 2  /* window_left keys before the query's own and window_right after it */
};

/* softmax(scale * q k^T) v. Optional tensors are those after `out`. */
typedef struct imbrex_attention_arguments {
    size_t size;
    imbrex_tensor q;            /* bf16 or fp16 [batch, sequence, heads, head_dim], or [tokens, heads, head_dim] */
    imbrex_tensor k;            /* its heads divide those of q (GQA) */
    imbrex_tensor v;            /* may have another head_dim */
    imbrex_tensor out;          /* as q, with the head_dim of v */
    imbrex_tensor lse2;         /* float [batch, heads, sequence] or [heads, tokens]: the LSE, base 2 */
    imbrex_tensor sinks;        /* float [heads]: attention sinks */
    imbrex_tensor seqused_k;    /* int32 [batch]: the number of keys of each sequence of a padded batch */
    imbrex_tensor cu_seqlens_q; /* int32 [sequences + 1]: varlen, for tensors [tokens, heads, head_dim] */
    imbrex_tensor cu_seqlens_k;
    float scale;   /* 0: 1 / sqrt(head_dim) */
    float softcap; /* cap * tanh(score / cap); 0: none */
    imbrex_mask mask;
    int32_t window_left;  /* IMBREX_MASK_WINDOW; -1: without a limit */
    int32_t window_right; /* IMBREX_MASK_WINDOW; -1: without a limit */
    int32_t reserved;     /* 0 */
} imbrex_attention_arguments;

/* The gradients of q, k and v from that of out. */
typedef struct imbrex_attention_backward_arguments {
    size_t size;
    imbrex_tensor q; /* as in the forward pass, up to out and lse2, which it has written */
    imbrex_tensor k;
    imbrex_tensor v;
    imbrex_tensor out; /* or delta */
    imbrex_tensor lse2;
    imbrex_tensor sinks;
    imbrex_tensor seqused_k;
    imbrex_tensor cu_seqlens_q;
    imbrex_tensor cu_seqlens_k;
    float scale;
    float softcap;
    imbrex_mask mask;
    int32_t window_left;
    int32_t window_right;
    int32_t deterministic; /* 1: d_q has the same bits in every run */
    imbrex_tensor d_out;   /* as out */
    imbrex_tensor delta;   /* float, as lse2, instead of out: the sums of d_out * out over head_dim */
    imbrex_tensor d_q;     /* as q; written */
    imbrex_tensor d_k;     /* as k; written */
    imbrex_tensor d_v;     /* as v; written */
    imbrex_tensor d_sinks; /* float [heads], optional; added to */
} imbrex_attention_backward_arguments;

/* out = a b + bias: a [m, k], b [k, n], out [m, n]. With a batch as the first dimension of out, a or b without one is shared.
 * The strides of a and b say whether they are row-major or column-major: for out = a b^T with a contiguous b [n, k], pass b
 * with the sizes {k, n} and the strides {1, k}. */
typedef struct imbrex_gemm_arguments {
    size_t size;
    imbrex_tensor a;    /* bf16 or fp16 */
    imbrex_tensor b;    /* the type of a */
    imbrex_tensor out;  /* rows are contiguous */
    imbrex_tensor bias; /* [n], optional */
} imbrex_gemm_arguments;

/* One growing sequence with its own KV cache; causal. Members marked with a number may be 0, which means that number. */
typedef struct imbrex_session_configuration {
    size_t size;
    imbrex_dtype dtype; /* bf16 or fp16 */
    int32_t heads;      /* of queries, a multiple of kv_heads */
    int32_t kv_heads;
    int32_t head_dim;         /* a multiple of 16 up to 256 */
    int32_t capacity;         /* in keys, rounded up to whole pages */
    int32_t tokens;           /* query tokens of a call, at most (64) */
    int32_t page_size;        /* of the KV cache (64) */
    int32_t window;           /* keys before its own that a query sees; 0: all */
    float scale;              /* (1 / sqrt(head_dim)) */
    float softcap;            /* 0: none */
    double rope_theta;        /* RoPE is applied to queries and keys as they come; 0: none */
    int32_t rotary_dim;       /* (head_dim) */
    int32_t rope_interleaved; /* 0: pairs i and i + rotary_dim / 2 (Llama, GPT-NeoX); 1: 2 i and 2 i + 1 (GPT-J) */
    const float* sinks;       /* [heads], in the memory of the world, or null */
} imbrex_session_configuration;

typedef struct imbrex_session imbrex_session;

/* IMBREX_C_VERSION of the library. */
IMBREX_C_API int32_t imbrex_version(void);

/* The message of the thread's last failed call, which names the argument, its value and what is allowed, or the report of a
 * hazard. It lives until the thread's next failed call. */
IMBREX_C_API const char* imbrex_last_error(void);

/* "IMBREX_SUCCESS", ... */
IMBREX_C_API const char* imbrex_status_name(imbrex_status status);

/* The variants in the library for a world, one per line. The text lives until the thread's next call of this function. */
IMBREX_C_API const char* imbrex_variants(imbrex_world world);

IMBREX_C_API imbrex_status imbrex_attention(const imbrex_execution* on, const imbrex_attention_arguments* arguments);
IMBREX_C_API imbrex_status imbrex_attention_backward(const imbrex_execution* on,
                                                     const imbrex_attention_backward_arguments* arguments);
IMBREX_C_API imbrex_status imbrex_gemm(const imbrex_execution* on, const imbrex_gemm_arguments* arguments);

/* Creates a session in the world of `on`, which allocates its memory. */
IMBREX_C_API imbrex_status imbrex_session_create(const imbrex_execution* on,
                                                 const imbrex_session_configuration* configuration,
                                                 imbrex_session** session);
/* Waits for no kernel: on the device, synchronise the stream first. Null is allowed. */
IMBREX_C_API void imbrex_session_destroy(imbrex_session* session);

/* Appends the keys and values of new tokens: [tokens, kv_heads, head_dim]. A stream is a cudaStream_t, or null. */
IMBREX_C_API imbrex_status imbrex_session_append(imbrex_session* session, const imbrex_tensor* k,
                                                 const imbrex_tensor* v, void* stream);
/* The last tokens attend to all appended keys: q and out [tokens, heads, head_dim], lse2 [heads, tokens] or null. */
IMBREX_C_API imbrex_status imbrex_session_decode(imbrex_session* session, const imbrex_tensor* q,
                                                 const imbrex_tensor* out, const imbrex_tensor* lse2, void* stream);
/* Both, for the same tokens. */
IMBREX_C_API imbrex_status imbrex_session_step(imbrex_session* session, const imbrex_tensor* q, const imbrex_tensor* k,
                                               const imbrex_tensor* v, const imbrex_tensor* out,
                                               const imbrex_tensor* lse2, void* stream);
/* Discards all but the first `length` tokens. */
IMBREX_C_API imbrex_status imbrex_session_rewind(imbrex_session* session, int32_t length, void* stream);
/* The number of tokens, and of those that fit; -1 if the session is null. */
IMBREX_C_API int32_t imbrex_session_length(const imbrex_session* session);
IMBREX_C_API int32_t imbrex_session_capacity(const imbrex_session* session);

/* Runs work(context) once for each schedule of `on`, whose world is IMBREX_HOST_CHECKED. The calls for IMBREX_HOST_CHECKED
 * in it run as one stream under that schedule, so races between kernels are found, too. Returns IMBREX_HAZARD with the report,
 * or the first status of `work` that is not IMBREX_SUCCESS. `work` must begin from the same state each time. */
IMBREX_C_API imbrex_status imbrex_check(const imbrex_execution* on, imbrex_status (*work)(void* context),
                                        void* context);

#ifdef __cplusplus
}
#endif

#endif
