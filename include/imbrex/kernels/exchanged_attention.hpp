// Exact attention over sequences that no single device holds, by exchanging heads for tokens (Ulysses): each rank sends the heads
// of the others, gets all tokens of its own heads, attends as if it were alone, and sends the results home
// (comm/schedule/head_schedule.hpp).
//
//     const head_schedule schedule{.tokens = 1 << 20, .ranks = 8, .sizes = {.heads = 32, .key_heads = 8, .depth = 128, .value_depth = 128}};
//     using attention = exchanged_attention<bf16>;
//     attention::agree(link, schedule);                                  every rank calls it once; the host waits for the others
//     world_memory workspace(where, attention::workspace_bytes(schedule, link.rank()));
//     attention::launch(link, schedule, {.q = q, .k = k, .v = v, .out = out, .workspace = workspace.at()}, {}, stream);
//
// Tensors are those of the rank's own rows, [batch, row, head, column] without gaps, rows in the order of their positions. A ring
// moves more bytes but hides them under its work, and takes any number of ranks; this one needs no merging, and as many heads of
// keys as ranks.
#pragma once

#include <imbrex/comm/agreement.hpp>
#include <imbrex/comm/schedule/head_schedule.hpp>
#include <imbrex/comm/transport.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/memory_rooms.hpp>
#include <imbrex/hw/world_copy.hpp>
#include <imbrex/kernels/attention_forward.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace imbrex {

template <class In>
struct exchanged_problem {
    const In* q = nullptr;            // [batch, row, head, depth]
    const In* k = nullptr;            // [batch, row, key head, depth]
    const In* v = nullptr;            // [batch, row, key head, value depth]
    In* out = nullptr;                // [batch, row, head, value depth]
    void* workspace = nullptr;        // exchanged_attention::workspace_bytes of them, at a multiple of 256
    std::optional<float> scale = {};  // of Q K^T; 1 / sqrt(depth) if left out
};

