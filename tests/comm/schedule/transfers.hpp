// All transfers posted in a step, from the sender's and from the receiver's side; the two lists must be equal.
#pragma once

#include <imbrex/comm/schedule/transfer.hpp>

#include <algorithm>
#include <tuple>
#include <vector>

namespace imbrex_test {

// transfers_of(rank) of all ranks, in a canonical order.
template <class TransfersOf>
std::vector<imbrex::transfer> transfers_of_all(int ranks, TransfersOf transfers_of) {
    std::vector<imbrex::transfer> all;
    for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<imbrex::transfer> some = transfers_of(rank);
        all.insert(all.end(), some.begin(), some.end());
    }
    std::sort(all.begin(), all.end(), [](const imbrex::transfer& one, const imbrex::transfer& other) {
        return std::tuple(one.from, one.to, one.what) < std::tuple(other.from, other.to, other.what);
    });
    return all;
}

}  // namespace imbrex_test
