// Tests of a fixed split size: the result of a sequence is batch invariant, in grids and pages of any size, varlen or
// not, in caches of any type.
#include <imbrex/kernels/paged_decode.hpp>

#include "kernels/paged_decode/trial.hpp"
#include "random_below.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int heads = 6, kv_heads = 2, head_dim = 64;
constexpr window_mask earlier_keys{unbounded, 0};  // one mask type for all tests, so that kernels are compiled once
using windowed = paged_decode<bf16, decode_config{.head_dims = {head_dim}}, window_mask>;

// A batch of some of many numbered sequences: each has its keys and the queries of its last tokens.
struct member {
    int sequence;
    int keys;
    int tokens;
};
struct batch {
    std::vector<member> members;
    int page_size = 16;
    int blocks = 0;
    int split_size = 64;
    bool packed = false;
    int spare_pages = 0;  // block table entries beyond those needed
    unsigned seed = 1;    // of the order of pages
    std::optional<decode_kernel_kind> kernel = {};
};
using bits_of_row = std::vector<std::uint32_t>;

float number_of(int sequence, int position, int what, int column) {
    std::uint32_t x = ((sequence * 8191u + position) * 64u + what) * 1024u + column;
    x = (x ^ (x >> 16)) * 0x45d9f3bu;
    x = (x ^ (x >> 16)) * 0x45d9f3bu;
    return float((x ^ (x >> 16)) % 2000u) / 1000.0f - 1.0f;
}

// Bits of the output rows of each token, of all heads, and of lse2.
template <class Cache, class Mask>
std::vector<std::vector<bits_of_row>> decoded(world where, const batch& b, const Mask& mask) {
    using decode = paged_decode<bf16, decode_config{.head_dims = {head_dim}}, Mask, score_mod::identity, Cache>;
    const int count = int(b.members.size());
    int width = b.spare_pages, rows = 0, most_tokens = 0;
    for (const member& one : b.members) {
        width = std::max(width, (one.keys + b.page_size - 1) / b.page_size + b.spare_pages);
        rows += one.tokens;
        most_tokens = std::max(most_tokens, one.tokens);
    }
    const int pages = count * width + 3, batches = b.packed ? 1 : count, tokens = b.packed ? rows : most_tokens;
    buffer<int> table(where, std::size_t(count) * width), lengths(where, count), starts(where, count + 1, 0);
    buffer<Cache> k(where, std::size_t(pages) * b.page_size * kv_heads * head_dim, convert<Cache>(NAN)),
        v(where, k.values.size(), k.values[0]);
    buffer<bf16> q(where, std::size_t(batches) * tokens * heads * head_dim), out(where, q.values.size(), bf16(NAN));
    buffer<float> lse2(where, std::size_t(batches) * heads * tokens, NAN), scales(where, kv_heads, 0.25f);
    std::vector<int> order(pages);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(b.seed));
    std::copy_n(order.begin(), table.values.size(), table.values.begin());
    const auto q_row = [&](int i, int token) {
        return std::size_t(b.packed ? starts.values[i] + token : i * tokens + token) * heads * head_dim;
    };
    for (int i = 0; i < count; ++i) {
        const member& one = b.members[i];
        lengths.values[i] = one.keys;
        starts.values[i + 1] = starts.values[i] + one.tokens;
        for (int key = 0; key < one.keys; ++key) {
            const int page = table.values[std::size_t(i) * width + key / b.page_size];
            const std::size_t row = (std::size_t(page) * b.page_size + key % b.page_size) * kv_heads * head_dim;
            for (int column = 0; column < kv_heads * head_dim; ++column) {
                k.values[row + column] = convert<Cache>(4 * number_of(one.sequence, key, 0, column));
                v.values[row + column] = convert<Cache>(4 * number_of(one.sequence, key, 1, column));
            }
        }
        for (int token = 0; token < one.tokens; ++token) {
            for (int column = 0; column < heads * head_dim; ++column) {
                const int position = one.keys - one.tokens + token;
                q.values[q_row(i, token) + column] = bf16(number_of(one.sequence, position, 2, column));
            }
        }
    }
    typename decode::problem p;
    p.q = batch_sequence_head<const bf16>(q.upload(), batches, tokens, heads, head_dim);
    p.k = batch_sequence_head<const Cache>(k.upload(), pages, b.page_size, kv_heads, head_dim);
    p.v = batch_sequence_head<const Cache>(v.upload(), pages, b.page_size, kv_heads, head_dim);
    p.out = batch_sequence_head(out.upload(), batches, tokens, heads, head_dim);
    p.lse2 = batch_head_rows(lse2.upload(), heads, tokens);
    p.seqused_k = lengths.upload();
    p.paged_kv = {table.upload(), width};
    if (b.packed) p.varlen = {count, starts.upload()};
    if (sizeof(Cache) == 1) p.k_scales = p.v_scales = kv_scales_per_head(scales.upload());
    decode_options options;
    options.blocks = b.blocks;
    options.split_size = b.split_size;
    options.kernel = b.kernel;
    options.total_seqlen_k = std::int64_t{1} << 40;  // with dynamic splits another kernel would be chosen
    buffer<int> workspace(where, decode::workspace_bytes(where, p, options.blocks, options.split_size) / sizeof(int),
                          0);
    options.workspace = workspace.upload();
    decode::launch(where, p, options, mask);
    out.download();
    lse2.download();
    std::vector<std::vector<bits_of_row>> found(count);
    for (int i = 0; i < count; ++i) {
        for (int token = 0; token < b.members[i].tokens; ++token) {
            bits_of_row bits;
            for (int column = 0; column < heads * head_dim; ++column) {
                const bf16 one = out.values[q_row(i, token) + column];
                REQUIRE(!std::isnan(float(one)));
                bits.push_back(one.bits);
            }
            for (int head = 0; head < heads; ++head) {
                const int member = b.packed ? 0 : i, row = b.packed ? starts.values[i] + token : token;
                bits.push_back(__builtin_bit_cast(std::uint32_t,
                                                  lse2.values[(std::size_t(member) * heads + head) * tokens + row]));
            }
            found[i].push_back(std::move(bits));
        }
    }
    return found;
}

