// Tests of paged_append against a reference in double: RoPE styles, cache types and scales, any number of tokens per
// sequence, varlen or not, pages in random order, any strides. Memory that belongs to no new token keeps its bits.
#include <imbrex/kernels/paged_append.hpp>

#include "kernels/paged_append/trial.hpp"
#include "synchronisation.hpp"

#include <sys/mman.h>
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

const std::vector<sequence> some_sequences{{17, 3}, {0, 0}, {16, 16}, {1, 1}, {33, 20}, {5, 0}, {40, 1}};

}  // namespace

TEST_CASE("applies RoPE to keys and queries, both styles, full and partial rotary_dim, all head dims") {
    for (const rope_style style : {half_split, interleaved}) {
        for (const int head_dim : {8, 16, 24, 32, 64, 80, 96, 112, 128, 192, 256}) {
            check_append<bf16>({.sequences = some_sequences,
                                .head_dim = head_dim,
                                .head_dim_v = head_dim,
                                .rotated = head_dim,
                                .style = style});
        }
        for (const int rotated : {2, 8, 24, 32, 40, 62, 64, 94}) {
            check_append<fp16>({.sequences = some_sequences,
                                .head_dim = 96,
                                .head_dim_v = 48,
                                .rotated = rotated,
                                .style = style,
                                .with = queries::in_place});
        }
    }
    check_append<bf16>({.sequences = some_sequences, .head_dim = 64, .head_dim_v = 128, .rotated = 0});
    check_append<fp16>({.sequences = some_sequences, .head_dim = 64, .rotated = 0, .with = queries::none});
}

TEST_CASE("any number of heads") {
    for (const int kv_heads : {1, 3, 8, 16, 17, 40}) {
        CAPTURE(kv_heads);
        check_append<bf16>(
            {.sequences = {{20, 2}, {3, 3}}, .heads = 2 * kv_heads, .kv_heads = kv_heads, .style = interleaved});
    }
    check_append<bf16>({.sequences = {{20, 2}}, .heads = 0, .kv_heads = 2, .with = queries::none});
    check_append<fp16>({.sequences = {{20, 2}},
                        .heads = 71,
                        .kv_heads = 1,
                        .head_dim = 128,
                        .rotated = 128,
                        .with = queries::in_place});
}

TEST_CASE("8-bit caches with scales per tensor, head and page") {
    for (const scales scaled : {scales::none, scales::of_all, scales::of_heads, scales::of_pages}) {
        CAPTURE(static_cast<int>(scaled));
        append_case given{.sequences = some_sequences, .heads = 18, .kv_heads = 18, .scaled = scaled};
        check_append<bf16, e4m3>(given);
        check_append<fp16, std::int8_t>(given);
        given.style = interleaved;
        given.head_dim = 80, given.rotated = 48, given.head_dim_v = 112;
        check_append<fp16, e4m3>(given);
        check_append<bf16, std::int8_t>(given);
    }
}

TEST_CASE("float inputs into float and 16-bit caches") {
    for (const rope_style style : {half_split, interleaved}) {
        for (const int head_dim : {8, 24, 32, 64, 72, 256}) {
            append_case given{.sequences = some_sequences,
                              .head_dim = head_dim,
                              .head_dim_v = head_dim,
                              .rotated = head_dim,
                              .style = style};
            check_append<float>(given);
            given.rotated = head_dim / 2, given.with = queries::in_place, given.gap = 3;
            check_append<float>(given);
            check_append<float, bf16>(given);
        }
        append_case given{.sequences = some_sequences, .heads = 20, .kv_heads = 20, .style = style};
        check_append<float, bf16>(given);
        check_append<float, fp16>(given);
        given.sequences = {{1000003, 4}, {1048577, 2}}, given.page_size = 256;
        check_append<float>(given);
        given.sequences = some_sequences, given.scaled = scales::of_pages;
        check_append<float, e4m3>(given);
        check_append<float, std::int8_t>(given);
    }
}

