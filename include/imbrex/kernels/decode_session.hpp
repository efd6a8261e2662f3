// Decode session: one growing sequence with its own KV cache, for generation without cache management.
//
//     decode_session<bf16> session(world::device, {.heads = 32, .kv_heads = 8, .head_dim = 128, .capacity = 8192});
//     for (;;) {
//         session.append(k, v, tokens, stream);        // new keys and values, [token, KV head, column]
//         session.decode(q, out, tokens, stream);      // queries and output of the same tokens, [token, head, column]
//     }
//     session.reset(stream);                           // the next sequence
//
// `step` does both, with one launch less. The session owns the KV cache, the block table and the workspace of the
// kernels (paged_append.hpp, paged_decode.hpp). It allocates in its constructor and never again; tokens beyond its
// capacity throw imbrex::error. Calls do not synchronise; they are ordered by the stream. Positions advance
// automatically: with RoPE in the configuration, keys are rotated as they are appended and queries are rotated into a
// buffer of the session.
//
// A prompt is appended at once or in chunks of any size. At most configuration.tokens queries are attended at once:
// pass a longer prompt to `step` in chunks. The decode kernel is meant for few tokens: for long prompts
// attention_forward is faster; append their keys here.
//
// The length is counted on the device. `step`, or `append` and `decode`, can therefore be captured once in a CUDA
// graph, and each replay continues at the end of the sequence; a replay without room for its tokens appends none of
// them. length() counts the calls of this object: it does not see replays, and counts a capture as executed, until
// fetch_length() reads the device.
//
// `rewind` discards the last tokens, such as rejected drafts in speculative decoding.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/workspace_layout.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_append.hpp>
#include <imbrex/kernels/paged_decode.hpp>
#include <imbrex/kernels/rope_embedding.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/read_element.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace imbrex {

struct decode_session_configuration {
    int heads = 0;  // query heads, a multiple of kv_heads
    int kv_heads = 0;
    int head_dim = 0;
    int capacity = 0;  // in keys, rounded up to whole pages
    int tokens = 64;   // query tokens per call, at most
    int page_size = 64;
    std::optional<rope_frequencies> rope = {};
    rope_style style = rope_style::half_split;
    std::optional<float> scale = {};  // of Q K^T; default 1 / sqrt(head_dim)
    const float* sinks = nullptr;     // attention sinks: one logit per head, in the memory of the kernel's world
};

// The length of a decode session's sequence, counted in the memory of the kernel's world. Append and decode kernels
// read it there, and a kernel of one warp updates it between them. No value comes from the host, so a replayed CUDA
// graph continues at the end of the sequence.
struct session_length {
    int seqused_k;
    // End of the tokens that are being appended. If they do not fit, it lies past all pages, and paged_append skips
    // them.
    int appended;
};

// Discards all but the first `keep` tokens, then reserves `tokens` new ones if all of them fit.
struct update_session_length {
    static constexpr int warps = 1;
    static constexpr bool uses_pdl = true;

    struct arguments {
        session_length* length;
        int keep;
        int tokens;
        int capacity;
    };

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const int seqlen = read_element(&args.length->seqused_k, 0);
        const int kept = seqlen < args.keep ? seqlen : args.keep;
        const bool fits = args.tokens <= args.capacity - kept;
        hw::put_global(block, &args.length->seqused_k, fits ? kept + args.tokens : kept, source::current());
        hw::put_global(block, &args.length->appended, (fits ? kept : args.capacity) + args.tokens, source::current());
    }
};

