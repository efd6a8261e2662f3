// New keys and values of one token, and its queries: a part of them by each warp. Heads are the rows of register tiles: so all rows
// of a tile are at one position and are turned by the same angles, one or two a thread. A part is two tiles of 16 heads. No warp
// meets another.
//
//     half split      | a |   | b |   |         the columns of a pair are in the same place of the two
//     otherwise       | a | b |       |
//
//   each warp    asks for its tiles, which it need not know the token's place for
//                finds that place, and its angles
//                rotates its tiles, divides by their scales, rounds once and stores
//
// Told to be early, it finds place and angles while the kernels before still run, of which none writes what they follow from: that is
// promised. It asks for its tiles when they have ended, and all stores come after that as well, so that nobody before reads a page,
// or a query that is rotated where it is, when it changes. To wait for the kernel before is to wait for all before that, since none
// ends before it has waited itself; nor does this one, though it may have nothing to store.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/position.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_append/tokens.hpp>
#include <imbrex/kernels/paged_cache/scales.hpp>
#include <imbrex/kernels/rotary/embedding.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/rotate.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>

namespace imbrex {

// How rows are divided into tiles, and what is known of them.
enum class append_rows {
    whole,   // into wide tiles, none of which is there in part, of rows that begin at multiples of two elements
    narrow,  // the same, into tiles half as wide: for few tokens, more warps with less to do each
    any,     // as wide as those
};

template <class In, class Cache, append_rows Rows = append_rows::whole>
struct paged_append_kernel {
    static constexpr int warps = Rows == append_rows::narrow ? 2 : 4;
    static constexpr bool begins_early = true;
    static constexpr int heads_at_once = 16;
    static constexpr int columns_at_once = Rows == append_rows::whole ? 32 : 16;
    // Among many tokens the loads of one are hidden by those of others, and the code for both orders would take more registers: a
    // multiprocessor would have room for a block less.
    static constexpr bool can_be_early = Rows != append_rows::whole;

    // Views have rows and heads exchanged: [batch or page, row, head, column].
    struct arguments {
        attention_view<const In> q;
        attention_view<In> q_out;
        attention_view<const In> k;
        attention_view<const In> v;
        attention_view<Cache> k_cache;
        attention_view<Cache> v_cache;
        cache_scales k_scales;
        cache_scales v_scales;
        appended_tokens tokens;
        rotary_embedding rotary;
        bool early;  // all but q, k, v and scales is read while the kernel before still runs
    };
    struct shared_memory {
        // Of the columns of each warp's tiles, if they begin a pair.
        shared_vector<rotation, 2 * columns_at_once> rotations[warps];
    };

    // A block for each token and so many parts of its rows.
    static position grid_of(const arguments& args, int tokens) {
        return {tokens, (all_parts(args).count() + warps - 1) / warps};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp(append_token{args, shared, block.index().x, block.index().y * warps});
    }

  private:
    static constexpr bool same_type = std::is_same_v<In, Cache>, has_scales = sizeof(Cache) == 1;
    using tile_in = warp_tile<In, heads_at_once, columns_at_once>;
    using tile = warp_tile<float, heads_at_once, columns_at_once>;

    enum class kind { queries, keys, values };

    // Two tiles of some heads of one token.
    struct part {
        kind of;
        int head;
        bool rotated;
        int first[2];  // column of each
        int end[2];    // and where the columns end that it is a part of
    };

    // How the rows of a token are divided into parts.
    struct all_parts {
        int query_tiles, key_tiles;  // of heads
        int rotated, columns, value_columns;
        bool halves;

        IMBREX_FN explicit all_parts(const arguments& args)
            : query_tiles((args.q.rows() + heads_at_once - 1) / heads_at_once),
              key_tiles((args.k.rows() + heads_at_once - 1) / heads_at_once),
              rotated(args.rotary.columns),
              columns(args.k.columns()),
              value_columns(args.v.columns()),
              halves(args.rotary.style == rotary_style::half_split) {}