TEST_CASE("any page size, varlen and batched sequences") {
    for (const int page_size : {16, 32, 48, 64, 128, 256}) {
        append_case given{.sequences = {{300, 70}, {256, 1}, {257, 1}, {16, 16}, {48, 17}}, .page_size = page_size};
        given.head_dim = given.head_dim_v = given.rotated = 32;
        check_append<bf16>(given);
        given.packed = false;
        given.sequences = {{300, 5}, {256, 5}, {260, 5}, {5, 5}, {17, 5}};
        check_append<bf16, e4m3>(given);
        given.sequences = {{300, 1}, {256, 1}, {257, 1}, {1, 1}, {17, 1}};
        check_append<fp16>(given);
    }
}

TEST_CASE("skips tokens without a slot") {
    // Sequences shorter than their new tokens, or empty; rows before the first sequence and after the last.
    append_case given{.sequences = {{2, 5}, {0, 4}, {20, 3}, {0, 0}}, .before = 3, .behind = 6};
    check_append<bf16>(given);
    given.packed = false;
    given.before = given.behind = 0;
    given.sequences = {{2, 3}, {0, 3}, {20, 3}, {1, 3}};
    check_append<bf16, std::int8_t>(given);
    // No tokens, and no sequences.
    check_append<bf16>({.sequences = {{5, 0}, {0, 0}}});
    check_append<bf16>({.sequences = {{5, 0}}, .packed = false});
    check_append<bf16>({.sequences = {}, .behind = 4});
}

TEST_CASE("finds the sequence of each token among many") {
    for (const int count : {1, 2, 31, 32, 33, 64, 200, 1023, 1024, 1025, 1100}) {
        CAPTURE(count);
        std::mt19937 random(static_cast<std::uint32_t>(count));
        append_case given{.sequences = {}, .heads = 1, .kv_heads = 1, .head_dim = 16, .head_dim_v = 16, .rotated = 16};
        for (int i = 0; i < count; ++i) {
            const int added = static_cast<int>(random() % 4) * (random() % 3 == 0 ? 0 : 1);
            given.sequences.push_back({added + static_cast<int>(random() % 20), added});
        }
        given.before = 2, given.behind = 3;
        check_append<bf16>(given);
    }
}

TEST_CASE("many tokens use the wide tiles") {
    for (const rope_style style : {half_split, interleaved}) {
        append_case given{
            .sequences = {{200, 130}, {0, 0}, {40, 40}, {7, 9}}, .style = style, .before = 2, .behind = 1};
        check_append<bf16>(given);
        given.head_dim = 128, given.rotated = 64, given.head_dim_v = 192;
        check_append<fp16>(given);
        given.heads = 20, given.kv_heads = 20, given.scaled = scales::of_pages, given.gap = 2;
        check_append<bf16, e4m3>(given);
        given.scaled = scales::none, given.with = queries::in_place;
        check_append<float, bf16>(given);
    }
}

namespace {

template <append_tiling Rows, class In, class Cache>
void append_by(world where, append_trial<In, Cache>& there, bool early) {
    using append = paged_append<In, Cache>;
    using kernel = typename append::template kernel<Rows>;
    auto problem = there.upload();
    problem.pdl_prefetch = early;
    const auto arguments = append::template arguments_of<Rows>(problem);
    run<kernel>(where, kernel::grid_of(arguments, static_cast<int>(problem.tokens())), arguments);
    there.k_cache.download();
    there.v_cache.download();
    there.q_out.download();
}
template <class T>
bool same_bits(const buffer<T>& one, const buffer<T>& other) {
    return std::memcmp(one.values.data(), other.values.data(), one.values.size() * sizeof(T)) == 0;
}

// With each tiling, with and without pdl_prefetch.
template <class In, class Cache>
void check_bits(const append_case& given) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        append_trial<In, Cache> first(where, given, 5);
        append_by<append_tiling::wide>(where, first, false);
        const auto check = [&](auto rows, bool early) {
            append_trial<In, Cache> there(where, given, 5);
            append_by<decltype(rows)::value>(where, there, early);
            CHECK(same_bits(there.k_cache, first.k_cache));
            CHECK(same_bits(there.v_cache, first.v_cache));
            CHECK(same_bits(there.q_out, first.q_out));
        };
        check(std::integral_constant<append_tiling, append_tiling::wide>{}, true);
        for (const bool early : {false, true}) {
            check(std::integral_constant<append_tiling, append_tiling::narrow>{}, early);
            check(std::integral_constant<append_tiling, append_tiling::unaligned>{}, early);
        }
    }
}

}  // namespace

