// Tests of decode_session: a sequence that grows by prompts, tokens and drafts, is rewound and reset, against a
// reference in double; replayed CUDA graphs; invalid arguments.
#include <imbrex/kernels/decode_session.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int heads = 4, kv_heads = 2, head_dim = 64, most = 40;
using session = decode_session<bf16, head_dim_set{head_dim}, window_mask>;
constexpr window_mask all_before{unbounded, 0};

decode_session_configuration small(int capacity = 150) {
    return {.heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .capacity = capacity,
            .tokens = most,
            .page_size = 16};
}

// Inputs of up to `most` tokens at once, and the expected content of the sequence.
class conversation {
  public:
    conversation(world where, const decode_session_configuration& given, int left = unbounded)
        : given_(given),
          left_(left),
          q(where, most * heads * head_dim),
          k(where, 2 * most * kv_heads * head_dim),
          v(where, k.values.size()),
          out(where, q.values.size()),
          lse2(where, heads * most) {}

    // Draws random inputs for the next tokens, which are then expected in the sequence.
    void draw(int tokens) {
        fill_random(q.values, ++seed_);
        fill_random(k.values, ++seed_);
        fill_random(v.values, ++seed_);
        out.values.assign(out.values.size(), bf16(NAN));
        lse2.values.assign(lse2.values.size(), NAN);
        for (int i = 0; i < tokens * kv_heads * head_dim; ++i) {
            keys_.push_back(float(k.values[i]));
            values_.push_back(float(v.values[i]));
        }
    }
    void upload() {
        for (auto* one : {&q, &k, &v, &out}) one->upload();
        lse2.upload();
    }
    void keep(int tokens) {
        keys_.resize(std::size_t(tokens) * kv_heads * head_dim);
        values_.resize(keys_.size());
    }
    int length() const { return static_cast<int>(keys_.size()) / (kv_heads * head_dim); }

    // Checks the output of the last tokens, and that nothing past them was written.
    void check(int tokens, bool with_sums = false) {
        out.download();
        lse2.download();
        double worst = 0, worst_sum = 0;
        for (int token = 0; token < tokens; ++token) {
            for (int head = 0; head < heads; ++head) {
                const double found = lse2.values[head * tokens + token];
                const double wanted = check_row(token, length() - tokens + token, head, worst);
                if (with_sums) worst_sum = largest(worst_sum, std::abs(found - wanted));
            }
        }
        CHECK(worst <= 0.01);
        CHECK(worst_sum <= 0.01);
        const auto behind = out.values.begin() + tokens * heads * head_dim;
        CHECK(std::all_of(behind, out.values.end(), [](bf16 one) { return std::isnan(float(one)); }));
    }

    decode_session_configuration given_;
    int left_;
    buffer<bf16> q, k, v, out;
    buffer<float> lse2;

  private:
    static double largest(double so_far, double next) {
        return next <= so_far ? so_far : std::isnan(next) ? INFINITY : next;
    }

    // A row of a head with RoPE at its position.
    std::vector<double> turned(const float* row, int position) const {
        std::vector<double> made(row, row + head_dim);
        if (!given_.rope) return made;
        const std::vector<double> frequencies = given_.rope->inv_freq_double();
        const int pairs = static_cast<int>(frequencies.size());
        for (int i = 0; i < pairs; ++i) {
            const bool halves = given_.style == rope_style::half_split;
            const int first = halves ? i : 2 * i, second = halves ? i + pairs : 2 * i + 1;
            const double cosine = std::cos(frequencies[i] * position), sine = std::sin(frequencies[i] * position);
            made[first] = row[first] * cosine - row[second] * sine;
            made[second] = row[second] * cosine + row[first] * sine;
        }
        return made;
    }