        IMBREX_FN static int parts_of(int count) { return (count + 2 * columns_at_once - 1) / (2 * columns_at_once); }
        IMBREX_FN int of_key() const { return parts_of(rotated) + parts_of(columns - rotated); }
        IMBREX_FN int count() const {
            return (query_tiles + key_tiles) * of_key() + key_tiles * parts_of(value_columns);
        }
        IMBREX_FN part at(int number) const {
            const int of_queries = query_tiles * of_key(), of_keys = key_tiles * of_key();
            if (number >= of_queries + of_keys) {
                const int inside = number - of_queries - of_keys, each = parts_of(value_columns);
                return copied(kind::values, inside / each, inside % each, 0, value_columns);
            }
            const bool query = number < of_queries;
            const int inside = query ? number : number - of_queries;
            const kind of = query ? kind::queries : kind::keys;
            const int heads = inside / of_key(), which = inside % of_key(), turned = parts_of(rotated);
            if (which >= turned) return copied(of, heads, which - turned, rotated, columns);
            part found = copied(of, heads, which, 0, rotated);
            found.rotated = true;
            if (halves) {
                const int half = rotated / 2;
                found.first[0] = which * columns_at_once, found.end[0] = half;
                found.first[1] = half + which * columns_at_once, found.end[1] = rotated;
            }
            return found;
        }

      private:
        IMBREX_FN static part copied(kind of, int heads, int which, int begin, int end) {
            const int first = begin + which * 2 * columns_at_once;
            return {of, heads * heads_at_once, false, {first, first + columns_at_once}, {end, end}};
        }
    };

    // What numbers are multiplied with before they are rounded.
    struct unscaled {
        IMBREX_KERNEL void apply(const warp&, tile&) const {}
    };
    struct scaled {
        row_values<float, heads_at_once, warp> inverse;

        IMBREX_KERNEL void apply(const warp& self, tile& values) const {
            combine_with_rows(self, values, inverse, multiply{});
        }
    };

    // What each warp does. It is no lambda, since one as long would be left a function of its own, with a third more registers.
    struct append_token {
        const arguments& args;
        shared_memory& shared;
        int number;
        int first_part;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const all_parts parts(args);
            const int mine = first_part + self.index();
            const bool exists = mine < parts.count();
            const part one = parts.at(exists ? mine : 0);
            global_tile<const In> from = source_of(one);
            if (!exists) from.rows = 0;
            const global_tile<const In> sources[2] = {columns_of(from, one, 0), columns_of(from, one, 1)};
            tile_in first, second;
            const bool early = can_be_early && args.early;
            if (!early) wait_for_kernel_before(self);
            // The next one, a decode, may read the older keys meanwhile: early, while even those before this one still run.
            allow_next_kernel(self);
            if (!early) fetch_both(self, sources, first, second);
            const appended_token token = args.tokens.at(self, number);
            if (one.rotated) find_rotations(self, one, token.position);
            if (early) {
                wait_for_kernel_before(self);
                fetch_both(self, sources, first, second);
            }
            if (exists && token.exists) finish(self, token, one, first, second);
        }

      private:
        IMBREX_KERNEL global_tile<const In> source_of(const part& one) const {
            const appended_token::origin at = args.tokens.origin_of(number);
            return (one.of == kind::queries ? args.q
                    : one.of == kind::keys  ? args.k
                                            : args.v)
                .at(at.batch, at.row, one.head, 0);
        }
        template <class T>
        IMBREX_KERNEL static global_tile<T> columns_of(const global_tile<T>& row, const part& one, int which) {
            global_tile<T> found = row.from(0, one.first[which]);
            found.columns = one.end[which] - one.first[which];
            return found;
        }