TEST_CASE("all tilings give the same bits, with and without pdl_prefetch") {
    for (const rope_style style : {half_split, interleaved}) {
        append_case given{.sequences = some_sequences, .heads = 20, .kv_heads = 5, .style = style};
        check_bits<bf16, bf16>(given);
        given.head_dim = given.rotated = 128;
        check_bits<float, float>(given);
        given.scaled = scales::of_heads;
        check_bits<bf16, e4m3>(given);
    }
}

namespace {

// Inputs that the preceding kernel keeps rewriting until it ends; the last write differs from the earlier ones.
struct write_slowly {
    static constexpr int warps = 1;
    static constexpr bool uses_pdl = true;
    struct arguments {
        matrix_view<bf16> values;
        int times;  // even
    };

    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            pdl_launch_dependents(self);
            pdl_wait(self);
            const auto place = args.values.at(block.index().x * 16, 0);
            warp_tile<bf16, 16, 64> tile;
            for (int i = 0; i <= args.times; ++i) {
                load(self, tile, place);
                const float factor = i < args.times ? -1.0f : 2.0f;
                map(self, tile, [&](bf16 x) { return convert<bf16>(convert<float>(x) * factor); });
                store(self, place, tile);
            }
        });
    }
};

}  // namespace

TEST_CASE("pdl_prefetch still waits for k, v and q") {
    static_assert(hw::uses_pdl<write_slowly>);
    const append_case given{.sequences = {{17, 1}, {1, 1}, {300, 1}}, .heads = 6};
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        append_trial<bf16, bf16> there(where, given, 3);
        for (int again = 0; again < 4; ++again) {
            const std::vector<bf16> keys = there.k.values, values = there.v.values, asked = there.q.values;
            for (auto* all : {&there.k.values, &there.v.values, &there.q.values}) {
                for (bf16& one : *all) one = convert<bf16>(convert<float>(one) / 2);
            }
            auto problem = there.upload();
            problem.pdl_prefetch = true;
            std::vector<matrix_view<bf16>> written;
            for (buffer<bf16>* one : {&there.q, &there.v, &there.k}) {
                written.push_back(matrix(one->upload(), static_cast<int>(one->values.size()) / 64, 64));
            }
            for (const auto& one : written) launch<write_slowly>(where, {(one.rows() + 15) / 16}, {one, 400});
            there.k.values = keys, there.v.values = values, there.q.values = asked;
            there.check(where, problem);
        }
    }
}

TEST_CASE("any stride and alignment") {
    for (const int gap : {1, 2, 3, 4, 8}) {
        CAPTURE(gap);
        for (const rope_style style : {half_split, interleaved}) {
            append_case given{.sequences = some_sequences, .heads = 5, .style = style, .gap = gap};
            check_append<bf16>(given);
            given.scaled = scales::of_pages;
            check_append<bf16, e4m3>(given);
        }
    }
}

TEST_CASE("is as accurate at position 1,000,000 as at the first, and applies the attention factor") {
    for (const rope_style style : {half_split, interleaved}) {
        for (const double base : {10000.0, 500000.0}) {
            append_case given{.sequences = {{1000003, 4}, {1048577, 2}, {16777217, 1}},
                              .head_dim = 128,
                              .rotated = 128,
                              .style = style};
            given.theta = base;
            given.page_size = 256;
            check_append<bf16>(given);
            check_append<fp16>(given);
        }
    }
}

