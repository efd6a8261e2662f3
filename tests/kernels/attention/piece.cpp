#include <doctest/doctest.h>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/piece.hpp>

#include <type_traits>

namespace {

using namespace imbrex;

constexpr int rows = 48, columns = 32, group_rows = 16;

// Every piece of a head against what the mask says of each pair: no pair that is seen lies outside of its tiles, and a tile that
// is said to be seen whole is. `exact`: and no other tile is.
template <class Mask>
void test_pieces(int queries, int keys, const Mask& mask, bool exact) {
    CAPTURE(queries);
    CAPTURE(keys);
    const attention_lengths lengths{queries, keys};
    const attention_order order{1, 1, (queries + rows - 1) / rows, 0};
    for (int number = 0; number < order.total(lengths); ++number) {
        const attention_piece piece = attention_piece_at<rows, columns, group_rows, true>(number, order, lengths, mask);
        CHECK(piece.first_row == piece.queries.first);
        int seen_outside = 0, wrongly_whole = 0, missed = 0;
        for (int tile = 0; tile * columns < keys; ++tile) {
            int kept = 0;
            for (int query = piece.queries.first; query < piece.queries.end; ++query) {
                for (int key = tile * columns; key < (tile + 1) * columns; ++key) {
                    kept += key < keys && mask.keep(piece.sequence, query, key);
                }
            }
            const bool whole = kept == (piece.queries.end - piece.queries.first) * columns;
            const int counted = tile - piece.first_tile;
            const bool inside = counted >= 0 && counted < piece.tiles;
            seen_outside += !inside && kept > 0;
            wrongly_whole += inside && piece.whole.has(counted) && !whole;
            missed += inside && whole && !piece.whole.has(counted);
        }
        CHECK(seen_outside == 0);
        CHECK(wrongly_whole == 0);
        if (exact) CHECK(missed == 0);
        int wrongly_skipped = 0, all_skipped = 0;
        for (int query = piece.queries.first; query < piece.queries.end; ++query) {
            const int group = (query - piece.queries.first) / group_rows;
            const int first_key = (piece.first_tile + piece.tiles - 1) * columns;
            bool sees = false;
            for (int key = first_key; key < keys; ++key) sees = sees || mask.keep(piece.sequence, query, key);
            wrongly_skipped += sees && piece.skipped_by(group);
            all_skipped += piece.skipped_by(group);
        }
        CHECK(wrongly_skipped == 0);
        // Somebody sees it, or it would not be there; and whoever has no other tile does not skip it.
        CHECK((all_skipped == 0 || (piece.tiles > 1 && all_skipped < piece.queries.end - piece.queries.first)));
    }
}

// Every query is in one block, and all groups are whole but the last of the last block.
template <class Mask>
void test_queries(int rows, int group_rows) {
    for (int queries = 1; queries <= 5 * rows; ++queries) {
        const int blocks = (queries + rows - 1) / rows;
        int next = 0, wrong = 0, most = 0, least = rows;
        for (int block = 0; block < blocks; ++block) {
            const query_range some = attention_queries_of<Mask>(block, rows, group_rows, queries);
            wrong += some.first != next || some.end <= some.first || some.end - some.first > rows;
            wrong += some.end < queries && some.end % group_rows != 0;
            next = some.end;
            const int groups = (some.end - some.first + group_rows - 1) / group_rows;
            if (block > 0) {
                most = groups > most ? groups : most;
                least = groups < least ? groups : least;
            }
        }
        CAPTURE(queries);
        CHECK(wrong == 0);
        CHECK(next == queries);
        if (blocks > 1 && later_queries_see_more<Mask>()) CHECK(least == most);
        // One behind the last has none.
        CHECK(attention_queries_of<Mask>(blocks, rows, group_rows, queries).first >= queries);
    }
}

TEST_CASE("blocks of queries: where they do not come out even, the first lack groups") {
    test_queries<full_mask>(192, 64);
    test_queries<causal_mask>(192, 64);
    test_queries<full_mask>(128, 64);
    test_queries<causal_mask>(48, 48);
    const auto is = [](query_range some, int first, int end) { return some.first == first && some.end == end; };
    CHECK(is(attention_queries_of<causal_mask>(0, 192, 64, 1024), 0, 64));
    CHECK(is(attention_queries_of<causal_mask>(1, 192, 64, 1024), 64, 256));
    CHECK(is(attention_queries_of<causal_mask>(5, 192, 64, 1024), 832, 1024));
    CHECK(is(attention_queries_of<full_mask>(0, 192, 64, 1024), 0, 128));
    CHECK(is(attention_queries_of<full_mask>(1, 192, 64, 1024), 128, 256));
    CHECK(is(attention_queries_of<full_mask>(5, 192, 64, 1024), 832, 1024));
}

TEST_CASE("groups without queries rest") {
    const attention_lengths lengths{80, 100};
    const attention_order order{1, 1, 2, 0};
    const auto resting = [&](auto mask, int number) {
        const attention_piece piece = attention_piece_at<48, 32, 16, true>(number, order, lengths, mask);
        return piece.skipped >> attention_piece::resting;
    };
    // 5 groups: 2 and 3.
    CHECK(resting(full_mask{}, 0) == 4);
    CHECK(resting(full_mask{}, 1) == 0);
    CHECK(resting(causal_mask{}, 0) == 4);
}

// One that sees every key but one: whole on both sides of it.
struct all_but_one : mask_without_shortcuts {
    int hidden;
    bool keep(const attention_sequence&, int, int key) const { return key != hidden; }
    bool whole(const attention_sequence&, query_range, key_range k) const {
        return hidden < k.first || hidden >= k.end;
    }
};

TEST_CASE("pieces of attention know the tiles that are seen, and those that are seen whole") {
    for (const int queries : {1, 31, 32, 33, 100}) {
        for (const int keys : {0, 1, 15, 16, 17, 100, 128}) {
            test_pieces(queries, keys, full_mask{}, true);
            test_pieces(queries, keys, causal_mask{}, true);
            test_pieces(queries, keys, window_mask{40, 3}, true);
            test_pieces(queries, keys, window_mask{5, 0}, true);
            test_pieces(queries, keys, chunked_mask{24}, false);
            test_pieces(queries, keys, all_masks(causal_mask{}, chunked_mask{64}), false);
            test_pieces(queries, keys, all_but_one{{}, 40}, false);
        }
    }
}

TEST_CASE("groups of queries pass by what they do not see of a piece's last tile") {
    const attention_lengths lengths{192, 192};
    const attention_order order{1, 1, 4, 0};
    const auto skipped = [&](const attention_lengths& of, auto mask, auto can_skip) {
        return attention_piece_at<48, 32, 16, can_skip>(1, order, of, mask).skipped;
    };
    // Queries 48 to 95 see keys up to 95, of which 64 to 95 are the last tile: the first group's end at 63.
    CHECK(skipped(lengths, causal_mask{}, std::true_type{}) == 1);
    CHECK(skipped(lengths, causal_mask{}, std::false_type{}) == 0);
    CHECK(skipped(lengths, full_mask{}, std::true_type{}) == 0);
    // Where keys end in the middle of a tile and others follow, all must look at it.
    const int length = 90;
    const attention_lengths cut{96, 96, &length};
    CHECK(skipped(cut, causal_mask{}, std::true_type{}) == 0);
}

}  // namespace
