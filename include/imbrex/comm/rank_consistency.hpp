// Collective argument checks: every rank contributes a few named integers to an all-gather, and if they differ, every
// rank throws the same message, which names a rank and the value that differs. A rank whose own arguments are invalid
// reports that too, so that the others do not wait for it.
#pragma once

#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace imbrex {

struct rank_invariant {
    const char* name;
    std::int64_t value;
};

// Collective: called by every rank with the same names. `local_error` is the message for invalid arguments of this
// rank, or empty. Blocks the host until all ranks have called it.
template <transport Transport>
void require_same_on_all_ranks(Transport& comm, const std::vector<rank_invariant>& mine,
                               const std::string& local_error = {}) {
    const std::size_t each = mine.size() + 1;
    std::vector<std::int64_t> local_values{local_error.empty() ? 0 : 1};
    for (const rank_invariant& one : mine) local_values.push_back(one.value);
    std::vector<std::int64_t> all(each * comm.ranks());
    comm.all_gather(local_values.data(), all.data(), each * sizeof(std::int64_t));
    if (!local_error.empty()) throw invalid_argument(local_error);
    for (int rank = 0; rank < comm.ranks(); ++rank) {
        if (all[rank * each] == 0) continue;
        throw communication_error(rank, 0, str_cat("rank ", rank, " has invalid arguments, before step 0"));
    }
    for (int rank = 1; rank < comm.ranks(); ++rank) {
        for (std::size_t i = 0; i < mine.size(); ++i) {
            const std::int64_t here = all[rank * each + 1 + i], first = all[1 + i];
            if (here == first) continue;
            throw communication_error(rank, 0,
                                      str_cat(mine[i].name, ": ", here, " on rank ", rank, ", and ", first,
                                              " on rank 0, before step 0; must be the same on all ranks"));
        }
    }
}

// Runs make() on every rank; if it throws invalid_argument on one of them, all ranks throw.
template <transport Transport, class Make>
auto make_on_all_ranks(Transport& comm, const std::vector<rank_invariant>& numbers, const Make& make) {
    decltype(make()) made{};
    std::string local_error;
    try {
        made = make();
    } catch (const invalid_argument& refused) {
        local_error = refused.what();
    }
    require_same_on_all_ranks(comm, numbers, local_error);
    return made;
}

}  // namespace imbrex