    // Returns the base-2 LSE.
    double check_row(int token, int position, int head, double& worst) const {
        const int place = (token * heads + head) * head_dim;
        const std::vector<float> raw(q.values.begin() + place, q.values.begin() + place + head_dim);
        const std::vector<double> query = turned(raw.data(), position);
        std::vector<double> expected(head_dim);
        double sum = 0;
        for (int past = std::max<std::int64_t>(0, std::int64_t{position} - left_); past <= position; ++past) {
            const std::size_t row = (std::size_t(past) * kv_heads + head / (heads / kv_heads)) * head_dim;
            const std::vector<double> key = turned(&keys_[row], past);
            double dot = 0;
            for (int i = 0; i < head_dim; ++i) dot += query[i] * key[i];
            const double weight = std::exp(dot * given_.scale.value_or(0.125f));
            sum += weight;
            for (int i = 0; i < head_dim; ++i) expected[i] += weight * values_[row + i];
        }
        for (int i = 0; i < head_dim; ++i) {
            worst = largest(worst, std::abs(expected[i] / sum - float(out.values[place + i])));
        }
        return std::log2(sum);
    }

    unsigned seed_ = 0;
    std::vector<float> keys_, values_;
};

// Appends the drawn tokens and decodes some of them.
void append(session& to, conversation& with, int tokens) {
    with.draw(tokens);
    with.upload();
    to.append(with.k.upload(), with.v.upload(), tokens);
    CHECK(to.length() == with.length());
}
void append_and_decode(session& to, conversation& with, int tokens) {
    append(to, with, tokens);
    to.decode(with.q.upload(), with.out.upload(), tokens);
    with.check(tokens);
}
void step(session& to, conversation& with, int tokens) {
    with.draw(tokens);
    with.upload();
    to.step(with.q.upload(), with.k.upload(), with.v.upload(), with.out.upload(), tokens);
    CHECK(to.length() == with.length());
    with.check(tokens);
}

// Prompts, tokens and drafts, until the session is full.
void converse(session& to, conversation& with) {
    append(to, with, 2 * most - 3);
    append_and_decode(to, with, 1);
    step(to, with, 1);
    step(to, with, 9);  // more rows than one warp takes
    step(to, with, 1);
    append_and_decode(to, with, 30);
    to.rewind(to.length() - 27);
    with.keep(with.length() - 27);
    step(to, with, 2);
    append_and_decode(to, with, 9);
    append(to, with, most);
    step(to, with, to.capacity() - to.length());
}

}  // namespace

TEST_CASE("appends, rewinds, fills to capacity and resets") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const int kind : {0, 1, 2}) {
            CAPTURE(kind);
            decode_session_configuration given = small();
            if (kind == 1) given.rope = rope_frequencies{.theta = 10000, .rotary_dim = head_dim};
            if (kind == 2) {
                given.rope = rope_frequencies{.theta = 500, .rotary_dim = 32, .scaling = rope_linear{2}};
                given.style = rope_style::interleaved;
                given.scale = 0.2f;
            }
            session one(where, given, all_before);
            CHECK(one.capacity() == 160);
            conversation with(where, given);
            converse(one, with);
            one.reset();
            with.keep(0);
            CHECK(one.length() == 0);
            CHECK(one.fetch_length() == 0);
            step(one, with, 1);
            session other = std::move(one);
            step(other, with, 3);
            CHECK(other.fetch_length() == 4);
        }
    }
}

TEST_CASE("alternates few and many tokens on a sequence with many splits") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const decode_session_configuration given = small(5000);
        session one(where, given, all_before);
        conversation with(where, given);
        while (one.length() < 4000) append(one, with, 2 * most);
        for (const int tokens : {1, 30, 2, 9, 1, 30}) step(one, with, tokens);
    }
}

TEST_CASE("takes a custom mask, contiguous q, k and v, and writes lse2") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        session one(where, small(), {9, 0});
        conversation with(where, small(), 9);
        append(one, with, 33);
        const int together = heads + 2 * kv_heads, tokens = 5;
        with.draw(tokens);
        buffer<bf16> qkv(where, tokens * together * head_dim);
        for (int token = 0; token < tokens; ++token) {
            const auto put = [&](const std::vector<bf16>& from, int count, int behind) {
                std::copy_n(from.begin() + token * count * head_dim, count * head_dim,
                            qkv.values.begin() + (token * together + behind) * head_dim);
            };
            put(with.q.values, heads, 0);
            put(with.k.values, kv_heads, heads);
            put(with.v.values, kv_heads, heads + kv_heads);
        }
        const auto all = batch_sequence_head<const bf16>(qkv.upload(), 1, tokens, together, head_dim);
        const auto q = heads_of(all, 0, heads), k = heads_of(all, heads, kv_heads),
                   v = heads_of(all, heads + kv_heads, kv_heads);
        const auto out = batch_sequence_head(with.out.upload(), 1, tokens, heads, head_dim);
        one.step(q, k, v, out, batch_head_rows(with.lse2.upload(), heads, tokens));
        with.check(tokens, true);
        with.out.values.assign(with.out.values.size(), bf16(NAN));
        with.out.upload();
        one.decode(q, out, batch_head_rows(with.lse2.upload(), heads, tokens));
        with.check(tokens, true);
    }
}