TEST_CASE("random problems") {
    for (std::uint32_t seed = 0; seed < 90; ++seed) {
        std::mt19937 random(seed);
        const auto draw = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
        CAPTURE(seed);
        append_case given;
        given.packed = draw(0, 1) == 1;
        const int same = draw(1, 4), count = draw(1, 9);
        for (int i = 0; i < count; ++i) {
            const int added = given.packed ? draw(0, 20) : same;
            given.sequences.push_back({draw(0, 5) == 0 ? draw(0, added) : added + draw(0, 90), added});
        }
        given.kv_heads = draw(1, 9);
        given.heads = given.kv_heads * draw(1, 4);
        given.head_dim = 8 * draw(1, 32);
        given.head_dim_v = 8 * draw(1, 32);
        given.page_size = 16 * draw(1, 6);
        given.rotated = draw(0, 2) == 0 ? 2 * draw(0, given.head_dim / 2) : given.head_dim;
        given.style = draw(0, 1) == 0 ? half_split : interleaved;
        given.with = static_cast<queries>(draw(0, 2));
        given.scaled = static_cast<scales>(draw(0, 3));
        given.gap = draw(0, 2) == 0 ? draw(1, 9) : 0;
        switch (draw(0, 5)) {
            case 0:
                check_append<bf16, e4m3>(given, seed);
                break;
            case 1:
                check_append<fp16, std::int8_t>(given, seed);
                break;
            case 2:
                given.scaled = scales::none;
                check_append<fp16>(given, seed);
                break;
            case 3:
                given.scaled = scales::none;
                check_append<float>(given, seed);
                break;
            case 4:
                given.scaled = scales::none;
                check_append<float, bf16>(given, seed);
                break;
            default:
                given.scaled = scales::none;
                check_append<bf16>(given, seed);
        }
    }
}

namespace {

// Memory of which most is never touched.
class large_memory {
  public:
    large_memory(world where, std::size_t bytes) : where_(where), bytes_(bytes) {
        if (where != world::device) {
            memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            REQUIRE(memory_ != MAP_FAILED);
        }
#if defined(__CUDACC__)
        if (where == world::device) imbrex::detail::require_success(cudaMalloc(&memory_, bytes), "cudaMalloc");
#endif
    }
    large_memory(const large_memory&) = delete;
    large_memory& operator=(const large_memory&) = delete;
    ~large_memory() {
        if (where_ != world::device) munmap(memory_, bytes_);
#if defined(__CUDACC__)
        if (where_ == world::device) cudaFree(memory_);
#endif
    }
    template <class T>
    T* as() const {
        return static_cast<T*>(memory_);
    }
    template <class T>
    T value_at(std::size_t index) const {
        T value{};
#if defined(__CUDACC__)
        imbrex::detail::require_success(cudaMemcpy(&value, as<T>() + index, sizeof value, cudaMemcpyDefault), "copy");
#else
        value = as<T>()[index];
#endif
        return value;
    }

  private:
    world where_;
    std::size_t bytes_;
    void* memory_ = nullptr;
};

}  // namespace

