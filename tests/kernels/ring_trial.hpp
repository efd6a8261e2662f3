// What the tests of ring attention share: schedules, the rows of a rank, and a transport that forgets a wait.
#pragma once

#include <imbrex/comm/loopback.hpp>
#include <imbrex/comm/ring_plan.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex_test {

using namespace imbrex;

inline ring_schedule schedule_of(int tokens, int ranks, token_placement placement, int q_chunks = 1,
                                 window_mask mask = as_window(causal_mask{}), int heads = 2, int kv_heads = 1) {
    return {.tokens = tokens,
            .ranks = ranks,
            .q_chunks = q_chunks,
            .placement = placement,
            .mask = mask,
            .sizes = {.heads = heads, .kv_heads = kv_heads}};
}

inline constexpr token_placement placements[] = {token_placement::contiguous, token_placement::zigzag,
                                                 token_placement::striped};

// Calls visit(row of the rank, sequence, token) for all rows of a rank.
template <class Visit>
void each_row(const ring_plan& plan, int rank, const Visit& visit) {
    std::int64_t row = 0;
    int number = 0;
    for (const ring_schedule& one : plan.sequences()) {
        const token_ranges tokens = one.tokens_of(rank);
        for (int member = 0; member < one.sizes.batches; ++member, ++number) {
            for (int i = 0; i < tokens.count(); ++i) visit(row++, number, tokens.position(i));
        }
    }
}

// A transport whose user forgets one of its waits.
class forgetful {
  public:
    forgetful(loopback& comm, send_recv_request forgotten) : comm_(comm), forgotten_(forgotten) {}

    int rank() const { return comm_.rank(); }
    int ranks() const { return comm_.ranks(); }
    world where() const { return comm_.where(); }
    send_recv_request start(const send_recv_group& one, void* stream) { return comm_.start(one, stream); }
    void wait(send_recv_request request, void* stream) {
        if (request != forgotten_) comm_.wait(request, stream);
    }
    void synchronise(void* stream) { comm_.synchronise(stream); }
    void all_gather(const void* mine, void* all, std::size_t bytes) { comm_.all_gather(mine, all, bytes); }

  private:
    loopback& comm_;
    send_recv_request forgotten_;
};

}  // namespace imbrex_test
