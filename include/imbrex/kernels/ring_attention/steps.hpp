// The loop of a rank in ring attention, forward or backward: wait for what arrives, start the messages of the step, then
// compute its blocks. Where the bytes of a message lie is up to the chunks of the pass:
//
//     std::vector<ring_span> sent(const ring_message&) const;
//     std::vector<ring_span> received(const ring_message&) const;
#pragma once

#include <imbrex/comm/ring_plan.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/attention/views.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace imbrex {

// Consecutive bytes of a message.
struct ring_span {
    void* bytes;
    std::size_t count;

    template <class T>
    ring_span(T* bytes, std::int64_t elements)
        : bytes(const_cast<void*>(static_cast<const void*>(bytes))),
          count(static_cast<std::size_t>(elements) * sizeof(T)) {}
};

// The rows of a chunk that belong to one schedule, over its whole batch.
struct ring_rows {
    std::int64_t before;  // the offset in the chunk
    std::int64_t batches;
    std::int64_t count;  // of each batch entry
    std::int64_t all;    // of the chunk
};

inline ring_rows ring_rows_of(const ring_plan& plan, std::size_t sequence, const token_ranges& tokens, int chunk) {
    return {plan.rows_before(sequence, chunk), plan.sequences()[sequence].sizes.batches, tokens.count(),
            plan.rows_of(chunk)};
}

// Rows of one schedule in a tensor [row, head, head_dim], and in row values [head, row].
template <class T>
attention_view<T> ring_view(T* tensor, const ring_rows& rows, std::int64_t heads, std::int64_t head_dim) {
    return batch_sequence_head(tensor + rows.before * heads * head_dim, rows.batches, rows.count, heads, head_dim);
}
inline attention_row_view ring_row_values(float* values, const ring_rows& rows, int first) {
    return {values + rows.before + first, rows.count, rows.all};
}

inline void require_ring_plan(const ring_plan& plan, int rank, ring_pass pass) {
    require(plan.rank() == rank, "plan.rank(): ", plan.rank(), "; the transport's rank is ", rank);
    const auto name = [](ring_pass one) { return one == ring_pass::forward ? "forward" : "backward"; };
    require(plan.pass() == pass, "plan.pass(): ", name(plan.pass()), "; must be ring_pass::", name(pass));
}

namespace detail {

// The messages that start in `step` and are needed in step `need`.
template <class Chunks>
send_recv_group ring_group_of(const Chunks& all, const ring_step& now, int step, int need) {
    send_recv_group made{step, {}, {}};
    for (const ring_message& one : now.sends) {
        if (one.needed_step != need) continue;
        for (const ring_span& part : all.sent(one)) made.sends.push_back({one.peer, part.bytes, part.count});
    }
    for (const ring_message& one : now.receives) {
        if (one.needed_step != need) continue;
        for (const ring_span& part : all.received(one)) made.receives.push_back({one.peer, part.bytes, part.count});
    }
    return made;
}

}  // namespace detail

// begin(step) runs before the messages of a step start, attend(sequence, block) for each of its blocks.
template <class Transport, class Chunks, class Begin, class Attend>
void run_ring_steps(Transport& comm, const ring_plan& plan, const Chunks& all, const Begin& begin, const Attend& attend,
                    void* stream) {
    const int steps = static_cast<int>(plan.steps().size());
    std::vector<std::vector<send_recv_request>> due(steps + 1);
    const auto wait_for_due = [&](int step) {
        for (const send_recv_request request : due[step]) comm.wait(request, stream);
    };
    for (int step = 0; step < steps; ++step) {
        wait_for_due(step);
        begin(step);
        const ring_step& now = plan.steps()[step];
        for (int need = step + 1; need <= steps; ++need) {
            const send_recv_group one = detail::ring_group_of(all, now, step, need);
            if (!one.empty()) due[need].push_back(comm.start(one, stream));
        }
        for (std::size_t i = 0; i < now.blocks.size(); ++i) {
            if (now.blocks[i].rectangles.count > 0) attend(i, now.blocks[i]);
        }
    }
    wait_for_due(steps);
}

}  // namespace imbrex
