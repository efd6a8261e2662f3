// Ulysses attention (DeepSpeed-Ulysses): exact context parallel attention by all-to-all. Each rank exchanges heads for
// tokens, so that it has all tokens of its own heads, computes ordinary attention on them, and a second all-to-all
// returns the outputs (comm/schedule/ulysses_schedule.hpp).
//
//     const ulysses_schedule schedule{.tokens = 1 << 20, .ranks = 8,
//                                     .sizes = {.heads = 32, .kv_heads = 8, .head_dim = 128, .head_dim_v = 128}};
//     using attention = ulysses_attention<bf16>;
//     attention::require_same_on_all_ranks(comm, schedule);  // once, on every rank; blocks the host
//     world_memory workspace(where, attention::workspace_bytes(schedule, comm.rank()));
//     attention::launch(comm, schedule, {.q = q, .k = k, .v = v, .out = out, .workspace = workspace.at()}, {}, stream);
//
// Tensors hold the rank's own rows, [batch, row, head, head_dim], contiguous, rows in the order of positions. Compared
// with ring attention: fewer bytes and no LSE merge, but communication is not overlapped and there can be at most
// kv_heads ranks.
#pragma once

#include <imbrex/comm/check_ranks.hpp>
#include <imbrex/comm/rank_consistency.hpp>
#include <imbrex/comm/schedule/ulysses_schedule.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/workspace_layout.hpp>
#include <imbrex/hw/world_copy.hpp>
#include <imbrex/kernels/attention_forward.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace imbrex {

template <class In>
struct ulysses_problem {
    const In* q = nullptr;            // [batch, row, head, head_dim]
    const In* k = nullptr;            // [batch, row, kv_head, head_dim]
    const In* v = nullptr;            // [batch, row, kv_head, head_dim_v]
    In* out = nullptr;                // [batch, row, head, head_dim_v]
    void* workspace = nullptr;        // workspace_bytes(schedule, rank) bytes, 256-byte aligned
    std::optional<float> scale = {};  // of Q K^T; 1 / sqrt(head_dim) by default
};

