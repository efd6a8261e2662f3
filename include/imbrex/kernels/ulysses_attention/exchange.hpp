// The two all-to-alls of Ulysses attention on one rank. scatter_heads() sends the heads of the own rows to the ranks of
// these heads and gathers all tokens of the own heads; gather_heads() is its inverse.
//
//     scatter_heads   own rows  ->  outgoing messages  ->  incoming messages  ->  all tokens of the own heads
//     gather_heads    own rows  <-  incoming messages  <-  outgoing messages  <-  all tokens of the own heads
//
// A message holds the rows of one rank and the heads of another, in the layout of the tensor, contiguous. The part that
// stays on its rank is copied. All copies are enqueued in the stream, and the host does not wait.
#pragma once

#include <imbrex/comm/schedule/ulysses_schedule.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/hw/world_copy.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/ulysses_attention/row_values.hpp>
#include <imbrex/kernels/ulysses_attention/workspace.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class Transport>
class ulysses_exchange {
  public:
    // A tensor, and the rank's own rows of it: all heads. Null: an output that is not wanted, but other ranks may want
    // theirs.
    struct input {
        ulysses_tensor tensor;
        const void* own;
    };
    struct output {
        ulysses_tensor tensor;
        void* own;
    };

    ulysses_exchange(Transport& comm, const ulysses_schedule& schedule, void* workspace, void* stream)
        : comm_(comm),
          schedule_(schedule),
          rank_(comm.rank()),
          workspace_(static_cast<std::byte*>(workspace)),
          stream_(stream) {}

    void scatter_heads(const std::vector<input>& all) {
        send_recv_group messages{0, {}, {}};
        for (const input& one : all) {
            for (int by = 0; by < schedule_.ranks; ++by) pack_heads(one, by);
            for_others([&](int other) {
                send(messages, other, heads_message(one.tensor, one.tensor.outgoing, other));
                receive(messages, other, tokens_message(one.tensor, one.tensor.incoming, other));
            });
        }
        run(messages);
        for (const input& one : all) {
            copy_tokens(one.tensor, message_packing::unpack);
        }
    }

    void gather_heads(const std::vector<output>& all) {
        send_recv_group messages{2, {}, {}};
        for (const output& one : all) {
            copy_tokens(one.tensor, message_packing::pack);
            for_others([&](int other) {
                send(messages, other, tokens_message(one.tensor, one.tensor.outgoing, other));
                receive(messages, other, heads_message(one.tensor, one.tensor.incoming, other));
            });
        }
        run(messages);
        for (const output& one : all) {
            for (int by = 0; by < schedule_.ranks; ++by) unpack_heads(one, by);
        }
    }

  private:
    struct message {
        std::byte* begin;
        std::size_t bytes;
    };
    // The heads of one rank in the own rows.
    struct head_slices {
        std::size_t offset, pitch, bytes, count;
    };

    int batches() const { return schedule_.sizes.batches; }
    int rows_of(int chunk) const { return schedule_.tokens_of(chunk).count(); }

    // The messages of an area, ordered by rank: the own rows with the heads of rank `by`, or the rows of rank `chunk`
    // with the own heads.
    message heads_message(const ulysses_tensor& one, std::size_t area, int by) const {
        const std::size_t head = one.head_bytes * batches() * rows_of(rank_);
        const head_range heads = one.heads_of(schedule_, by);
        return {workspace_ + area + head * heads.first, head * heads.count};
    }
    message tokens_message(const ulysses_tensor& one, std::size_t area, int chunk) const {
        const std::size_t row = one.head_bytes * batches() * one.heads_of(schedule_, rank_).count;
        const std::size_t before = tokens_before(schedule_.placement, schedule_.tokens, schedule_.ranks, chunk);
        return {workspace_ + area + row * before, row * rows_of(chunk)};
    }

    // Ordered by distance, so that no two ranks send to the same rank at the same time.
    template <class Call>
    void for_others(const Call& call) const {
        for (int distance = 1; distance < schedule_.ranks; ++distance) call((rank_ + distance) % schedule_.ranks);
    }
    static void send(send_recv_group& all, int to, const message& one) {
        if (one.bytes > 0) all.sends.push_back({to, one.begin, one.bytes});
    }
    static void receive(send_recv_group& all, int from, const message& one) {
        if (one.bytes > 0) all.receives.push_back({from, one.begin, one.bytes});
    }