TEST_CASE("rejects invalid arguments and changes nothing") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const auto refused_configuration = [&](auto change) {
            decode_session_configuration bad = small();
            change(bad);
            return error_message_of([&] { session(where, bad, all_before); });
        };
        CHECK(refused_configuration([](auto& c) { c.heads = 0; }) == "heads: 0; must be at least 1");
        CHECK(refused_configuration([](auto& c) { c.kv_heads = 3; }) ==
              "kv_heads: 3; the 4 query heads must be a multiple of that");
        CHECK(refused_configuration([](auto& c) { c.head_dim = 40; }) ==
              "head_dim: 40; must be a multiple of 16 from 16 to 256");
        CHECK(refused_configuration([](auto& c) { c.head_dim = 128; }) ==
              "q.extents[3], v.extents[3]: 128, 128; instantiated head dims: 64");
        CHECK(refused_configuration([](auto& c) { c.capacity = 0; }) ==
              "capacity: 0; 1 to 1073741824 keys are allowed");
        CHECK(refused_configuration([](auto& c) { c.tokens = 0; }) == "tokens: 0; must be at least 1");
        CHECK(refused_configuration([](auto& c) { c.page_size = 24; }) ==
              "page_size: 24; must be a multiple of 16 up to 65536");
        CHECK(refused_configuration([](auto& c) { c.rope = rope_frequencies{.rotary_dim = 66}; }) ==
              "rope.rotary_dim: 66; must be at most head_dim, 64");
        CHECK(refused_configuration([](auto& c) { c.scale = -1.0f; }) == "scale: -1; a positive number is needed");

        session one(where, small(), all_before);
        conversation with(where, small());
        append(one, with, 70);
        append(one, with, 70);
        with.draw(0);
        bf16 *const q = with.q.upload(), *const k = with.k.upload(), *const v = with.v.upload(),
                    *const out = with.out.upload();
        CHECK(error_message_of([&] { one.append(k, v, 21); }) ==
              "k.extents[2]: 21; the session has room for 160 keys and already has 140");
        CHECK(error_message_of([&] { one.step(q, k, v, out, 21); }) ==
              "k.extents[2]: 21; the session has room for 160 keys and already has 140");
        CHECK(error_message_of([&] { one.append(nullptr, v, 1); }) ==
              "k.pointer: null; a tensor of 1 x 2 x 1 x 64 is needed");
        CHECK(error_message_of([&] { one.step(q, k, v, nullptr, 1); }) ==
              "out.pointer: null; a tensor of 1 x 4 x 1 x 64 is needed");
        CHECK(error_message_of([&] { one.decode(q, out, most + 1); }) ==
              "q.extents[2]: 41; the session attends to at most 40 tokens at once");
        CHECK(error_message_of([&] { one.rewind(141); }) == "length: 141; the sequence has 140 tokens");
        CHECK(error_message_of([&] {
                  one.append(batch_sequence_head<const bf16>(k, 1, 1, 1, head_dim),
                             batch_sequence_head<const bf16>(v, 1, 1, 1, head_dim));
              }) == "k.extents[1]: 1; the session has 2 KV heads");
        CHECK(error_message_of([&] {
                  one.append(batch_sequence_head<const bf16>(k, 1, 2, kv_heads, head_dim),
                             batch_sequence_head<const bf16>(v, 1, 1, kv_heads, head_dim));
              }) == "v.extents[2]: 1; k has 2 tokens, and it must have as many");
        CHECK(error_message_of([&] {
                  one.step(batch_sequence_head<const bf16>(q, 1, 2, heads, head_dim),
                           batch_sequence_head<const bf16>(k, 1, 1, kv_heads, head_dim),
                           batch_sequence_head<const bf16>(v, 1, 1, kv_heads, head_dim),
                           batch_sequence_head(out, 1, 2, heads, head_dim));
              }) == "q.extents[2]: 2; k has 1 tokens, and it must have as many");
        CHECK(one.length() == 140);
        CHECK(one.fetch_length() == 140);
        with.check(0);  // nothing was written
        step(one, with, 20);
        one.reset();
        CHECK(error_message_of([&] { one.decode(q, out, 1); }) == "q.extents[2]: 1; the sequence has 0 tokens");
    }
}