inline namespace IMBREX_WORLDS {

template <class In, attention_head_dim_set HeadDims = all_attention_head_dims, class Score = score_mod::identity>
class ulysses_attention {
  public:
    using problem = ulysses_problem<In>;

    template <transport Transport>
    static void require_same_on_all_ranks(Transport& comm, const ulysses_schedule& schedule) {
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
                              require_schedule(schedule);
                              require(schedule.ranks == comm.ranks(), "ranks: ", schedule.ranks, "; the transport has ",
                                      comm.ranks());
                              require(sizes.element_bytes == static_cast<int>(sizeof(In)),
                                      "sizes.element_bytes: ", sizes.element_bytes,
                                      "; the elements of this attention have ", sizeof(In));
                              return true;
                          });
    }

    static std::size_t workspace_bytes(const ulysses_schedule& schedule, int rank) {
        return layout(schedule, rank).buffers.bytes();
    }

    // Runs all ranks in the checked host world, under many schedules, with a problem for each. Returns the first hazard of
    // a rank, or none.
    static std::optional<hazard> check(const std::vector<problem>& problems, const host::check_options& options,
                                       const ulysses_schedule& schedule, const Score& score = {}) {
        const auto rank = [&](loopback& comm) {
            require_same_on_all_ranks(comm, schedule);
            launch(comm, schedule, problems[comm.rank()], score);
        };
        return check_ranks(static_cast<int>(problems.size()), rank, options);
    }

    template <class Transport>
    static void launch(Transport& comm, const ulysses_schedule& schedule, const problem& p, const Score& score = {},
                       void* stream = nullptr) {
        static_assert(detail::check_transport<Transport>());
        const layout at(schedule, comm.rank());
        require_problem(schedule, comm.rank(), p);
        at.buffers.require_given(p.workspace, "workspace");
        const mover move{comm.where(), stream, schedule, comm.rank(), static_cast<In*>(p.workspace)};
        const workspace_tensor q{at.q, schedule.sizes.head_dim, false}, k{at.k, schedule.sizes.head_dim, true},
            v{at.v, schedule.sizes.head_dim_v, true}, out{at.out, schedule.sizes.head_dim_v, false};

        send_recv_group heads{0, {}, {}};
        move.send_heads(heads, q, p.q);
        move.send_heads(heads, k, p.k);
        move.send_heads(heads, v, p.v);
        comm.wait(comm.start(heads, stream), stream);
        for (const workspace_tensor& one : {q, k, v}) move.place_tokens(one);

        attend(comm.where(), schedule, comm.rank(), p, at, score, stream);

        send_recv_group home{2, {}, {}};
        move.send_tokens(home, out);
        comm.wait(comm.start(home, stream), stream);
        move.place_heads(out, p.out);
    }

  private:
    using attention = attention_forward<In, attention_options{.head_dims = HeadDims}, window_mask, Score>;

    // Workspace offsets of a tensor, in elements: send buffer, receive buffer, and all tokens of the own heads.
    struct areas {
        std::size_t outgoing, incoming, gathered;
    };
    struct workspace_tensor {
        areas at;
        int head_dim;
        bool is_kv;
    };
    struct layout {
        areas q, k, v, out;
        workspace_layout buffers;

        layout(const ulysses_schedule& schedule, int rank) {
            const attention_sizes& sizes = schedule.sizes;
            const std::int64_t rows = std::int64_t{sizes.batches} * schedule.tokens_of(rank).count();
            const std::int64_t tokens = std::int64_t{sizes.batches} * schedule.tokens;
            const std::int64_t mine = schedule.heads_of(rank).count, keys = schedule.kv_heads_of(rank).count;
            const auto three = [&](std::int64_t out, std::int64_t in, std::int64_t gathered) {
                return areas{add_buffer(out), add_buffer(in), add_buffer(gathered)};
            };
            q = three(rows * sizes.heads * sizes.head_dim, tokens * mine * sizes.head_dim,
                      tokens * mine * sizes.head_dim);
            k = three(rows * sizes.kv_heads * sizes.head_dim, tokens * keys * sizes.head_dim,
                      tokens * keys * sizes.head_dim);
            v = three(rows * sizes.kv_heads * sizes.head_dim_v, tokens * keys * sizes.head_dim_v,
                      tokens * keys * sizes.head_dim_v);
            out = three(tokens * mine * sizes.head_dim_v, rows * sizes.heads * sizes.head_dim_v,
                        tokens * mine * sizes.head_dim_v);
        }

      private:
        std::size_t add_buffer(std::int64_t elements) {
            return buffers.add(static_cast<std::size_t>(elements) * sizeof(In)) / sizeof(In);
        }
    };

    // A message holds the tokens of one rank and the heads of another, [batch, row, head, head_dim], contiguous. A
    // rank's own part is copied.
    struct mover {
        world where;
        void* stream;
        const ulysses_schedule& schedule;
        int rank;
        In* workspace;

        int batches() const { return schedule.sizes.batches; }
        std::int64_t rows_of(int chunk) const { return schedule.tokens_of(chunk).count(); }
        int all_heads(const workspace_tensor& one) const {
            return one.is_kv ? schedule.sizes.kv_heads : schedule.sizes.heads;
        }
        head_range heads_of(const workspace_tensor& one, int by) const {
            return one.is_kv ? schedule.kv_heads_of(by) : schedule.heads_of(by);
        }
        std::size_t message_bytes(const workspace_tensor& one, int chunk, int by) const {
            return sizeof(In) * batches() * rows_of(chunk) * heads_of(one, by).count * one.head_dim;
        }
        // Messages in a buffer, ordered by rank: the own rows with the heads of rank `by`, and the rows of rank `chunk`
        // with the own heads.
        In* message_of_heads(const workspace_tensor& one, std::size_t area, int by) const {
            return workspace + area + batches() * rows_of(rank) * heads_of(one, by).first * one.head_dim;
        }
        In* message_of_tokens(const workspace_tensor& one, std::size_t area, int chunk) const {
            std::int64_t before = 0;
            for (int other = 0; other < chunk; ++other) before += rows_of(other);
            return workspace + area + batches() * before * heads_of(one, rank).count * one.head_dim;
        }
        template <class Call>
        void for_others(const Call& call) const {
            for (int distance = 1; distance < schedule.ranks; ++distance) call((rank + distance) % schedule.ranks);
        }
        void add(send_recv_group& all, int to, const In* sent, std::size_t sent_bytes, int from, In* received,
                 std::size_t received_bytes) const {
            if (sent_bytes > 0) all.sends.push_back({to, sent, sent_bytes});
            if (received_bytes > 0) all.receives.push_back({from, received, received_bytes});
        }

        void send_heads(send_recv_group& all, const workspace_tensor& one, const In* own) const {
            for (int by = 0; by < schedule.ranks; ++by) {
                const head_range heads = heads_of(one, by);
                const std::size_t width = sizeof(In) * heads.count * one.head_dim;
                In* const to = by == rank ? message_of_tokens(one, one.at.incoming, rank)
                                          : message_of_heads(one, one.at.outgoing, by);
                copy_2d(where, {to, width},
                        {own + std::int64_t{heads.first} * one.head_dim, sizeof(In) * all_heads(one) * one.head_dim},
                        width, batches() * rows_of(rank), stream);
            }
            for_others([&](int other) {
                add(all, other, message_of_heads(one, one.at.outgoing, other), message_bytes(one, rank, other), other,
                    message_of_tokens(one, one.at.incoming, other), message_bytes(one, other, rank));
            });
        }
        void send_tokens(send_recv_group& all, const workspace_tensor& one) const {
            for (int chunk = 0; chunk < schedule.ranks; ++chunk) {
                In* const to = chunk == rank ? message_of_heads(one, one.at.incoming, rank)
                                             : message_of_tokens(one, one.at.outgoing, chunk);
                for_ranges(
                    one, chunk, to,
                    [&](const pitched_ptr& packed, const pitched_ptr& placed, std::size_t width, std::size_t rows) {
                        copy_2d(where, packed, {placed.ptr, placed.pitch}, width, rows, stream);
                    });
            }
            for_others([&](int other) {
                add(all, other, message_of_tokens(one, one.at.outgoing, other), message_bytes(one, other, rank), other,
                    message_of_heads(one, one.at.incoming, other), message_bytes(one, rank, other));
            });
        }

        // Unpack received messages: rows to their positions in the sequence, heads to their places in the own rows.
        void place_tokens(const workspace_tensor& one) const {
            for (int chunk = 0; chunk < schedule.ranks; ++chunk) {
                for_ranges(
                    one, chunk, message_of_tokens(one, one.at.incoming, chunk),
                    [&](const pitched_ptr& packed, const pitched_ptr& placed, std::size_t width, std::size_t rows) {
                        copy_2d(where, placed, {packed.ptr, packed.pitch}, width, rows, stream);
                    });
            }
        }
        void place_heads(const workspace_tensor& one, In* own) const {
            for (int by = 0; by < schedule.ranks; ++by) {
                const head_range heads = heads_of(one, by);
                const std::size_t width = sizeof(In) * heads.count * one.head_dim;
                copy_2d(where,
                        {own + std::int64_t{heads.first} * one.head_dim, sizeof(In) * all_heads(one) * one.head_dim},
                        {message_of_heads(one, one.at.incoming, by), width}, width, batches() * rows_of(rank), stream);
            }
        }

        // Calls copy(rows of a message, the same rows in the sequence, bytes of a row, rows) for each contiguous range
        // of a rank's tokens.
        template <class Copy>
        void for_ranges(const workspace_tensor& one, int chunk, In* message, const Copy& copy) const {
            const token_ranges tokens = schedule.tokens_of(chunk);
            const std::int64_t row = std::int64_t{heads_of(one, rank).count} * one.head_dim;
            const std::size_t width = sizeof(In) * row;
            for (int member = 0; member < batches(); ++member) {
                for (const token_range& range : tokens.ranges) {
                    In* const first =
                        workspace + one.at.gathered + (std::int64_t{member} * schedule.tokens + range.first) * row;
                    copy(pitched_ptr{message, width}, pitched_ptr{first, width * tokens.stride}, width, range.count);
                    message += range.count * row;
                }
            }
        }
    };

    static void attend(world where, const ulysses_schedule& schedule, int rank, const problem& p, const layout& at,
                       const Score& score, void* stream) {
        const attention_sizes& sizes = schedule.sizes;
        In* const begin = static_cast<In*>(p.workspace);
        const int heads = schedule.heads_of(rank).count, kv_heads = schedule.kv_heads_of(rank).count;
        const auto view = [&](In* tensor, int with, int head_dim) {
            return batch_sequence_head(tensor, sizes.batches, schedule.tokens, with, head_dim);
        };
        const auto read = [&](const areas& area, int with, int head_dim) {
            return batch_sequence_head<const In>(begin + area.gathered, sizes.batches, schedule.tokens, with, head_dim);
        };
        attention::launch(where,
                          {.q = read(at.q, heads, sizes.head_dim),
                           .k = read(at.k, kv_heads, sizes.head_dim),
                           .v = read(at.v, kv_heads, sizes.head_dim_v),
                           .out = view(begin + at.out.gathered, heads, sizes.head_dim_v),
                           .scale = p.scale},
                          schedule.mask, score, stream);
    }

    static void require_problem(const ulysses_schedule& schedule, int rank, const problem& p) {
        require_schedule(schedule);
        const attention_sizes& sizes = schedule.sizes;
        const int rows = schedule.tokens_of(rank).count();
        const auto require_tensor = [&](const void* pointer, const char* name, int heads, int head_dim) {
            require(pointer != nullptr || rows == 0 || sizes.batches == 0, name, ": null; ", sizes.batches, " x ", rows,
                    " x ", heads, " x ", head_dim, " elements are needed");
        };
        require_tensor(p.q, "q", sizes.heads, sizes.head_dim);
        require_tensor(p.k, "k", sizes.kv_heads, sizes.head_dim);
        require_tensor(p.v, "v", sizes.kv_heads, sizes.head_dim_v);
        require_tensor(p.out, "out", sizes.heads, sizes.head_dim_v);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
