// The kernel of paged_append: one block per token and group of tiles. Heads are the rows of register tiles, so that all
// rows of a tile have the same position and the same RoPE angles, one or two per thread. Each warp has two tiles of 16
// heads and does not synchronise with other warps.
//
//     half_split      | a |   | b |   |         the columns of a pair are at the same place in a and b
//     otherwise       | a | b |       |
//
//   each warp    issues the loads of its tiles, which do not depend on the token's slot
//                computes the slot, and cos and sin of its columns
//                rotates, divides by the scale, rounds once and stores
//
// With pdl_prefetch the warp computes slot and angles before pdl_wait, since the caller promises that no running kernel
// writes their inputs. Loads of q, k and v, and all stores, come after pdl_wait: no earlier kernel can still read a
// page, or a query that is rotated in place, while it changes. pdl_wait on the preceding kernel is transitive, because
// no kernel finishes before its own pdl_wait. This kernel keeps to that as well: it waits even if it has nothing to
// store.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>
#include <imbrex/kernels/paged_append/tokens.hpp>
#include <imbrex/kernels/rope/embedding.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/rope.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>

namespace imbrex {

// Tile width and alignment of the rows.
enum class append_tiling {
    wide,       // full tiles of 32 columns, rows aligned to two elements
    narrow,     // the same with 16 columns: for few tokens, more warps with less work each
    unaligned,  // 16 columns, any width and alignment
};

template <class In, class Cache, append_tiling Rows = append_tiling::wide>
struct paged_append_kernel {
    static constexpr int warps = Rows == append_tiling::narrow ? 2 : 4;
    static constexpr bool uses_pdl = true;
    static constexpr int heads_at_once = 16;
    static constexpr int columns_at_once = Rows == append_tiling::wide ? 32 : 16;
    // With many tokens the loads of one hide behind those of others, and code for both orders would take more
    // registers: one block per SM less.
    static constexpr bool can_prefetch = Rows != append_tiling::wide;

    // Rows and heads of the views are exchanged: [batch or page, row, head, column].
    struct arguments {
        attention_view<const In> q;
        attention_view<In> q_out;
        attention_view<const In> k;
        attention_view<const In> v;
        attention_view<Cache> k_cache;
        attention_view<Cache> v_cache;
        kv_cache_scales k_scales;
        kv_cache_scales v_scales;
        appended_tokens tokens;
        rope_embedding rope;
        bool pdl_prefetch;  // PDL: read everything except q, k, v and scales before the preceding kernel has finished
    };
    struct shared_memory {
        // For each column that is the first of a RoPE pair.
        shared_vector<cos_sin, 2 * columns_at_once> column_cos_sin[warps];
    };

