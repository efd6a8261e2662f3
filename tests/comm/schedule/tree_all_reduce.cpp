// The tree all-reduce for up to 64 ranks: sends match receives, and every rank ends with the partial results of all
// ranks, each once, merged by the same operations on the same operands.
#include "worlds.hpp"

#include <imbrex/comm/schedule/tree_all_reduce.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace imbrex;
using imbrex_test::error_message_of;

namespace {

// The ranks merged into a result, and a hash of the merge operations.
struct part {
    std::vector<int> of;
    int made;
};

// Equal operands give equal hashes.
class numbering {
  public:
    int of(int first, int second) {
        return numbers_.try_emplace({first, second}, next_ + static_cast<int>(numbers_.size())).first->second;
    }
    explicit numbering(int next) : next_(next) {}

  private:
    int next_;
    std::map<std::pair<int, int>, int> numbers_;
};

}  // namespace

TEST_CASE("every rank ends with the same merge of all partial results") {
    for (int ranks = 1; ranks <= 64; ++ranks) {
        CAPTURE(ranks);
        const tree_all_reduce tree{.ranks = ranks, .tokens = 3, .sizes = {.heads = 2, .head_dim_v = 64}};
        require_tree(tree);
        numbering merged(ranks);
        std::vector<part> has;
        for (int rank = 0; rank < ranks; ++rank) has.push_back({{rank}, rank});
        for (int round = 0; round < tree.rounds(); ++round) {
            const std::vector<part> before = has;
            for (int rank = 0; rank < ranks; ++rank) {
                const tree_action action = tree.action(rank, round);
                CHECK(action.idle() == (!action.sends && !action.receives));
                if (action.idle()) continue;
                REQUIRE(action.partner >= 0);
                REQUIRE(action.partner < ranks);
                const tree_action theirs = tree.action(action.partner, round);
                CHECK(theirs.partner == rank);
                CHECK(theirs.sends == action.receives);
                CHECK(theirs.receives == action.sends);
                if (action.merges && theirs.merges) CHECK(action.own_first != theirs.own_first);
                if (!action.receives) continue;
                const part &own = before[rank], &other = before[action.partner];
                if (!action.merges) {
                    has[rank] = other;
                    continue;
                }
                const part &first = action.own_first ? own : other, &second = action.own_first ? other : own;
                has[rank] = {first.of, merged.of(first.made, second.made)};
                has[rank].of.insert(has[rank].of.end(), second.of.begin(), second.of.end());
            }
        }
        for (int rank = 0; rank < ranks; ++rank) {
            REQUIRE(static_cast<int>(has[rank].of.size()) == ranks);
            for (int i = 0; i < ranks; ++i) CHECK(has[rank].of[i] == i);  // in rank order
            CHECK(has[rank].made == has[0].made);
        }
    }
}

TEST_CASE("rounds and bytes follow from the number of ranks") {
    for (int ranks = 1; ranks <= 64; ++ranks) {
        CAPTURE(ranks);
        const tree_all_reduce tree{.ranks = ranks, .tokens = 7, .sizes = {.heads = 8, .head_dim_v = 128, .batches = 2}};
        int doublings = 0;
        while (2 << doublings <= ranks) ++doublings;
        const bool even = 1 << doublings == ranks;
        CHECK(tree.rounds() == doublings + (even ? 0 : 2));
        const std::int64_t one = 2 * 7 * (8 * 128 + 2 * 8) * std::int64_t{4};
        std::int64_t all_sent = 0, all_received = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            const bool beside = rank < 2 * (ranks - (1 << doublings)), gives = beside && rank % 2 == 1;
            CHECK(tree.bytes_sent(rank) == one * (gives ? 1 : doublings + (beside ? 1 : 0)));
            all_sent += tree.bytes_sent(rank);
            int last = -1;
            for (int round = 0; round < tree.rounds(); ++round) {
                if (!tree.action(rank, round).idle()) last = round;
                for (const transfer& received : tree.receives(rank, round)) {
                    CHECK(received.to == rank);
                    const auto sent = tree.sends(received.from, round);
                    CHECK(std::find(sent.begin(), sent.end(), received) != sent.end());
                    CHECK(received.post_step == round);
                    CHECK(received.needed_step == round + 1);
                    all_received += received.bytes;
                }
            }
            CHECK(tree.last_round(rank) == last);
        }
        CHECK(all_sent == all_received);
    }
    // Closed form for 4 ranks: twice the bytes of a partial result.
    const tree_all_reduce four{.ranks = 4, .tokens = 1, .sizes = {.heads = 32, .head_dim_v = 128}};
    CHECK(four.bytes_sent(0) == 2 * (32 * 128 + 2 * 32) * 4);
}

TEST_CASE("a tree is constexpr") {
    constexpr tree_all_reduce six{.ranks = 6};
    static_assert(six.rounds() == 4);
    static_assert(six.action(1, 0) == tree_action{0, true, false, false, false});
    static_assert(six.action(0, 0) == tree_action{1, false, true, true, true});
    static_assert(six.action(2, 1) == tree_action{0, true, true, true, false});
    static_assert(six.action(5, 2) == tree_action{2, true, true, true, false});
    static_assert(six.action(3, 3) == tree_action{2, false, true, false, false});
    static_assert(six.action(4, 3).idle());
    static_assert(tree_all_reduce{}.rounds() == 0);
}

TEST_CASE("rejects invalid trees; an empty tree sends nothing") {
    CHECK(error_message_of([] { require_tree({.ranks = 0}); }) == "ranks: 0; 1 to 1048576 are allowed");
    CHECK(error_message_of([] { require_tree({.ranks = 2, .tokens = -1}); }) == "tokens: -1; must not be negative");
    CHECK(error_message_of([] { require_tree({.ranks = 2, .tokens = 1, .sizes = {.heads = 0}}); }) ==
          "sizes.heads: 0; must be at least 1");
    CHECK(tree_all_reduce{.ranks = 4, .tokens = 0, .sizes = {.heads = 2}}.bytes_sent(1) == 0);
}
