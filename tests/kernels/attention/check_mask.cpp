// The comparison of a mask's claims with its `keep`, alone and in attention_forward::check.
#include <doctest/doctest.h>

#include <imbrex/kernels/attention/check_mask.hpp>
#include <imbrex/kernels/attention_forward.hpp>

#include <string>
#include <vector>

using namespace imbrex;

namespace {

// A causal mask that hides the key of the query itself, but claims what causal_mask does.
struct strictly_causal : causal_mask {
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const { return key < query + s.offset(); }
};
// Shows one key more than it claims.
struct sees_one_more : causal_mask {
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const { return key <= query + s.offset() + 1; }
};
// The claims of tiles are right, that of a query is not.
struct wrong_range_of_a_query : full_mask {
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int query) const {
        return {query == 70 ? 1 : 0, s.seqlen_k};
    }
};
// Claims that the last query sees nothing.
struct forgets_a_query : full_mask {
    IMBREX_FN query_range visible_queries(const attention_extents& s, key_range) const { return {0, s.seqlen_q - 1}; }
};

}  // namespace

TEST_CASE("the masks of the library do not contradict themselves") {
    for (const attention_extents extents : {attention_extents{0, 0, 130, 200}, attention_extents{1, 2, 1, 77},
                                            attention_extents{0, 1, 64, 64}, attention_extents{0, 0, 3, 0}}) {
        CHECK(contradiction_in_mask(full_mask{}, extents).empty());
        CHECK(contradiction_in_mask(causal_mask{}, extents).empty());
        CHECK(contradiction_in_mask(window_mask{17, 3}, extents).empty());
        CHECK(contradiction_in_mask(window_mask{40, unbounded}, extents).empty());
        CHECK(contradiction_in_mask(chunked_mask{48}, extents).empty());
        CHECK(contradiction_in_mask(and_masks(causal_mask{}, window_mask{30, 0}), extents).empty());
    }
}

TEST_CASE("a mask whose claims contradict keep is found, with the tile") {
    const attention_extents extents{2, 5, 100, 150};
    const std::string hidden = contradiction_in_mask(strictly_causal{}, extents);
    CHECK(hidden.find("fully_unmasked is true for queries ") != std::string::npos);
    CHECK(hidden.find("batch 2, head 5") != std::string::npos);
    CHECK(contradiction_in_mask(sees_one_more{}, extents).find("keep is true for a key outside") != std::string::npos);
    CHECK(contradiction_in_mask(forgets_a_query{}, extents)
              .find("visible_queries of keys 0 to 15 is [0, 99), but keep") == 0);
    CHECK(contradiction_in_mask(wrong_range_of_a_query{}, extents).find("visible_keys_of_query(70) is [1, 150)") !=
          std::string::npos);
}

TEST_CASE("attention_forward::check reports a contradictory mask, and no hazard otherwise") {
    const int queries = 70, keys = 90, width = 32;
    const std::vector<bf16> values(static_cast<std::size_t>(keys) * width, bf16(0.5f));
    std::vector<bf16> out(static_cast<std::size_t>(queries) * width);
    const auto check = [&]<class Mask>(const Mask& mask) {
        using attention = attention_forward<bf16, attention_options{.head_dims = {{32}}}, Mask>;
        typename attention::problem p{};
        p.q = {values.data(), {1, 1, queries, width}, {queries * width, queries * width, width, 1}};
        p.k = p.v = {values.data(), {1, 1, keys, width}, {keys * width, keys * width, width, 1}};
        p.out = {out.data(), {1, 1, queries, width}, {queries * width, queries * width, width, 1}};
        return attention::check(p, {.schedules = 2}, mask);
    };
    CHECK(!check(causal_mask{}));
    const auto found = check(strictly_causal{});
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::contradictory_mask);
    CHECK(found->text().find("the mask contradicts itself") != std::string::npos);
}