TEST_CASE("pages more than 2^31 elements apart") {
    constexpr std::int64_t apart = (std::int64_t{1} << 30) + 24;
    constexpr int head_dim = 16, rows = 16, pages = 4;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const large_memory cache(where, ((pages - 1) * apart + 2 * rows * head_dim) * sizeof(bf16));
        buffer<bf16> k(where, 2 * head_dim), v(where, 2 * head_dim);
        buffer<int> table(where, 2), lengths(where, 1);
        fill_random(k.values, 1);
        fill_random(v.values, 2);
        table.values = {1, 3};
        lengths.values = {17};
        const auto view = [&](int first) {
            return attention_view<bf16>{
                cache.as<bf16>() + first, {pages, 1, rows, head_dim}, {apart, head_dim, head_dim}};
        };
        paged_append<bf16>::launch(where, {.k = batch_sequence_head<const bf16>(k.upload(), 1, 2, 1, head_dim),
                                           .v = batch_sequence_head<const bf16>(v.upload(), 1, 2, 1, head_dim),
                                           .k_cache = view(0),
                                           .v_cache = view(rows * head_dim),
                                           .paged_kv = {table.upload(), 2},
                                           .seqused_k = lengths.upload()});
        for (int i = 0; i < head_dim; ++i) {
            CHECK(cache.value_at<bf16>(apart + (rows - 1) * head_dim + i).bits == k.values[i].bits);
            CHECK(cache.value_at<bf16>(3 * apart + i).bits == k.values[head_dim + i].bits);
            CHECK(cache.value_at<bf16>(apart + (2 * rows - 1) * head_dim + i).bits == v.values[i].bits);
            CHECK(cache.value_at<bf16>(3 * apart + rows * head_dim + i).bits == v.values[head_dim + i].bits);
        }
    }
}