inline namespace IMBREX_WORLDS {

template <class In, head_dim_set HeadDims = all_decode_head_dims, class Mask = causal_mask,
          class Score = score_mod::identity>
class decode_session {
  public:
    using configuration = decode_session_configuration;

    explicit decode_session(world where, const configuration& given, const Mask& mask = {}, const Score& score = {})
        : where_(where), given_(checked(given)), mask_(mask), score_(score) {
        memory_ = world_memory(where, lay_out());
        std::vector<int> table(static_cast<std::size_t>(pages()));
        for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int>(i);
        memory_.write(table_at_, table.data(), table.size() * sizeof(int));
        if (given_.rope) {
            const std::vector<std::uint64_t> inv_freq = given_.rope->fixed_point_inv_freq();
            memory_.write(inv_freq_at_, inv_freq.data(), inv_freq.size() * sizeof(std::uint64_t));
        }
        workspace_ = world_memory(where, workspace_bytes());
    }

    // Runs work(session) on a new session in the checked host world, under many schedules; all its calls form one stream.
    // Returns the first hazard, or none.
    template <class Work>
    static std::optional<hazard> check(const configuration& given, const Work& work,
                                       const host::check_options& options = {}, const Mask& mask = {},
                                       const Score& score = {}) {
        const auto use = [&] {
            decode_session session(world::host_checked, given, mask, score);
            work(session);
        };
        return host::check_launches(use, options);
    }

    // Keys of the sequence, and the most it can have.
    int length() const { return length_; }
    int capacity() const { return pages() * given_.page_size; }

    // The length counted on the device, graph replays included. Synchronises the stream.
    int fetch_length(void* stream = nullptr) {
        memory_.read(length_at_, &length_, sizeof(int), stream);
        return length_;
    }

    // New keys and values: [1, KV head, token, column], or contiguous [token, KV head, column].
    void append(const attention_view<const In>& k, const attention_view<const In>& v, void* stream = nullptr) {
        append({}, k, v, stream);
    }
    void append(const In* k, const In* v, int tokens, void* stream = nullptr) {
        append(keys_in(k, tokens), keys_in(v, tokens), stream);
    }

    // The last tokens attend to all appended keys, their own included: q and out are [1, head, token, column], or
    // contiguous [token, head, column]. lse2: the base-2 LSE of each row, [1, head, token].
    void decode(const attention_view<const In>& q, const attention_view<In>& out, const attention_row_view& lse2 = {},
                void* stream = nullptr) {
        const attention_problem<In> problem = problem_of(q, out, lse2);
        require(tokens_of(q) <= length_, "q.extents[2]: ", q.extents[2], "; the sequence has ", length_, " tokens");
        if (given_.rope) {
            paged_append_problem<In> query_problem = append_problem_of(q, no_keys(q), no_keys(q));
            query_problem.k_cache = query_problem.v_cache = heads_of(query_problem.k_cache, 0, 0);
            query_problem.seqused_k = &session_length_pointer()->seqused_k;
            paged_append<In>::launch(where_, query_problem, stream);
        }
        launch_decode(problem, false, stream);
    }
    void decode(const In* q, In* out, int tokens, void* stream = nullptr) {
        decode(queries_in(q, tokens), queries_in(out, tokens), {}, stream);
    }

    // append and decode of the same tokens.
    void step(const attention_view<const In>& q, const attention_view<const In>& k, const attention_view<const In>& v,
              const attention_view<In>& out, const attention_row_view& lse2 = {}, void* stream = nullptr) {
        detail::require_same(q.extents[2], "q", 2, k.extents[2], "k", "tokens");
        const attention_problem<In> problem = problem_of(q, out, lse2);
        append(q, k, v, stream);
        // The preceding kernel writes only queries and the keys and values of the new tokens: PDL prefetch of the
        // others is safe.
        launch_decode(problem, true, stream);
    }
    void step(const In* q, const In* k, const In* v, In* out, int tokens, void* stream = nullptr) {
        step(queries_in(q, tokens), keys_in(k, tokens), keys_in(v, tokens), queries_in(out, tokens), {}, stream);
    }

    // Discards all tokens, or all but the first `length`.
    void reset(void* stream = nullptr) { rewind(0, stream); }
    void rewind(int length, void* stream = nullptr) {
        require(length >= 0 && length <= length_, "length: ", length, "; the sequence has ", length_, " tokens");
        count(length, 0, stream);
        length_ = length;
    }

  private:
    using decoder = paged_decode<In, decode_config{.head_dims = HeadDims}, Mask, Score>;

    static configuration checked(const configuration& c) {
        require(c.heads > 0, "heads: ", c.heads, "; must be at least 1");
        require(c.kv_heads > 0 && c.heads % c.kv_heads == 0, "kv_heads: ", c.kv_heads, "; the ", c.heads,
                " query heads must be a multiple of that");
        require(c.head_dim >= 16 && c.head_dim <= 256 && c.head_dim % 16 == 0, "head_dim: ", c.head_dim,
                "; must be a multiple of 16 from 16 to 256");
        require(c.capacity > 0 && c.capacity <= 1 << 30, "capacity: ", c.capacity, "; 1 to ", 1 << 30,
                " keys are allowed");
        require(c.tokens > 0, "tokens: ", c.tokens, "; must be at least 1");
        require(c.page_size > 0 && c.page_size % page_size_step == 0 && c.page_size <= 65536,
                "page_size: ", c.page_size, "; must be a multiple of ", page_size_step, " up to 65536");
        require(!c.rope || c.rope->rotary_dim <= c.head_dim, "rope.rotary_dim: ", c.rope ? c.rope->rotary_dim : 0,
                "; must be at most head_dim, ", c.head_dim);
        require(!c.scale || (std::isfinite(*c.scale) && *c.scale > 0), "scale: ", c.scale.value_or(0),
                "; a positive number is needed");
        return c;
    }

    int pages() const { return ceil_div(given_.capacity, given_.page_size); }

    // Lays out the session's memory and returns its size.
    std::size_t lay_out() {
        workspace_layout buffers;
        const std::size_t row = static_cast<std::size_t>(given_.head_dim) * sizeof(In);
        const std::size_t cache = static_cast<std::size_t>(capacity()) * given_.kv_heads * row;
        length_at_ = buffers.add(sizeof(session_length));
        table_at_ = buffers.add(static_cast<std::size_t>(pages()) * sizeof(int));
        inv_freq_at_ =
            buffers.add(given_.rope ? given_.rope->fixed_point_inv_freq().size() * sizeof(std::uint64_t) : 0);
        rotated_at_ = buffers.add(given_.rope ? static_cast<std::size_t>(given_.tokens) * given_.heads * row : 0);
        keys_at_ = buffers.add(cache);
        values_at_ = buffers.add(cache);
        return buffers.bytes();
    }

    // For one token and for the maximum, which use different kernels.
    std::size_t workspace_bytes() const {
        std::size_t most = 0;
        for (const int tokens : {1, given_.tokens}) {
            In* const anywhere = memory_.template at<In>(keys_at_);
            const auto problem = problem_of(queries_in<const In>(anywhere, tokens), queries_in(anywhere, tokens), {});
            const std::size_t bytes = decoder::workspace_bytes(where_, problem);
            most = bytes > most ? bytes : most;
        }
        return most;
    }

    template <class T>
    attention_view<T> queries_in(T* pointer, int tokens) const {
        return batch_sequence_head(pointer, 1, tokens, given_.heads, given_.head_dim);
    }
    attention_view<const In> keys_in(const In* pointer, int tokens) const {
        return batch_sequence_head(pointer, 1, tokens, given_.kv_heads, given_.head_dim);
    }
    template <class T>
    attention_view<T> cache_at(std::size_t offset) const {
        return batch_head_sequence<T>(memory_.template at<In>(offset), pages(), given_.kv_heads, given_.page_size,
                                      given_.head_dim);
    }
    static attention_view<const In> no_keys(const attention_view<const In>& q) { return heads_of(q, 0, 0); }
    static int tokens_of(const attention_view<const In>& view) { return view.rows(); }
    session_length* session_length_pointer() const { return memory_.template at<session_length>(length_at_); }

    template <class T>
    void require_shape(const attention_view<T>& view, const char* name, int heads, const char* of) const {
        detail::require_view(view, name);
        require(view.extents[0] == 1, name, ".extents[0]: ", view.extents[0], "; a session has one sequence");
        require(view.extents[1] == heads, name, ".extents[1]: ", view.extents[1], "; the session has ", heads, " ", of,
                " heads");
        require(view.extents[3] == given_.head_dim, name, ".extents[3]: ", view.extents[3],
                "; the session has a head_dim of ", given_.head_dim);
    }

    attention_problem<In> problem_of(const attention_view<const In>& q, const attention_view<In>& out,
                                     const attention_row_view& lse2) const {
        require_shape(q, "q", given_.heads, "query");
        require_shape(out, "out", given_.heads, "query");
        require(q.extents[2] <= given_.tokens, "q.extents[2]: ", q.extents[2], "; the session attends to at most ",
                given_.tokens, " tokens at once");
        attention_problem<In> p;
        p.q = given_.rope ? queries_in<const In>(memory_.template at<In>(rotated_at_), tokens_of(q)) : q;
        p.k = cache_at<const In>(keys_at_);
        p.v = cache_at<const In>(values_at_);
        p.out = out;
        p.lse2 = lse2;
        p.scale = given_.scale;
        p.sinks = given_.sinks;
        p.seqused_k = &session_length_pointer()->seqused_k;
        p.paged_kv = {memory_.template at<int>(table_at_), pages()};
        require_attention(where_, p, kv_layout::paged);
        return p;
    }

    paged_append_problem<In> append_problem_of(const attention_view<const In>& q, const attention_view<const In>& k,
                                               const attention_view<const In>& v) const {
        paged_append_problem<In> p{.k = k,
                                   .v = v,
                                   .k_cache = cache_at<In>(keys_at_),
                                   .v_cache = cache_at<In>(values_at_),
                                   .paged_kv = {memory_.template at<int>(table_at_), pages()},
                                   .seqused_k = &session_length_pointer()->appended};
        if (!given_.rope) return p;
        p.rope = given_.rope->embedding(memory_.template at<std::uint64_t>(inv_freq_at_), given_.style);
        if (q.extents[1] == 0) return p;
        p.q = q;
        p.q_out = queries_in(memory_.template at<In>(rotated_at_), tokens_of(q));
        return p;
    }

    // q is rotated in the same launch, unless it has no heads.
    void append(const attention_view<const In>& q, const attention_view<const In>& k, const attention_view<const In>& v,
                void* stream) {
        require_shape(k, "k", given_.kv_heads, "KV");
        require_shape(v, "v", given_.kv_heads, "KV");
        detail::require_same(v.extents[2], "v", 2, k.extents[2], "k", "tokens");
        const int tokens = tokens_of(k);
        require(tokens <= capacity() - length_, "k.extents[2]: ", tokens, "; the session has room for ", capacity(),
                " keys and already has ", length_);
        if (tokens == 0) return;
        const paged_append_problem<In> problem = append_problem_of(q, k, v);
        count(capacity(), tokens, stream);
        length_ += tokens;
        paged_append<In>::launch(where_, problem, stream);
    }
    void count(int keep, int tokens, void* stream) const {
        launch<update_session_length>(where_, {1}, {session_length_pointer(), keep, tokens, capacity()}, stream);
    }
    void launch_decode(const attention_problem<In>& problem, bool pdl_prefetch, void* stream) const {
        decode_options options;
        options.workspace = workspace_.at();
        options.pdl_prefetch = pdl_prefetch;
        decoder::launch(where_, problem, options, mask_, score_, stream);
    }

    world where_;
    configuration given_;
    Mask mask_;
    Score score_;
    int length_ = 0;
    world_memory memory_, workspace_;
    std::size_t length_at_ = 0, table_at_ = 0, inv_freq_at_ = 0, rotated_at_ = 0, keys_at_ = 0, values_at_ = 0;
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
