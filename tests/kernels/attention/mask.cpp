// Attention masks: which keys they keep, and that their answers for tiles hold for each element.
#include <doctest/doctest.h>

#include <imbrex/kernels/attention/mask.hpp>

#include <random>
#include <string>
#include <utility>

using namespace imbrex;

namespace {

// visible_keys contains every key that any of the queries sees, fully_unmasked is true only for tiles of which each
// query sees all keys, and visible_keys_of_query is exact.
template <class Mask>
void check_ranges(const Mask& mask, const attention_extents& s, std::mt19937& random) {
    const auto range = [&](int end) {
        const int first = int(random() % unsigned(end));
        return std::pair{first, first + 1 + int(random() % unsigned(end - first))};
    };
    for (int i = 0; i < 20; ++i) {
        const auto [first_query, end_query] = range(s.seqlen_q);
        const auto [first_key, end_key] = range(s.seqlen_k);
        const query_range queries{first_query, end_query};
        const key_range seen = mask.visible_keys(s, queries);
        const bool whole = mask.fully_unmasked(s, queries, {first_key, end_key});
        for (int query = first_query; query < end_query; ++query) {
            for (int key = 0; key < s.seqlen_k; ++key) {
                const bool kept = mask.keep(s, query, key);
                if constexpr (mask_has_ranges<Mask>()) {
                    const key_range own = mask.visible_keys_of_query(s, query);
                    REQUIRE(kept == (key >= own.first && key < own.end));
                }
                if (kept) REQUIRE((key >= seen.first && key < seen.end));
                if (whole && key >= first_key && key < end_key) REQUIRE(kept);
            }
        }
    }
}

// A line per query, a letter per key.
template <class Mask>
std::string picture(const Mask& mask, int queries, int keys) {
    std::string lines;
    for (int query = 0; query < queries; ++query) {
        for (int key = 0; key < keys; ++key) lines += mask.keep({0, 0, queries, keys}, query, key) ? 'x' : '.';
        lines += ' ';
    }
    return lines;
}

struct even_keys : mask_base {
    IMBREX_FN bool keep(const attention_extents&, int, int key) const { return key % 2 == 0; }
};

}  // namespace

TEST_CASE("masks keep the expected keys") {
    const int lengths[] = {2};
    CHECK(picture(full_mask{}, 2, 3) == "xxx xxx ");
    CHECK(picture(causal_mask{}, 3, 3) == "x.. xx. xxx ");
    CHECK(picture(causal_mask{}, 2, 4) == "xxx. xxxx ");
    CHECK(picture(causal_mask{}, 4, 2) == ".. .. x. xx ");
    CHECK(picture(window_mask{1, 0}, 4, 4) == "x... xx.. .xx. ..xx ");
    CHECK(picture(window_mask{0, 1}, 3, 4) == ".xx. ..xx ...x ");
    CHECK(picture(window_mask{unbounded, 0}, 3, 3) == picture(causal_mask{}, 3, 3));
    CHECK(picture(window_mask{unbounded, unbounded}, 5, 2) == picture(full_mask{}, 5, 2));
    CHECK(picture(chunked_mask{2}, 4, 4) == "x... xx.. ..x. ..xx ");
    CHECK(picture(chunked_mask{2}, 5, 4) == ".... x... xx.. ..x. ..xx ");
    CHECK(picture(length_mask{lengths}, 2, 4) == "xx.. xx.. ");
    CHECK(picture(even_keys{}, 1, 5) == "x.x.x ");
    CHECK(picture(and_masks(causal_mask{}, even_keys{}), 3, 3) == "x.. x.. x.x ");
    CHECK(picture(and_masks(causal_mask{}, window_mask{1, 5}, length_mask{lengths}), 3, 3) == "x.. xx. .x. ");
}

TEST_CASE("answers for tiles hold for each element") {
    std::mt19937 random(1);
    for (int i = 0; i < 60; ++i) {
        const attention_extents s{0, 0, 1 + int(random() % 40), 1 + int(random() % 40)};
        const int lengths[] = {int(random() % unsigned(s.seqlen_k + 1))};
        const window_mask window{int(random() % 20), int(random() % 20)};
        check_ranges(full_mask{}, s, random);
        check_ranges(causal_mask{}, s, random);
        check_ranges(window, s, random);
        check_ranges(window_mask{unbounded, 3}, s, random);
        check_ranges(window_mask{3, unbounded}, s, random);
        check_ranges(chunked_mask{1 + int(random() % 15)}, s, random);
        check_ranges(length_mask{lengths}, s, random);
        check_ranges(even_keys{}, s, random);
        check_ranges(and_masks(causal_mask{}, window, length_mask{lengths}), s, random);
    }
}

TEST_CASE("reports which masks have visible_keys_of_query") {
    const auto say = [](auto mask) { return mask_has_ranges<decltype(mask)>(); };
    CHECK(say(full_mask{}));
    CHECK(say(chunked_mask{}));
    CHECK(say(and_masks(causal_mask{}, window_mask{}, length_mask{})));
    CHECK(!say(even_keys{}));
    CHECK(!say(and_masks(causal_mask{}, even_keys{})));
}

TEST_CASE("only a mask with reads_no_memory is evaluated before launch") {
    const auto may = [](auto mask) { return reads_no_memory<decltype(mask)>(); };
    CHECK(may(full_mask{}));
    CHECK(may(and_masks(causal_mask{}, window_mask{}, chunked_mask{})));
    CHECK(!may(length_mask{}));
    CHECK(!may(and_masks(causal_mask{}, length_mask{})));
    CHECK(!may(even_keys{}));
}

TEST_CASE("causal_like of a combination follows from its masks") {
    const auto grows = [](auto mask) { return causal_like<decltype(mask)>(); };
    CHECK(grows(causal_mask{}));
    CHECK(!grows(full_mask{}));
    CHECK(grows(window_mask{}));
    CHECK(!grows(chunked_mask{}));
    CHECK(grows(and_masks(causal_mask{}, length_mask{})));
    CHECK(grows(and_masks(even_keys{}, causal_mask{})));
    CHECK(grows(and_masks(causal_mask{}, window_mask{})));
    CHECK(!grows(and_masks(causal_mask{}, chunked_mask{})));
    CHECK(!grows(and_masks(length_mask{}, even_keys{})));
}
