// All transfers that start in a step, as those see them who send and those who receive: the two must be the same.
#pragma once

#include <imbrex/comm/schedule/transfer.hpp>

#include <algorithm>
#include <tuple>
#include <vector>

namespace imbrex_test {

// Transfers of all ranks, transfers_of(rank), in an order that does not depend on who named them.
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
