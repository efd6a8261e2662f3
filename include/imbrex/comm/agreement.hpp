// That all ranks mean the same before they begin: each tells the others a few numbers, and if they differ, every rank gets the same
// sentence, which names a rank and what is different there. A rank that has refused its arguments by itself says so, instead of
// leaving the others to wait.
#pragma once

#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace imbrex {

struct agreed_number {
    const char* name;
    std::int64_t value;
};

// Called by every rank, with the same names. `refusal` is the sentence with which this rank was refused by itself, or empty. The host
// waits for the other ranks.
template <transport Link>
void require_agreement(Link& link, const std::vector<agreed_number>& mine, const std::string& refusal = {}) {
    const std::size_t each = mine.size() + 1;
    std::vector<std::int64_t> told{refusal.empty() ? 0 : 1};
    for (const agreed_number& one : mine) told.push_back(one.value);
    std::vector<std::int64_t> all(each * link.ranks());
    link.gather(told.data(), all.data(), each * sizeof(std::int64_t));
    if (!refusal.empty()) throw invalid_argument(refusal);
    for (int rank = 0; rank < link.ranks(); ++rank) {
        if (all[rank * each] == 0) continue;
        throw communication_error(rank, 0, sentence("rank ", rank, " was refused its arguments, before step 0"));
    }
    for (int rank = 1; rank < link.ranks(); ++rank) {
        for (std::size_t i = 0; i < mine.size(); ++i) {
            const std::int64_t here = all[rank * each + 1 + i], first = all[1 + i];
            if (here == first) continue;
            throw communication_error(rank, 0,
                                      sentence(mine[i].name, ": ", here, " on rank ", rank, ", and ", first,
                                               " on rank 0, before step 0; all ranks must name the same"));
        }
    }
}

// Makes something of this rank's arguments: what it is refused for is told to all.
template <transport Link, class Make>
auto agreed(Link& link, const std::vector<agreed_number>& numbers, const Make& make) {
    decltype(make()) made{};
    std::string refusal;
    try {
        made = make();
    } catch (const invalid_argument& refused) {
        refusal = refused.what();
    }
    require_agreement(link, numbers, refusal);
    return made;
}

}  // namespace imbrex