        IMBREX_KERNEL static void fetch_both(const warp& self, const global_tile<const In> (&from)[2], tile_in& first,
                                             tile_in& second) {
            fetch(self, first, from[0]);
            fetch(self, second, from[1]);
        }
        IMBREX_KERNEL static void fetch(const warp& self, tile_in& to, const global_tile<const In>& from) {
            if constexpr (Rows == append_rows::any) {
                load(self, to, from);
            } else {
                load_rows_from(self, to, [&](int row) { return from.has(row, 0) ? from.at(row, 0) : nullptr; });
            }
        }

        // Of pairs that are halves apart, only the first tile's columns begin one. What a token without a place gets does not matter.
        IMBREX_KERNEL void find_rotations(const warp& self, const part& one, int position) const {
            const rotary_embedding& rotary = args.rotary;
            const int end = rotary.first_columns();
            fill_by(self, shared.rotations[self.index()], [&](int i) {
                const int column = i < columns_at_once ? one.first[0] + i : one.first[1] + i - columns_at_once;
                return column < end ? rotary.of_column(column, position) : rotation{1, 0};
            });
        }
        IMBREX_KERNEL column_values<rotation, columns_at_once> rotations_of(const warp& self, int which) const {
            column_values<rotation, columns_at_once> found;
            load(self, found, shared.rotations[self.index()].template part<columns_at_once>(which * columns_at_once));
            return found;
        }

        IMBREX_KERNEL global_tile<In> query_of(const part& one) const {
            const appended_token::origin at = args.tokens.origin_of(number);
            return args.q_out.at(at.batch, at.row, one.head, 0);
        }
        IMBREX_KERNEL global_tile<Cache> stored_of(const part& one, const appended_token& at) const {
            return (one.of == kind::keys ? args.k_cache : args.v_cache).at(at.page, at.page_row, one.head, 0);
        }

        IMBREX_KERNEL void finish(const warp& self, const appended_token& at, const part& one, const tile_in& first,
                                  const tile_in& second) const {
            if constexpr (same_type) {
                write(self, one.of == kind::queries ? query_of(one) : stored_of(one, at), one, first, second,
                      unscaled{});
            } else if (one.of == kind::queries) {
                write(self, query_of(one), one, first, second, unscaled{});
            } else if constexpr (!has_scales) {
                write(self, stored_of(one, at), one, first, second, unscaled{});
            } else {
                const cache_scales& scales = one.of == kind::keys ? args.k_scales : args.v_scales;
                const global_tile<Cache> to = stored_of(one, at);
                write(self, to, one, first, second, scales_of(self, scales, at.page, one.head, to.rows));
            }
        }

        // One over the scale of each head.
        IMBREX_KERNEL static scaled scales_of(const warp& self, const cache_scales& scales, int page, int head,
                                              int heads) {
            scaled found;
            fill(self, found.inverse, 1.0f);
            map_indexed(self, found.inverse,
                        [&](int row, float one) { return row < heads ? one / scales.at(page, head + row) : one; });
            return found;
        }

        template <class To, class Scales>
        IMBREX_KERNEL void write(const warp& self, const global_tile<To>& to, const part& one, const tile_in& first,
                                 const tile_in& second, const Scales& scales) const {
            if constexpr (std::is_same_v<In, To>) {
                if (!one.rotated) {
                    store(self, columns_of(to, one, 0), first);
                    store(self, columns_of(to, one, 1), second);
                    return;
                }
            }
            tile a = imbrex::to<float>(self, first), b = imbrex::to<float>(self, second);
            if (one.rotated) {
                if (args.rotary.style == rotary_style::half_split) {
                    rotate(self, a, b, rotations_of(self, 0));
                } else {
                    rotate_neighbours(self, a, rotations_of(self, 0));
                    rotate_neighbours(self, b, rotations_of(self, 1));
                }
            }
            scales.apply(self, a);
            scales.apply(self, b);
            store(self, columns_of(to, one, 0), imbrex::to<To>(self, a));
            store(self, columns_of(to, one, 1), imbrex::to<To>(self, b));
        }
    };
};

}  // namespace imbrex