#if defined(__CUDACC__)
TEST_CASE("a replayed CUDA graph continues at the end of the sequence and appends nothing when full") {
    decode_session_configuration given = small();
    given.rope = rope_frequencies{.theta = 10000, .rotary_dim = head_dim};
    session one(world::device, given, all_before);
    conversation with(world::device, given);
    const auto require_success = [](cudaError_t status) { imbrex::detail::require_success(status, "graph"); };
    cudaStream_t stream;
    require_success(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    step(one, with, 2);  // first-launch initialisation must not be captured
    cudaGraph_t graph;
    cudaGraphExec_t made;
    const int tokens = 2;
    const auto next = [&] {
        with.draw(tokens);
        with.upload();
        require_success(cudaDeviceSynchronize());
    };
    with.draw(0);
    const bf16 *const q = with.q.upload(), *const k = with.k.upload(), *const v = with.v.upload();
    bf16* const out = with.out.upload();
    require_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    one.step(q, k, v, out, tokens, stream);
    require_success(cudaStreamEndCapture(stream, &graph));
    require_success(cudaGraphInstantiate(&made, graph, 0));
    CHECK(one.length() == 4);
    CHECK(one.fetch_length(stream) == 2);  // a capture does not run
    while (with.length() < one.capacity()) {
        next();
        require_success(cudaGraphLaunch(made, stream));
        require_success(cudaStreamSynchronize(stream));
        with.check(tokens);
    }
    CHECK(one.length() == 2);
    CHECK(one.fetch_length(stream) == one.capacity());
    with.draw(0);
    with.upload();
    require_success(cudaDeviceSynchronize());
    for (int i = 0; i < 3; ++i) require_success(cudaGraphLaunch(made, stream));
    CHECK(one.fetch_length(stream) == one.capacity());
    // The cache is unchanged.
    one.rewind(one.capacity() - 5, stream);
    with.keep(one.length());
    next();
    require_success(cudaGraphLaunch(made, stream));
    require_success(cudaStreamSynchronize(stream));
    with.check(tokens);
    one.reset(stream);
    with.keep(0);
    for (int i = 0; i < 3; ++i) {
        next();
        require_success(cudaGraphLaunch(made, stream));
        require_success(cudaStreamSynchronize(stream));
        with.check(tokens);
    }
    CHECK(one.fetch_length(stream) == 6);
    cudaGraphExecDestroy(made);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}
#endif

#if !defined(__CUDACC__)
TEST_CASE("check of a session: all its calls as one stream") {
    conversation talk(world::host_checked, small());
    talk.draw(20);
    talk.upload();
    const auto append_and_decode = [&](auto& one) {
        one.step(talk.q.upload(), talk.k.upload(), talk.v.upload(), talk.out.upload(), 20);
        one.step(talk.q.upload(), talk.k.upload(), talk.v.upload(), talk.out.upload(), 1);
    };
    CHECK(text_of(session::check(small(), append_and_decode, {.schedules = 3}, all_before)) == "");
    // With RoPE the queries, too, come from the kernel before the decode.
    auto with_rope = small();
    with_rope.rope = rope_frequencies{.theta = 10000, .rotary_dim = head_dim};
    const auto stream = [&] {
        session one(world::host_checked, with_rope, all_before);
        append_and_decode(one);
    };
    check_stream("decode session", stream, 3);
    CHECK(error_message_of([&] { session::check(small(10), append_and_decode, {}, all_before); }) ==
          "k.extents[2]: 20; the session has room for 16 keys and already has 0");
}
#endif