inline namespace IMBREX_WORLDS {

template <class In, class Score = plain_score, class Tiles = all_attention_tiles>
class exchanged_attention {
  public:
    using problem = exchanged_problem<In>;

    template <transport Link>
    static void agree(Link& link, const head_schedule& schedule) {
        const attention_sizes& sizes = schedule.sizes;
        agreed(link,
               {{"ranks", schedule.ranks},
                {"tokens", schedule.tokens},
                {"placement", static_cast<int>(schedule.placement)},
                {"mask.left", schedule.mask.left},
                {"mask.right", schedule.mask.right},
                {"sizes.batches", sizes.batches},
                {"sizes.heads", sizes.heads},
                {"sizes.key_heads", sizes.key_heads},
                {"sizes.depth", sizes.depth},
                {"sizes.value_depth", sizes.value_depth},
                {"sizes.element_bytes", sizes.element_bytes}},
               [&] {
                   require_schedule(schedule);
                   require(schedule.ranks == link.ranks(), "ranks: ", schedule.ranks, "; the transport has ",
                           link.ranks());
                   require(sizes.element_bytes == static_cast<int>(sizeof(In)),
                           "sizes.element_bytes: ", sizes.element_bytes, "; the elements of this attention have ",
                           sizeof(In));
                   return true;
               });
    }

    static std::size_t workspace_bytes(const head_schedule& schedule, int rank) {
        return layout(schedule, rank).rooms.bytes();
    }

    template <transport Link>
    static void launch(Link& link, const head_schedule& schedule, const problem& p, const Score& score = {},
                       void* stream = nullptr) {
        const layout at(schedule, link.rank());
        require_problem(schedule, link.rank(), p);
        at.rooms.require_given(p.workspace, "workspace");
        const mover move{link.where(), stream, schedule, link.rank(), static_cast<In*>(p.workspace)};
        const tensor_place q{at.q, schedule.sizes.depth, false}, k{at.k, schedule.sizes.depth, true},
            v{at.v, schedule.sizes.value_depth, true}, out{at.out, schedule.sizes.value_depth, false};

        exchange heads{0, {}, {}};
        move.send_heads(heads, q, p.q);
        move.send_heads(heads, k, p.k);
        move.send_heads(heads, v, p.v);
        link.wait(link.start(heads, stream), stream);
        for (const tensor_place& one : {q, k, v}) move.place_tokens(one);

        attend(link.where(), schedule, link.rank(), p, at, score, stream);

        exchange home{2, {}, {}};
        move.send_tokens(home, out);
        link.wait(link.start(home, stream), stream);
        move.place_heads(out, p.out);
    }

  private:
    using attention = attention_forward<In, window_mask, Score, attention_result::normalised, Tiles>;

    // A tensor's areas in the workspace: what is on its way out, what comes in, and all tokens of the own heads. In elements.
    struct areas {
        std::size_t outgoing, incoming, whole;
    };
    struct tensor_place {
        areas at;
        int depth;
        bool of_keys;
    };
    struct layout {
        areas q, k, v, out;
        memory_rooms rooms;

        layout(const head_schedule& schedule, int rank) {
            const attention_sizes& sizes = schedule.sizes;
            const std::int64_t rows = std::int64_t{sizes.batches} * schedule.tokens_of(rank).count();
            const std::int64_t tokens = std::int64_t{sizes.batches} * schedule.tokens;
            const std::int64_t mine = schedule.heads_of(rank).count, keys = schedule.key_heads_of(rank).count;
            const auto three = [&](std::int64_t out, std::int64_t in, std::int64_t whole) {
                return areas{room_for(out), room_for(in), room_for(whole)};
            };
            q = three(rows * sizes.heads * sizes.depth, tokens * mine * sizes.depth, tokens * mine * sizes.depth);
            k = three(rows * sizes.key_heads * sizes.depth, tokens * keys * sizes.depth, tokens * keys * sizes.depth);
            v = three(rows * sizes.key_heads * sizes.value_depth, tokens * keys * sizes.value_depth,
                      tokens * keys * sizes.value_depth);
            out = three(tokens * mine * sizes.value_depth, rows * sizes.heads * sizes.value_depth,
                        tokens * mine * sizes.value_depth);
        }

      private:
        std::size_t room_for(std::int64_t elements) {
            return rooms.add(static_cast<std::size_t>(elements) * sizeof(In)) / sizeof(In);
        }
    };

    // Tokens of one rank and heads of another are a message, [batch, row, head, column] without gaps. A rank's own are copied only.
    struct mover {
        world where;
        void* stream;
        const head_schedule& schedule;
        int rank;
        In* workspace;

        int batches() const { return schedule.sizes.batches; }
        std::int64_t rows_of(int chunk) const { return schedule.tokens_of(chunk).count(); }
        int all_heads(const tensor_place& one) const {
            return one.of_keys ? schedule.sizes.key_heads : schedule.sizes.heads;
        }
        head_range heads_of(const tensor_place& one, int by) const {
            return one.of_keys ? schedule.key_heads_of(by) : schedule.heads_of(by);
        }
        std::size_t message_bytes(const tensor_place& one, int chunk, int by) const {
            return sizeof(In) * batches() * rows_of(chunk) * heads_of(one, by).count * one.depth;
        }
        // Of the rank's rows with the heads of another, and of another's rows with the rank's heads: one behind the other, by ranks.
        In* message_of_heads(const tensor_place& one, std::size_t area, int by) const {
            return workspace + area + batches() * rows_of(rank) * heads_of(one, by).first * one.depth;
        }
        In* message_of_tokens(const tensor_place& one, std::size_t area, int chunk) const {
            std::int64_t before = 0;
            for (int other = 0; other < chunk; ++other) before += rows_of(other);
            return workspace + area + batches() * before * heads_of(one, rank).count * one.depth;
        }
        template <class Call>
        void for_others(const Call& call) const {
            for (int distance = 1; distance < schedule.ranks; ++distance) call((rank + distance) % schedule.ranks);
        }
        void add(exchange& all, int to, const In* sent, std::size_t sent_bytes, int from, In* received,
                 std::size_t received_bytes) const {
            if (sent_bytes > 0) all.sends.push_back({to, sent, sent_bytes});
            if (received_bytes > 0) all.receives.push_back({from, received, received_bytes});
        }

        void send_heads(exchange& all, const tensor_place& one, const In* own) const {
            for (int by = 0; by < schedule.ranks; ++by) {
                const head_range heads = heads_of(one, by);
                const std::size_t width = sizeof(In) * heads.count * one.depth;
                In* const to = by == rank ? message_of_tokens(one, one.at.incoming, rank)
                                          : message_of_heads(one, one.at.outgoing, by);
                copy_rows(where, {to, width},
                          {own + std::int64_t{heads.first} * one.depth, sizeof(In) * all_heads(one) * one.depth}, width,
                          batches() * rows_of(rank), stream);
            }
            for_others([&](int other) {
                add(all, other, message_of_heads(one, one.at.outgoing, other), message_bytes(one, rank, other), other,
                    message_of_tokens(one, one.at.incoming, other), message_bytes(one, other, rank));
            });
        }
        void send_tokens(exchange& all, const tensor_place& one) const {
            for (int chunk = 0; chunk < schedule.ranks; ++chunk) {
                In* const to = chunk == rank ? message_of_heads(one, one.at.incoming, rank)
                                             : message_of_tokens(one, one.at.outgoing, chunk);
                for_runs(one, chunk, to,
                         [&](const byte_rows& packed, const byte_rows& placed, std::size_t width, std::size_t rows) {
                             copy_rows(where, packed, {placed.first, placed.distance}, width, rows, stream);
                         });
            }
            for_others([&](int other) {
                add(all, other, message_of_tokens(one, one.at.outgoing, other), message_bytes(one, other, rank), other,
                    message_of_heads(one, one.at.incoming, other), message_bytes(one, rank, other));
            });
        }

        // Rows of each rank to where they stand in the sequence, and heads of each to where they stand in the own rows.
        void place_tokens(const tensor_place& one) const {
            for (int chunk = 0; chunk < schedule.ranks; ++chunk) {
                for_runs(one, chunk, message_of_tokens(one, one.at.incoming, chunk),
                         [&](const byte_rows& packed, const byte_rows& placed, std::size_t width, std::size_t rows) {
                             copy_rows(where, placed, {packed.first, packed.distance}, width, rows, stream);
                         });
            }
        }
        void place_heads(const tensor_place& one, In* own) const {
            for (int by = 0; by < schedule.ranks; ++by) {
                const head_range heads = heads_of(one, by);
                const std::size_t width = sizeof(In) * heads.count * one.depth;
                copy_rows(where, {own + std::int64_t{heads.first} * one.depth, sizeof(In) * all_heads(one) * one.depth},
                          {message_of_heads(one, one.at.incoming, by), width}, width, batches() * rows_of(rank),
                          stream);
            }
        }

        // Calls copy(rows of a message, the same rows in the sequence, bytes of a row, rows) for each run of a rank's tokens.
        template <class Copy>
        void for_runs(const tensor_place& one, int chunk, In* message, const Copy& copy) const {
            const token_runs tokens = schedule.tokens_of(chunk);
            const std::int64_t row = std::int64_t{heads_of(one, rank).count} * one.depth;
            const std::size_t width = sizeof(In) * row;
            for (int member = 0; member < batches(); ++member) {
                for (const token_run& run : tokens.runs) {
                    In* const first =
                        workspace + one.at.whole + (std::int64_t{member} * schedule.tokens + run.first) * row;
                    copy(byte_rows{message, width}, byte_rows{first, width * tokens.stride}, width, run.count);
                    message += run.count * row;
                }
            }
        }
    };

    static void attend(world where, const head_schedule& schedule, int rank, const problem& p, const layout& at,
                       const Score& score, void* stream) {
        const attention_sizes& sizes = schedule.sizes;
        In* const begin = static_cast<In*>(p.workspace);
        const int heads = schedule.heads_of(rank).count, key_heads = schedule.key_heads_of(rank).count;
        const auto view = [&](In* tensor, int with, int depth) {
            return batch_sequence_head(tensor, sizes.batches, schedule.tokens, with, depth);
        };
        const auto read = [&](const areas& area, int with, int depth) {
            return batch_sequence_head<const In>(begin + area.whole, sizes.batches, schedule.tokens, with, depth);
        };
        attention::launch(where,
                          {.q = read(at.q, heads, sizes.depth),
                           .k = read(at.k, key_heads, sizes.depth),
                           .v = read(at.v, key_heads, sizes.value_depth),
                           .out = view(begin + at.out.whole, heads, sizes.value_depth),
                           .scale = p.scale},
                          schedule.mask, score, stream);
    }

    static void require_problem(const head_schedule& schedule, int rank, const problem& p) {
        require_schedule(schedule);
        const attention_sizes& sizes = schedule.sizes;
        const int rows = schedule.tokens_of(rank).count();
        const auto require_tensor = [&](const void* pointer, const char* name, int heads, int depth) {
            require(pointer != nullptr || rows == 0 || sizes.batches == 0, name, ": null; ", sizes.batches, " x ", rows,
                    " x ", heads, " x ", depth, " elements are needed");
        };
        require_tensor(p.q, "q", sizes.heads, sizes.depth);
        require_tensor(p.k, "k", sizes.key_heads, sizes.depth);
        require_tensor(p.v, "v", sizes.key_heads, sizes.value_depth);
        require_tensor(p.out, "out", sizes.heads, sizes.value_depth);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