// Sequences alone against random batches of them.
template <class Cache, class Mask>
void check_bits(unsigned seed, int batches, const Mask& mask, std::optional<decode_kernel_kind> kernel = {}) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        std::mt19937 random(seed);
        const random_below below(random);
        const std::vector<int> lengths{1, 17, 63, 64, 65, 128, 200, 257, 515, 1100};
        for (const int split_size : {64, 192}) {
            const auto alone = [&](int sequence, int tokens) {
                batch one;
                one.members = {{sequence, lengths[sequence], tokens}};
                one.split_size = split_size;
                one.kernel = kernel;
                return decoded<Cache>(where, one, mask)[0];
            };
            std::map<std::pair<int, int>, std::vector<bits_of_row>> known;
            for (int i = 0; i < batches; ++i) {
                CAPTURE(i);
                const int page_sizes[] = {16, 48, 64, 256}, grids[] = {0, 1, 3, 8, 50};
                batch several;
                several.split_size = split_size;
                several.page_size = page_sizes[below(4)];
                several.blocks = grids[below(5)];
                several.packed = below(2) == 0;
                several.spare_pages = below(3);
                several.seed = random();
                several.kernel = kernel;
                const int tokens = 1 + below(2) * below(7);
                for (int count = 1 + below(12); count > 0; --count) {
                    const int sequence = below(int(lengths.size()));
                    const int own = several.packed ? 1 + below(3) * below(8) : tokens;
                    several.members.push_back({sequence, lengths[sequence], own});
                }
                CAPTURE(several.page_size);
                CAPTURE(several.blocks);
                CAPTURE(several.packed);
                const auto found = decoded<Cache>(where, several, mask);
                for (std::size_t j = 0; j < found.size(); ++j) {
                    const member& one = several.members[j];
                    auto& expected = known[{one.sequence, one.tokens}];
                    if (expected.empty()) expected = alone(one.sequence, one.tokens);
                    CAPTURE(one.keys);
                    CAPTURE(one.tokens);
                    CHECK((found[j] == expected));
                }
            }
        }
    }
}

#if defined(__CUDACC__)
constexpr int many = 40;
#else
constexpr int many = 6;
#endif

}  // namespace

TEST_CASE("a sequence has the same bits in any batch as alone") {
    check_bits<bf16>(1, many, earlier_keys);
    check_bits<bf16>(2, many, earlier_keys, decode_kernel_kind::ampere_class);
    check_bits<bf16>(3, many, window_mask{70, 0});
}

TEST_CASE("batch invariant with 8-bit caches") {
    check_bits<e4m3>(4, many, causal_mask{});
    check_bits<std::int8_t>(5, many, causal_mask{}, decode_kernel_kind::ampere_class);
}

TEST_CASE("under a causal mask a token has the same bits alone and among others") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const auto kernel : {decode_kernel_kind::ampere_class, decode_kernel_kind::hopper}) {
            CAPTURE(name_of(kernel));
            batch together;
            together.members = {{3, 331, 23}};
            together.kernel = kernel;
            const auto found = decoded<bf16>(where, together, earlier_keys)[0];
            for (int token = 0; token < 23; ++token) {
                CAPTURE(token);
                batch one;
                one.members = {{3, 331 - 22 + token, 1}};
                one.kernel = kernel;
                CHECK((decoded<bf16>(where, one, earlier_keys)[0][0] == found[token]));
            }
        }
    }
}

TEST_CASE("the choice of kernel does not depend on the batch") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case c{.batches = 1, .heads = 4, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 64, .page_size = 16};
        attention_trial<bf16> there(where, c, 1);
        const attention_problem<bf16> p = there.upload();
        decode_options options;
        options.split_size = 512;
        const decode_kernel_kind few = windowed::choice(where, p, options);
        CHECK(few != decode_kernel_kind::cluster);
        options.total_seqlen_k = std::int64_t{1} << 40;
        CHECK(windowed::choice(where, p, options) == few);
    }
}

TEST_CASE("rejects an invalid split size") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case c{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 64, .page_size = 16};
        attention_trial<bf16> there(where, c, 1);
        const attention_problem<bf16> p = there.upload();
        decode_options options;
        for (const int wrong : {-64, 1, 63, 96}) {
            options.split_size = wrong;
            const std::string sentence =
                "options.split_size: " + std::to_string(wrong) + "; must be 0 or a multiple of 64";
            CHECK(error_message_of([&] { windowed::launch(where, p, options, earlier_keys); }) == sentence);
            CHECK(error_message_of([&] { windowed::workspace_bytes(where, p, 0, wrong); }) == sentence);
        }
        options.split_size = 64;
        const std::size_t bytes = windowed::workspace_bytes(where, p, 0, 64);
        CHECK(error_message_of([&] {
                  windowed::launch(where, p, options, earlier_keys);
              }).ends_with("; " + std::to_string(bytes) + " bytes at a multiple of 16 are needed"));
        options.kernel = decode_kernel_kind::cluster;
        CHECK(error_message_of([&] { windowed::launch(where, p, options, earlier_keys); }) ==
              "options.kernel: cluster; must be hopper or ampere_class with options.split_size");
    }
}