TEST_CASE("rejects invalid arguments and writes nothing") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        append_trial<bf16, bf16> there(where, {.sequences = {{20, 3}, {33, 1}}}, 1);
        const paged_append_problem<bf16> good = there.upload();
        const auto refused = [&](auto change) {
            paged_append_problem<bf16> bad = good;
            change(bad);
            return error_message_of([&] { paged_append<bf16>::launch(where, bad); });
        };
        const auto rows = [](auto& p, int count) { p.k_cache.extents.given[2] = p.v_cache.extents.given[2] = count; };
        CHECK(refused([&](auto& p) { rows(p, 24); }) ==
              "k_cache.extents[2]: 24; the rows of a page are a multiple of 16");
        CHECK(refused([](auto& p) { p.k.extents.given[3] = 28; }) ==
              "k.extents[3]: 28; head_dim is a multiple of 8 from 8 to 256");
        CHECK(refused([](auto& p) { p.k.pointer = nullptr; }) ==
              "k.pointer: null; a tensor of 1 x 2 x 4 x 64 is needed");
        CHECK(refused([](auto& p) { --p.v.extents.given[1]; }) ==
              "v.extents[1]: 1; k has 2 heads, and it must have as many");
        CHECK(refused([](auto& p) { --p.k_cache.extents.given[1]; }) ==
              "k_cache.extents[1]: 1; k has 2 heads, and it must have as many");
        CHECK(refused([](auto& p) { --p.v_cache.extents.given[0]; }).ends_with(" pages, and it must have as many"));
        CHECK(refused([](auto& p) { p.k_cache.strides.given[1] = 8; }) ==
              "k_cache.strides[1]: 8; heads of a cache must be at least 64 elements apart, one row");
        CHECK(refused([](auto& p) { p.rope.rotary_dim = 65; }) ==
              "rope.rotary_dim: 65; must be even and at most the 64 columns of a key");
        CHECK(refused([](auto& p) { p.rope.rotary_dim = 66; }) ==
              "rope.rotary_dim: 66; must be even and at most the 64 columns of a key");
        CHECK(refused([](auto& p) { p.rope.inv_freq = nullptr; }) == "rope.inv_freq: null; 32 numbers are needed");
        CHECK(refused([](auto& p) { --p.q.extents.given[2]; }) ==
              "q.extents[2]: 3; k has 4 rows, and it must have as many");
        CHECK(refused([](auto& p) { p.q_out = {}; }) ==
              "q_out.extents[0]: 0; q has 1 members of the batch, and it must have as many");
        CHECK(refused([](auto& p) { p.q_out.strides.given[1] = 0; }) ==
              "q_out.strides[1]: 0; heads of results lie at least the 64 elements of a row apart");
        CHECK(refused([](auto& p) { p.paged_kv.block_table = nullptr; }) ==
              "paged_kv.block_table: null; 2 x 3 numbers are needed");
        CHECK(refused([](auto& p) { p.paged_kv.max_blocks_per_seq = -1; }) ==
              "paged_kv.max_blocks_per_seq: -1; it must not be negative");
        CHECK(refused([](auto& p) { p.paged_kv.max_blocks_per_seq = 1 << 27; }) ==
              "paged_kv.max_blocks_per_seq: 134217728; with pages of 16 rows a sequence has room for 2147483648 keys, "
              "and "
              "at most 2147483647 are allowed");
        CHECK(refused([](auto& p) { p.seqused_k = nullptr; }) == "seqused_k: null; 2 numbers are needed");
        CHECK(refused([](auto& p) { p.varlen.count = -2; }) ==
              "varlen.count: -2; the number of sequences must not be negative");
        CHECK(refused([](auto& p) { p.varlen.cu_seqlens_q = nullptr; }) ==
              "varlen.cu_seqlens_q: null; 3 numbers are needed");
        CHECK(refused([](auto& p) {
                  p.varlen.cu_seqlens_k = p.varlen.cu_seqlens_q;
              }).ends_with("; must be null for paged KV: seqused_k has the lengths"));
        const float one = 1;
        CHECK(
            refused([&](auto& p) { p.k_scales = {&one}; }).ends_with("; a cache of bf16 has no scales, must be null"));
        CHECK(refused([&](auto& p) {
                  p.v_scales = {nullptr, -1, 0};
              }) == "v_scales.page_stride: -1; it must not be negative");
        if (where != world::device) {
            const std::vector<int> too_long{20, 49}, negative{-1, 20};
            CHECK(refused([&](auto& p) { p.seqused_k = too_long.data(); }) ==
                  "seqused_k[1]: 49; the pages of a sequence have room for 48 keys, and none may be negative");
            CHECK(refused([&](auto& p) { p.seqused_k = negative.data(); }) ==
                  "seqused_k[0]: -1; the pages of a sequence have room for 48 keys, and none may be negative");
            const std::vector<int> backwards{0, 3, 2}, beyond{0, 3, 5};
            CHECK(refused([&](auto& p) { p.varlen.cu_seqlens_q = backwards.data(); }) ==
                  "varlen.cu_seqlens_q[2]: 2; sequence 1 begins at 3 and cannot end before that");
            CHECK(refused([&](auto& p) { p.varlen.cu_seqlens_q = beyond.data(); }) ==
                  "varlen.cu_seqlens_q[2]: 5; the tensor has 4 rows");
            std::vector<int> wrong = there.table.values;
            const std::string pages = "; there are " + std::to_string(good.k_cache.extents[0]) + " pages";
            wrong[5] = -1;
            CHECK(refused([&](auto& p) { p.paged_kv.block_table = wrong.data(); }) ==
                  "paged_kv.block_table[5]: -1" + pages);
            wrong[5] = 1000;
            CHECK(refused([&](auto& p) { p.paged_kv.block_table = wrong.data(); }) ==
                  "paged_kv.block_table[5]: 1000" + pages);
            wrong[5] = there.table.values[5];
            wrong[0] = 1000;  // before the new tokens of its sequence: never read
            there.check(where, [&] {
                paged_append_problem<bf16> fine = good;
                fine.paged_kv.block_table = wrong.data();
                return fine;
            }());
        } else {
            // On the device such a token is skipped, and the others are not.
            const int own = there.table.values[5];
            there.table.values[5] = 1000;
            there.table.upload();
            auto before = there.k_cache.values;
            paged_append<bf16>::launch(where, good);
            there.k_cache.download();
            const std::size_t page = before.size() / static_cast<std::size_t>(good.k_cache.extents[0]);
            CHECK(std::memcmp(&before[own * page], &there.k_cache.values[own * page], page * sizeof(bf16)) == 0);
            CHECK(std::memcmp(before.data(), there.k_cache.values.data(), before.size() * sizeof(bf16)) != 0);
        }
    }
}