    void run(const send_recv_group& messages) {
        if (!messages.empty()) comm_.wait(comm_.start(messages, stream_), stream_);
    }

    head_slices slices_of(const ulysses_tensor& one, int by) const {
        const bool per_row = one.layout == ulysses_layout::rows_of_heads;
        const std::size_t rows = rows_of(rank_), head = per_row ? one.head_bytes : one.head_bytes * rows;
        const head_range heads = one.heads_of(schedule_, by);
        return {head * heads.first, head * one.all_heads(schedule_), head * heads.count,
                per_row ? batches() * rows : batches()};
    }
    void pack_heads(const input& one, int by) const {
        const head_slices heads = slices_of(one.tensor, by);
        const message to = by == rank_ ? tokens_message(one.tensor, one.tensor.incoming, rank_)
                                       : heads_message(one.tensor, one.tensor.outgoing, by);
        if (to.bytes == 0) return;
        copy_2d(comm_.where(), {to.begin, heads.bytes},
                {static_cast<const std::byte*>(one.own) + heads.offset, heads.pitch}, heads.bytes, heads.count,
                stream_);
    }
    void unpack_heads(const output& one, int by) const {
        if (one.own == nullptr) return;
        const head_slices heads = slices_of(one.tensor, by);
        const message from = heads_message(one.tensor, one.tensor.incoming, by);
        if (from.bytes == 0) return;
        copy_2d(comm_.where(), {static_cast<std::byte*>(one.own) + heads.offset, heads.pitch},
                {from.begin, heads.bytes}, heads.bytes, heads.count, stream_);
    }

    // Between all tokens of the own heads and the messages, one for the tokens of each rank. Those of the own tokens are
    // packed where they are unpacked.
    void copy_tokens(const ulysses_tensor& one, message_packing way) const {
        if (one.layout == ulysses_layout::row_values) return copy_row_values(one, way);
        for (int chunk = 0; chunk < schedule_.ranks; ++chunk) copy_rows(one, chunk, message_of(one, chunk, way), way);
    }
    std::byte* message_of(const ulysses_tensor& one, int chunk, message_packing way) const {
        const bool packs = way == message_packing::pack;
        if (packs && chunk == rank_) return heads_message(one, one.incoming, rank_).begin;
        return tokens_message(one, packs ? one.outgoing : one.incoming, chunk).begin;
    }
    void copy_rows(const ulysses_tensor& one, int chunk, std::byte* packed, message_packing way) const {
        const token_ranges tokens = schedule_.tokens_of(chunk);
        const std::size_t row = one.head_bytes * one.heads_of(schedule_, rank_).count;
        std::byte* placed = workspace_ + one.gathered;
        for (int member = 0; member < batches(); ++member, placed += row * schedule_.tokens) {
            for (const token_range& range : tokens.ranges) {
                pitched_ptr to{packed, row}, from{placed + row * range.first, row * tokens.stride};
                if (way == message_packing::unpack) std::swap(to, from);
                copy_2d(comm_.where(), to, {from.ptr, from.pitch}, row, range.count, stream_);
                packed += row * range.count;
            }
        }
    }
    void copy_row_values(const ulysses_tensor& one, message_packing way) const {
        const auto floats = [](std::byte* begin) { return reinterpret_cast<float*>(begin); };
        const std::size_t area = way == message_packing::pack ? one.outgoing : one.incoming;
        const row_value_messages messages{floats(workspace_ + area),
                                          floats(message_of(one, rank_, way)),
                                          schedule_.placement,
                                          schedule_.tokens,
                                          schedule_.ranks,
                                          rank_,
                                          batches(),
                                          one.heads_of(schedule_, rank_).count};
        pack_row_values(comm_.where(), messages, floats(workspace_ + one.gathered), way, stream_);
    }

    Transport& comm_;
    const ulysses_schedule& schedule_;
    const int rank_;
    std::byte* const workspace_;
    void* const stream_;
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
