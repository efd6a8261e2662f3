// What the tests of Ulysses attention share: where the rows of a rank are.
#pragma once

#include <imbrex/comm/schedule/ulysses_schedule.hpp>

#include <cstddef>

namespace imbrex_test {

using namespace imbrex;

// Calls visit(row of the rank, batch entry, token) for all rows of a rank, those of the first batch entry first.
template <class Visit>
void each_row(const ulysses_schedule& schedule, int rank, const Visit& visit) {
    const token_ranges tokens = schedule.tokens_of(rank);
    for (int i = 0; i < schedule.sizes.batches * tokens.count(); ++i) {
        visit(i, i / tokens.count(), tokens.position(i % tokens.count()));
    }
}

// Where a tensor [batch, head, row] has the number of such a row.
inline std::size_t row_value_at(const ulysses_schedule& schedule, int rank, int head, int row) {
    const int rows = schedule.tokens_of(rank).count();
    return (std::size_t(row / rows) * schedule.sizes.heads + head) * rows + row % rows;
}

}  // namespace imbrex_test