#if defined(__CUDACC__)
TEST_CASE("a replayed CUDA graph appends to other pages at other lengths") {
    append_case given{.sequences = {{20, 1}, {33, 1}, {64, 1}, {1, 1}}, .packed = false, .heads = 8, .kv_heads = 2};
    append_trial<bf16, e4m3> there(world::device, given, 1);
    const auto problem = there.upload();
    cudaStream_t stream = nullptr;
    imbrex::detail::require_success(cudaStreamCreate(&stream), "stream");
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    paged_append<bf16, e4m3>::launch(world::device, problem, stream);
    imbrex::detail::require_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    paged_append<bf16, e4m3>::launch(world::device, problem, stream);
    imbrex::detail::require_success(cudaStreamEndCapture(stream, &graph), "capture");
    imbrex::detail::require_success(cudaGraphInstantiate(&made, graph, 0), "graph");
    for (const std::vector<int>& lengths : {std::vector<int>{20, 33, 64, 1}, {19, 35, 0, 16}, {5, 48, 62, 2}}) {
        // The same cache with other lengths and another block table; the expected result is that of a single append.
        append_case next = given;
        for (std::size_t i = 0; i < lengths.size(); ++i) next.sequences[i].length = lengths[i];
        append_trial<bf16, e4m3> expected(world::device, next, 7);
        paged_append<bf16, e4m3>::launch(world::device, expected.upload());
        expected.k_cache.download();
        append_trial<bf16, e4m3> other(world::device, next, 7);
        other.upload();
        there.k.values = other.k.values;
        there.k.upload();
        there.lengths.values = other.lengths.values;
        there.lengths.upload();
        REQUIRE(there.table.values.size() >= other.table.values.size());
        const int room = problem.paged_kv.max_blocks_per_seq;
        const int other_room = static_cast<int>(other.table.values.size()) / 4;
        std::fill(there.table.values.begin(), there.table.values.end(), -1);
        for (int i = 0; i < 4; ++i) {
            for (int j = 0; j < other_room; ++j) {
                there.table.values[i * room + j] = other.table.values[i * other_room + j];
            }
        }
        there.table.upload();
        const std::size_t pages = std::min(there.k_cache.values.size(), other.k_cache.values.size());
        std::copy_n(other.k_cache.values.begin(), pages, there.k_cache.values.begin());
        there.k_cache.upload();
        imbrex::detail::require_success(cudaGraphLaunch(made, stream), "graph");
        imbrex::detail::require_success(cudaStreamSynchronize(stream), "graph");
        there.k_cache.download();
        CHECK(std::memcmp(there.k_cache.values.data(), expected.k_cache.values.data(), pages) == 0);
    }
    cudaGraphExecDestroy(made);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}
#else
namespace {

template <append_tiling Rows>
void check_schedules(const append_case& given) {
    using append = paged_append<bf16, e4m3>;
    using kernel = append::kernel<Rows>;
    append_trial<bf16, e4m3> there(world::host, given, 1);
    auto problem = there.upload();
    for (const bool early : {false, true}) {
        problem.pdl_prefetch = early;
        const auto arguments = append::arguments_of<Rows>(problem);
        const grid_dim grid = kernel::grid_of(arguments, 4);
        check_without_synchronisation<kernel>(grid, arguments);
    }
}

}  // namespace

TEST_CASE("no hazard in any schedule; has no synchronisation to mutate") {
    append_case given{.sequences = {{17, 3}, {1, 1}}, .heads = 6, .head_dim = 128, .head_dim_v = 32, .rotated = 128};
    check_schedules<append_tiling::wide>(given);
    check_schedules<append_tiling::narrow>(given);
    given.head_dim = 80, given.rotated = 40, given.style = interleaved;
    check_schedules<append_tiling::unaligned>(given);
}
#endif