    // x: token, y: groups of `warps` tile pairs.
    static grid_dim grid_of(const arguments& args, int tokens) {
        return {tokens, (tile_pairs(args).count() + warps - 1) / warps};
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
    struct tile_pair {
        kind of;
        int head;
        bool rotated;
        int first[2];  // first column of each tile
        int end[2];    // end of the column range that the tile belongs to
    };

    // Division of a token's rows into tile pairs.
    struct tile_pairs {
        int query_tiles, key_tiles;  // of heads
        int rotated, columns, value_columns;
        bool halves;

        IMBREX_FN explicit tile_pairs(const arguments& args)
            : query_tiles(ceil_div(args.q.rows(), heads_at_once)),
              key_tiles(ceil_div(args.k.rows(), heads_at_once)),
              rotated(args.rope.rotary_dim),
              columns(args.k.columns()),
              value_columns(args.v.columns()),
              halves(args.rope.style == rope_style::half_split) {}

        IMBREX_FN static int pairs_in(int count) { return (count + 2 * columns_at_once - 1) / (2 * columns_at_once); }
        IMBREX_FN int of_key() const { return pairs_in(rotated) + pairs_in(columns - rotated); }
        IMBREX_FN int count() const {
            return (query_tiles + key_tiles) * of_key() + key_tiles * pairs_in(value_columns);
        }
        IMBREX_FN tile_pair at(int number) const {
            const int of_queries = query_tiles * of_key(), of_keys = key_tiles * of_key();
            if (number >= of_queries + of_keys) {
                const int inside = number - of_queries - of_keys, each = pairs_in(value_columns);
                return copied(kind::values, inside / each, inside % each, 0, value_columns);
            }
            const bool query = number < of_queries;
            const int inside = query ? number : number - of_queries;
            const kind of = query ? kind::queries : kind::keys;
            const int heads = inside / of_key(), which = inside % of_key(), rotated_pairs = pairs_in(rotated);
            if (which >= rotated_pairs) return copied(of, heads, which - rotated_pairs, rotated, columns);
            tile_pair found = copied(of, heads, which, 0, rotated);
            found.rotated = true;
            if (halves) {
                const int half = rotated / 2;
                found.first[0] = which * columns_at_once, found.end[0] = half;
                found.first[1] = half + which * columns_at_once, found.end[1] = rotated;
            }
            return found;
        }

      private:
        IMBREX_FN static tile_pair copied(kind of, int heads, int which, int begin, int end) {
            const int first = begin + which * 2 * columns_at_once;
            return {of, heads * heads_at_once, false, {first, first + columns_at_once}, {end, end}};
        }
    };

    // Factors that are applied before rounding.
    struct unscaled {
        IMBREX_KERNEL void apply(const warp&, tile&) const {}
    };
    struct scaled {
        row_values<float, heads_at_once, warp> inverse;

        IMBREX_KERNEL void apply(const warp& self, tile& values) const {
            combine_with_rows(self, values, inverse, functional::multiply{});
        }
    };

    // The work of one warp. Not a lambda: one of this size is not inlined and takes a third more registers.
    struct append_token {
        const arguments& args;
        shared_memory& shared;
        int number;
        int first_pair;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const tile_pairs pairs(args);
            const int mine = first_pair + self.index();
            const bool exists = mine < pairs.count();
            const tile_pair one = pairs.at(exists ? mine : 0);
            global_tile<const In> from = source_of(one);
            if (!exists) from.rows = 0;
            const global_tile<const In> sources[2] = {columns_of(from, one, 0), columns_of(from, one, 1)};
            tile_in first, second;
            const bool pdl_prefetch = can_prefetch && args.pdl_prefetch;
            if (!pdl_prefetch) pdl_wait(self);
            // The next kernel, a decode, may prefetch older keys from here on, even while kernels before this one still
            // run.
            pdl_launch_dependents(self);
            if (!pdl_prefetch) fetch_both(self, sources, first, second);
            const appended_token token = args.tokens.at(self, number);
            if (one.rotated) compute_cos_sin(self, one, token.position);
            if (pdl_prefetch) {
                pdl_wait(self);
                fetch_both(self, sources, first, second);
            }
            if (exists && token.exists) finish(self, token, one, first, second);
        }

      private:
        IMBREX_KERNEL global_tile<const In> source_of(const tile_pair& one) const {
            const appended_token::origin at = args.tokens.origin_of(number);
            return (one.of == kind::queries ? args.q
                    : one.of == kind::keys  ? args.k
                                            : args.v)
                .at(at.batch, at.row, one.head, 0);
        }
        template <class T>
        IMBREX_KERNEL static global_tile<T> columns_of(const global_tile<T>& row, const tile_pair& one, int which) {
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
            if constexpr (Rows == append_tiling::unaligned) {
                load(self, to, from);
            } else {
                load_rows_from(self, to, [&](int row) { return from.has(row, 0) ? from.at(row, 0) : nullptr; });
            }
        }

        // With half_split only the first tile has first columns of pairs. A skipped token may get any angle.
        IMBREX_KERNEL void compute_cos_sin(const warp& self, const tile_pair& one, int position) const {
            const rope_embedding& rope = args.rope;
            const int end = rope.pair_first_columns();
            fill_indexed(self, shared.column_cos_sin[self.index()], [&](int i) {
                const int column = i < columns_at_once ? one.first[0] + i : one.first[1] + i - columns_at_once;
                return column < end ? rope.of_column(column, position) : cos_sin{1, 0};
            });
        }
        IMBREX_KERNEL column_values<cos_sin, columns_at_once> cos_sin_of(const warp& self, int which) const {
            column_values<cos_sin, columns_at_once> found;
            load(self, found,
                 shared.column_cos_sin[self.index()].template subtile<columns_at_once>(which * columns_at_once));
            return found;
        }

        IMBREX_KERNEL global_tile<In> query_of(const tile_pair& one) const {
            const appended_token::origin at = args.tokens.origin_of(number);
            return args.q_out.at(at.batch, at.row, one.head, 0);
        }
        IMBREX_KERNEL global_tile<Cache> stored_of(const tile_pair& one, const appended_token& at) const {
            return (one.of == kind::keys ? args.k_cache : args.v_cache).at(at.page, at.page_row, one.head, 0);
        }

        IMBREX_KERNEL void finish(const warp& self, const appended_token& at, const tile_pair& one,
                                  const tile_in& first, const tile_in& second) const {
            if constexpr (same_type) {
                write(self, one.of == kind::queries ? query_of(one) : stored_of(one, at), one, first, second,
                      unscaled{});
            } else if (one.of == kind::queries) {
                write(self, query_of(one), one, first, second, unscaled{});
            } else if constexpr (!has_scales) {
                write(self, stored_of(one, at), one, first, second, unscaled{});
            } else {
                const kv_cache_scales& scales = one.of == kind::keys ? args.k_scales : args.v_scales;
                const global_tile<Cache> to = stored_of(one, at);
                write(self, to, one, first, second, scales_of(self, scales, at.page, one.head, to.rows));
            }
        }

        // 1 / scale of each head.
        IMBREX_KERNEL static scaled scales_of(const warp& self, const kv_cache_scales& scales, int page, int head,
                                              int heads) {
            scaled found;
            fill(self, found.inverse, 1.0f);
            map_indexed(self, found.inverse,
                        [&](int row, float one) { return row < heads ? one / scales.at(page, head + row) : one; });
            return found;
        }

        template <class To, class Scales>
        IMBREX_KERNEL void write(const warp& self, const global_tile<To>& to, const tile_pair& one,
                                 const tile_in& first, const tile_in& second, const Scales& scales) const {
            if constexpr (std::is_same_v<In, To>) {
                if (!one.rotated) {
                    store(self, columns_of(to, one, 0), first);
                    store(self, columns_of(to, one, 1), second);
                    return;
                }
            }
            tile a = imbrex::convert_to<float>(self, first), b = imbrex::convert_to<float>(self, second);
            if (one.rotated) {
                if (args.rope.style == rope_style::half_split) {
                    apply_rope_half_split(self, a, b, cos_sin_of(self, 0));
                } else {
                    apply_rope_interleaved(self, a, cos_sin_of(self, 0));
                    apply_rope_interleaved(self, b, cos_sin_of(self, 1));
                }
            }
            scales.apply(self, a);
            scales.apply(self, b);
            store(self, columns_of(to, one, 0), imbrex::convert_to<To>(self, a));
            store(self, columns_of(to, one, 1), imbrex::convert_to<To>(self, b));
        }
    };
};

}  // namespace imbrex
