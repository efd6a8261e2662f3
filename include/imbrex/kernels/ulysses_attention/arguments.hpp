// Checks of the arguments of Ulysses attention, forward and backward: the schedule, on one rank and on all, and the
// tensors of a rank.
#pragma once

#include <imbrex/comm/rank_consistency.hpp>
#include <imbrex/comm/schedule/ulysses_schedule.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>

namespace imbrex {

inline void require_ulysses_schedule(const ulysses_schedule& schedule, int ranks, int element_bytes) {
    require_schedule(schedule);
    require(schedule.ranks == ranks, "ranks: ", schedule.ranks, "; the transport has ", ranks);
    require(schedule.sizes.element_bytes == element_bytes, "sizes.element_bytes: ", schedule.sizes.element_bytes,
            "; the elements of this attention have ", element_bytes);
}

// Collective.
template <transport Transport>
void require_same_ulysses_schedule(Transport& comm, const ulysses_schedule& schedule, int element_bytes) {
    const attention_sizes& sizes = schedule.sizes;
    make_on_all_ranks(comm,
                      {{"ranks", schedule.ranks},
                       {"tokens", schedule.tokens},
                       {"placement", static_cast<int>(schedule.placement)},
                       {"mask.left", schedule.mask.left},
                       {"mask.right", schedule.mask.right},
                       {"sizes.batches", sizes.batches},
                       {"sizes.heads", sizes.heads},
                       {"sizes.kv_heads", sizes.kv_heads},
                       {"sizes.head_dim", sizes.head_dim},
                       {"sizes.head_dim_v", sizes.head_dim_v},
                       {"sizes.element_bytes", sizes.element_bytes}},
                      [&] {
                          require_ulysses_schedule(schedule, comm.ranks(), element_bytes);
                          return true;
                      });
}

// A rank without rows may pass null.
inline void require_ulysses_tensor(const ulysses_schedule& schedule, int rank, const void* pointer, const char* name,
                                   int heads, int head_dim) {
    const int batches = schedule.sizes.batches, rows = schedule.tokens_of(rank).count();
    require(pointer != nullptr || rows == 0 || batches == 0, name, ": null; ", batches, " x ", rows, " x ", heads,
            " x ", head_dim, " elements are needed");
}

}  // namespace imbrex
