#include <doctest/doctest.h>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/work_tile.hpp>

#include <type_traits>

namespace {

using namespace imbrex;

constexpr int block_m = 48, block_n = 32, warpgroup_rows = 16;

// Compares every work tile of a head with the mask, pair by pair: no visible pair is outside its key tiles, and an
// unmasked tile is fully visible. `exact`: no other tile is.
template <class Mask>
void test_work_tiles(int seqlen_q, int seqlen_k, const Mask& mask, bool exact) {
    CAPTURE(seqlen_q);
    CAPTURE(seqlen_k);
    const attention_seqlens lengths{seqlen_q, seqlen_k};
    const attention_tile_scheduler scheduler{1, 1, (seqlen_q + block_m - 1) / block_m, 0};
    for (int number = 0; number < scheduler.total(lengths); ++number) {
        const attention_work_tile work =
            attention_work_tile_at<block_m, block_n, warpgroup_rows, true>(number, scheduler, lengths, mask);
        CHECK(work.first_row == work.queries.first);
        int seen_outside = 0, wrongly_unmasked = 0, missed = 0;
        for (int tile = 0; tile * block_n < seqlen_k; ++tile) {
            int kept = 0;
            for (int query = work.queries.first; query < work.queries.end; ++query) {
                for (int key = tile * block_n; key < (tile + 1) * block_n; ++key) {
                    kept += key < seqlen_k && mask.keep(work.sequence, query, key);
                }
            }
            const bool unmasked = kept == (work.queries.end - work.queries.first) * block_n;
            const int counted = tile - work.first_tile;
            const bool inside = counted >= 0 && counted < work.tiles;
            seen_outside += !inside && kept > 0;
            wrongly_unmasked += inside && work.unmasked.has(counted) && !unmasked;
            missed += inside && unmasked && !work.unmasked.has(counted);
        }
        CHECK(seen_outside == 0);
        CHECK(wrongly_unmasked == 0);
        if (exact) CHECK(missed == 0);
        int wrongly_skipped = 0, all_skipped = 0;
        for (int query = work.queries.first; query < work.queries.end; ++query) {
            const int group = (query - work.queries.first) / warpgroup_rows;
            const int first_key = (work.first_tile + work.tiles - 1) * block_n;
            bool sees = false;
            for (int key = first_key; key < seqlen_k; ++key) sees = sees || mask.keep(work.sequence, query, key);
            wrongly_skipped += sees && work.skipped_by(group);
            all_skipped += work.skipped_by(group);
        }
        CHECK(wrongly_skipped == 0);
        // A tile is there because some query sees it, and a warpgroup without another tile does not skip it.
        CHECK((all_skipped == 0 || (work.tiles > 1 && all_skipped < work.queries.end - work.queries.first)));
    }
}

// Every query is in one block, and all warpgroups are full but the last of the last block.
template <class Mask>
void test_queries(int block_m, int warpgroup_rows) {
    for (int seqlen_q = 1; seqlen_q <= 5 * block_m; ++seqlen_q) {
        const int blocks = (seqlen_q + block_m - 1) / block_m;
        int next = 0, wrong = 0, most = 0, least = block_m;
        for (int block = 0; block < blocks; ++block) {
            const query_range some = attention_query_range<Mask>(block, block_m, warpgroup_rows, seqlen_q);
            wrong += some.first != next || some.end <= some.first || some.end - some.first > block_m;
            wrong += some.end < seqlen_q && some.end % warpgroup_rows != 0;
            next = some.end;
            const int groups = (some.end - some.first + warpgroup_rows - 1) / warpgroup_rows;
            if (block > 0) {
                most = groups > most ? groups : most;
                least = groups < least ? groups : least;
            }
        }
        CAPTURE(seqlen_q);
        CHECK(wrong == 0);
        CHECK(next == seqlen_q);
        if (blocks > 1 && causal_like<Mask>()) CHECK(least == most);
        // A block behind the last has no queries.
        CHECK(attention_query_range<Mask>(blocks, block_m, warpgroup_rows, seqlen_q).first >= seqlen_q);
    }
}

TEST_CASE("the first blocks have fewer warpgroups if seqlen_q is not a multiple of block_m") {
    test_queries<full_mask>(192, 64);
    test_queries<causal_mask>(192, 64);
    test_queries<full_mask>(128, 64);
    test_queries<causal_mask>(48, 48);
    const auto is = [](query_range some, int first, int end) { return some.first == first && some.end == end; };
    CHECK(is(attention_query_range<causal_mask>(0, 192, 64, 1024), 0, 64));
    CHECK(is(attention_query_range<causal_mask>(1, 192, 64, 1024), 64, 256));
    CHECK(is(attention_query_range<causal_mask>(5, 192, 64, 1024), 832, 1024));
    CHECK(is(attention_query_range<full_mask>(0, 192, 64, 1024), 0, 128));
    CHECK(is(attention_query_range<full_mask>(1, 192, 64, 1024), 128, 256));
    CHECK(is(attention_query_range<full_mask>(5, 192, 64, 1024), 832, 1024));
}

TEST_CASE("warpgroups without queries are idle") {
    const attention_seqlens lengths{80, 100};
    const attention_tile_scheduler scheduler{1, 1, 2, 0};
    const auto idle = [&](auto mask, int number) {
        const attention_work_tile work = attention_work_tile_at<48, 32, 16, true>(number, scheduler, lengths, mask);
        return work.skipped >> attention_work_tile::idle_shift;
    };
    // 5 warpgroups: 2 and 3.
    CHECK(idle(full_mask{}, 0) == 4);
    CHECK(idle(full_mask{}, 1) == 0);
    CHECK(idle(causal_mask{}, 0) == 4);
}

// A mask that hides one key: unmasked on both sides of it.
struct all_but_one : mask_base {
    int hidden;
    bool keep(const attention_extents&, int, int key) const { return key != hidden; }
    bool fully_unmasked(const attention_extents&, query_range, key_range k) const {
        return hidden < k.first || hidden >= k.end;
    }
};

TEST_CASE("work tiles have the visible key tiles, and the unmasked ones among them") {
    for (const int seqlen_q : {1, 31, 32, 33, 100}) {
        for (const int seqlen_k : {0, 1, 15, 16, 17, 100, 128}) {
            test_work_tiles(seqlen_q, seqlen_k, full_mask{}, true);
            test_work_tiles(seqlen_q, seqlen_k, causal_mask{}, true);
            test_work_tiles(seqlen_q, seqlen_k, window_mask{40, 3}, true);
            test_work_tiles(seqlen_q, seqlen_k, window_mask{5, 0}, true);
            test_work_tiles(seqlen_q, seqlen_k, chunked_mask{24}, false);
            test_work_tiles(seqlen_q, seqlen_k, and_masks(causal_mask{}, chunked_mask{64}), false);
            test_work_tiles(seqlen_q, seqlen_k, all_but_one{{}, 40}, false);
        }
    }
}

TEST_CASE("warpgroups skip the last key tile if they see none of it") {
    const attention_seqlens lengths{192, 192};
    const attention_tile_scheduler scheduler{1, 1, 4, 0};
    const auto skipped = [&](const attention_seqlens& of, auto mask, auto can_skip) {
        return attention_work_tile_at<48, 32, 16, can_skip>(1, scheduler, of, mask).skipped;
    };
    // Queries 48 to 95 see keys up to 95; 64 to 95 are the last tile. The first warpgroup's keys end at 63.
    CHECK(skipped(lengths, causal_mask{}, std::true_type{}) == 1);
    CHECK(skipped(lengths, causal_mask{}, std::false_type{}) == 0);
    CHECK(skipped(lengths, full_mask{}, std::true_type{}) == 0);
    // No warpgroup skips a tile in which keys end and other data follow.
    const int length = 90;
    const attention_seqlens cut{96, 96, &length};
    CHECK(skipped(cut, causal_mask{}, std::true_type{}) == 0);
}

}  // namespace
