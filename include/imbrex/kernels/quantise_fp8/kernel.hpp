// The kernel of quantise_fp8. A block has 64 or 128 rows of a sequence and some heads, one after the other. A warp keeps
// its rows of a head in registers as two tiles, the halves of the head.
//
//   each warp    computes signs and RoPE angles of its rows, for all heads
//   each head    loads the next head meanwhile
//                applies RoPE, signs and the Hadamard transform
//                computes the maximum of absolute values; barrier between the warps of the block
//                multiplies by 1 / scale, rounds and stores
//
// If the rows of a block do not share a scale with others, this takes one pass. Otherwise the kernel runs twice: the
// first launch writes the maxima of its blocks to a workspace, and the last block of a scale reduces them; the second one reads
// the scales.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/quantise_fp8/problem.hpp>
#include <imbrex/kernels/quantise_fp8/rotation.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_neighbours.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>

namespace imbrex {

enum class quantise_fp8_pass {
    rounding,  // reads or computes scales, and rounds
    maxima,    // computes scales that several blocks share
};

// The workspace of two launches. The last block of a scale to arrive reads the maxima of all its blocks.
struct fp8_maxima {
    int* arrived;   // heads of blocks, for each scale; zero between launches
    float* maxima;  // [head, block of rows]; of several heads with one scale in a block, that of the last counts
};

// amax / 448. Infinity counts as the largest number. At least 2^-60: attention_fp8 needs no smaller scales of V.
IMBREX_FN float fp8_scale_of(float amax) {
    const float finite = amax < 0x1.fffffep127f ? amax : 0x1.fffffep127f, scale = finite / 448.0f;
    return scale > 0x1p-60f ? scale : 0x1p-60f;
}

template <class In>
struct quantise_fp8_arguments {
    attention_view<const In> x;
    attention_view<e4m3> out;
    fp8_scales scales;
    fp8_maxima workspace;
    bool reads_scales;
    attention_tile_scheduler scheduler;  // of blocks of rows; heads are in the second dimension of the grid
    attention_seqlens lengths;           // seqlen_q and cu_seqlens_q
    const int* seqused;
    int heads_per_block;
    head_halves halves;
    rope_embedding rope;
    const int* positions;
    int first_position;
    hadamard_rotation rotation;

    // The rows of a block.
    struct row_block {
        int index;      // in the grid
        int batch;      // of the sequence
        int member;     // of the tensors
        int first;      // in the sequence
        int first_row;  // in the tensors
        int rows;       // from the first on; not positive if there are none
        int number;     // of the block in the sequence
        int blocks;     // of the sequence, at least 1
    };
    IMBREX_FN row_block rows_of(int index, int block_m) const {
        const auto at = scheduler.at(index, lengths, block_m);
        const int all =
            lengths.varlen() ? attention_seqlens::length_at(lengths.cu_seqlens_q, at.batch) : lengths.seqlen_q;
        const int used = seqused != nullptr ? read_element(seqused, at.batch) : all;
        const int count = all > 0 ? (all + block_m - 1) / block_m : 1;
        // Before the first varlen sequence there may be indices without a block, too.
        const bool before = at.batch == 0 && lengths.varlen() && index < lengths.first_query(0) / block_m;
        const int number = before ? count : at.block, first = number * block_m;
        return {index,  at.batch, lengths.member(at.batch), first, lengths.first_query(at.batch) + first, used - first,
                number, count};
    }
    IMBREX_FN int position_of(const row_block& block, int row) const {
        if (row >= block.rows) return 0;
        if (positions == nullptr) return first_position + block.first + row;
        return read_element(positions, std::int64_t{block.member} * x.rows() + block.first_row + row);
    }

    // The number of its scale in the sequence.
    IMBREX_FN int scale_block(const row_block& block) const {
        return scales.block_rows == 0 ? 0 : block.first / scales.block_rows;
    }
    IMBREX_FN float* scale_of(const row_block& block, int head) const {
        return scales.at(block.batch, head, scale_block(block));
    }
    IMBREX_FN float given_scale(const row_block& block, int head) const {
        const descale_view view = scales.view();
        return view.pointer == nullptr ? 1.0f : view.at(block.batch, head, scale_block(block));
    }
    // The index of its scale in the workspace.
    IMBREX_FN int scale_index(const row_block& block, int head) const {
        const int heads = static_cast<int>(x.extents[1]);
        const int head_scales = scales.head_stride == 0 ? 1 : heads / scales.heads_per_scale;
        const int batch_index = scales.batch_stride == 0 ? 0 : block_scale_index(block);
        return batch_index * head_scales + (scales.head_stride == 0 ? 0 : head / scales.heads_per_scale);
    }
    // The blocks of rows that share a scale, as indices of the grid.
    struct block_range {
        int first, end;
    };
    IMBREX_FN block_range blocks_of_scale(const row_block& block, int block_m) const {
        if (scales.block_rows != 0) {
            const int each = scales.block_rows / block_m, before = block.number % each;
            const int left = block.blocks - (block.number - before), count = left < each ? left : each;
            // The scheduler reverses the blocks of a varlen sequence.
            const int first = block.index - (lengths.varlen() ? count - 1 - before : before);
            return {first, first + count};
        }
        if (scales.batch_stride == 0) return {0, scheduler.total(lengths)};
        return {first_block(block.batch, block_m), first_block(block.batch + 1, block_m)};
    }
    // The heads that share a scale.
    IMBREX_FN block_range heads_of_scale(int head) const {
        if (scales.head_stride == 0) return {0, static_cast<int>(x.extents[1])};
        const int first = head / scales.heads_per_scale * scales.heads_per_scale;
        return {first, first + scales.heads_per_scale};
    }
    // Whether a block adds its maximum after this head, rather than after the next one.
    IMBREX_FN bool adds_after(int head) const {
        return head + 1 == heads_of_scale(head).end || (head + 1) % heads_per_block == 0;
    }

  private:
    IMBREX_FN int block_scale_index(const row_block& block) const {
        if (scales.block_rows == 0) return block.batch;
        const int number = scale_block(block);
        if (!lengths.varlen()) {
            return block.batch * ((lengths.seqlen_q + scales.block_rows - 1) / scales.block_rows) + number;
        }
        return read_element(lengths.cu_seqlens_q, block.batch) / scales.block_rows + block.batch + number;
    }
    // The first index of a sequence in the grid.
    IMBREX_FN int first_block(int batch, int block_m) const {
        if (!lengths.varlen()) return batch * scheduler.blocks;
        if (batch == 0) return 0;
        if (batch == scheduler.batches) return scheduler.total(lengths);
        return read_element(lengths.cu_seqlens_q, batch) / block_m + batch;
    }
};

// Blocks of BlockM rows, heads of up to 2 * HalfColumns columns.
template <class In, int HalfColumns, int BlockM, bool WithRope, quantise_fp8_pass Pass = quantise_fp8_pass::rounding>
struct quantise_fp8_kernel {
    static constexpr int block_m = BlockM;
    static constexpr int rows_per_warp = 512 / HalfColumns;
    static constexpr int warps = BlockM / rows_per_warp;
    // 16 warps per SM, with 128 registers per thread and 32 KiB of loads in flight.
    static constexpr int min_blocks_per_sm = warps < 16 ? 16 / warps : 1;
    static constexpr bool uses_pdl = true;
    using arguments = quantise_fp8_arguments<In>;
    struct shared_memory {
        shared_vector<float, warps> amax[2];  // used in turns: one barrier per head suffices
    };

    // x: blocks of rows, y: groups of heads.
    static grid_dim grid_of(const arguments& args) {
        const int heads = static_cast<int>(args.x.extents[1]);
        return {args.scheduler.total(args.lengths), (heads - 1) / args.heads_per_block + 1};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        block.each_warp(quantise_rows{args, shared, block.index().x, block.index().y * args.heads_per_block});
    }

  private:
    using in_tile = vector_row_tile<In, rows_per_warp, HalfColumns>;
    using tile = vector_row_tile<float, rows_per_warp, HalfColumns>;
    using out_tile = vector_row_tile<e4m3, rows_per_warp, HalfColumns>;
    using columns = vector_row_column_values<float, HalfColumns>;
    using row_block = typename arguments::row_block;
    struct all_warps {};
    struct nothing {};
    template <class Tile>
    struct halves_of {
        Tile first, second;
    };

    // Without RoPE every half is one run of columns.
    IMBREX_KERNEL static int column_of(const head_halves& halves, int half, int place) {
        return WithRope ? halves.column(half, place) : half * halves.columns + place;
    }

    // Eight columns of a row at their place in a half, or null.
    template <class T>
    struct chunks {
        global_tile<T> rows;  // of a head
        int count;
        head_halves halves;
        int half;

        IMBREX_FN T* operator()(int row, int place) const {
            return row < count && place < halves.columns ? rows.at(row, column_of(halves, half, place)) : nullptr;
        }
    };

    struct quantise_rows {
        const arguments& args;
        shared_memory& shared;
        int index;
        int first_head;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const row_block block = args.rows_of(index, BlockM);
            if (is_unused(block)) return;
            const int heads = static_cast<int>(args.x.extents[1]);
            const int end = first_head + args.heads_per_block < heads ? first_head + args.heads_per_block : heads;
            halves_of<in_tile> next;
            load_head(self, block, first_head, next);
            halves_of<columns> signs;
            if (args.rotation.given) compute_signs(self, signs);
            std::conditional_t<WithRope, halves_of<tile>, nothing> angles;
            if constexpr (WithRope) compute_angles(self, block, angles);
            [[maybe_unused]] float amax = 0;
            int turn = 0;
            for (int head = first_head; head < end; ++head) {
                halves_of<tile> x;
                convert_to_float(self, next, x);
                if (head + 1 < end) load_head(self, block, head + 1, next);
                if constexpr (WithRope) apply_rope(self, angles, x);
                if (args.rotation.given) rotate(self, signs, x);
                if constexpr (Pass == quantise_fp8_pass::maxima) {
                    amax = functional::maximum{}(amax, amax_of(self, x));
                    if (!args.adds_after(head)) continue;
                    const float most = block_amax(self, turn++, amax);
                    if (self.index() == 0) add_maximum(self, block, head, most);
                    amax = 0;
                } else {
                    const float scale = args.reads_scales ? args.given_scale(block, head)
                                                          : fp8_scale_of(block_amax(self, turn++, amax_of(self, x)));
                    if (!args.reads_scales && self.index() == 0) imbrex::put(self, args.scale_of(block, head), scale);
                    round_and_store(self, block, head, x, scale);
                }
            }
        }

      private:
        // A block without rows has nothing to do, unless it writes the only scale of an empty sequence or others wait for it.
        IMBREX_KERNEL bool is_unused(const row_block& block) const {
            const bool behind = block.number >= block.blocks;
            if (Pass == quantise_fp8_pass::maxima) return behind && args.scales.block_rows != 0;
            return behind || (args.reads_scales && block.rows <= 0);
        }

        template <class T>
        IMBREX_KERNEL chunks<T> chunks_of(const warp& self, const attention_view<T>& view, const row_block& block,
                                          int head, int half) const {
            const int row = self.index() * rows_per_warp;
            return {view.at(block.member, head, block.first_row + row, 0), block.rows - row, args.halves, half};
        }
        IMBREX_KERNEL void load_head(const warp& self, const row_block& block, int head, halves_of<in_tile>& to) const {
            load_chunks_from(self, to.first, chunks_of(self, args.x, block, head, 0));
            load_chunks_from(self, to.second, chunks_of(self, args.x, block, head, 1));
        }
        IMBREX_KERNEL static void convert_to_float(const warp& self, const halves_of<in_tile>& from,
                                                   halves_of<tile>& to) {
            const auto same = [](float value) { return value; };
            transform(self, to.first, same, from.first);
            transform(self, to.second, same, from.second);
        }

        // With the factor of the transform.
        IMBREX_KERNEL void compute_signs(const warp& self, halves_of<columns>& to) const {
            fill_columns(
                self,
                [&](int place, float& first, float& second) {
                    first = args.rotation.factor * args.rotation.sign(column_of(args.halves, 0, place));
                    second = args.rotation.factor * args.rotation.sign(column_of(args.halves, 1, place));
                },
                to.first, to.second);
        }
        IMBREX_KERNEL void rotate(const warp& self, const halves_of<columns>& signs, halves_of<tile>& x) const {
            transform(self, x.first, functional::multiply{}, x.first, signs.first);
            transform(self, x.second, functional::multiply{}, x.second, signs.second);
            hadamard(self, x.first, args.rotation.run);
            hadamard(self, x.second, args.rotation.run);
            hadamard_halves(self, x.first, x.second);
        }

        // half_split: cos and sin of each place. Interleaved: cos and sin of each pair of the first half, and of the
        // second.
        IMBREX_KERNEL void compute_angles(const warp& self, const row_block& block, halves_of<tile>& to) const {
            const rope_of_halves rope{args.rope, args.halves};
            const bool split = args.rope.style == rope_style::half_split;
            fill_neighbours(
                self,
                [&](int row, int place, float_pair& one, float_pair& other) {
                    const int position = args.position_of(block, self.index() * rows_per_warp + row);
                    const cos_sin a = rope.at(0, place, position);
                    const cos_sin b = split ? rope.at(0, place + 1, position) : rope.at(1, place, position);
                    one = {a.cosine, split ? b.cosine : a.sine};
                    other = {split ? a.sine : b.cosine, b.sine};
                },
                to.first, to.second);
        }
        IMBREX_KERNEL void apply_rope(const warp& self, const halves_of<tile>& by, halves_of<tile>& x) const {
            if (args.rope.style == rope_style::half_split) {
                update_neighbours(
                    self,
                    [](int, int, float_pair& a, float_pair& b, const float_pair& cosines, const float_pair& sines) {
                        cos_sin{cosines.low, sines.low}.rotate(a.low, b.low);
                        cos_sin{cosines.high, sines.high}.rotate(a.high, b.high);
                    },
                    x.first, x.second, by.first, by.second);
            } else {
                update_neighbours(
                    self,
                    [](int, int, float_pair& a, float_pair& b, const float_pair& first, const float_pair& second) {
                        cos_sin{first.low, first.high}.rotate(a.low, a.high);
                        cos_sin{second.low, second.high}.rotate(b.low, b.high);
                    },
                    x.first, x.second, by.first, by.second);
            }
        }

        IMBREX_KERNEL static float amax_of(const warp& self, const halves_of<tile>& x) {
            return reduce(self, 0.0f, functional::absolute_maximum{}, functional::maximum{}, x.first, x.second);
        }
        // Of all warps.
        IMBREX_KERNEL float block_amax(const warp& self, int turn, float mine, source here = source::current()) const {
            shared_vector<float, warps>& amax = shared.amax[turn % 2];
            put(self, amax, self.index(), mine, here);
            named_barriers<all_warps>::template of<all_warps>().sync(self, warps, here);
            float most = 0;
            for (int i = 0; i < warps; ++i) most = functional::maximum{}(most, get(self, amax, i, here));
            return most;
        }

        // Of this head and those before it that share its scale. The last block computes the scale.
        IMBREX_KERNEL void add_maximum(const warp& self, const row_block& block, int head, float amax) const {
            const auto blocks = args.blocks_of_scale(block, BlockM), heads = args.heads_of_scale(head);
            const int first = heads.first > first_head ? heads.first : first_head;
            imbrex::put(self, maximum_at(head, block.index), amax);
            int* const arrived = args.workspace.arrived + args.scale_index(block, head);
            const int before = atomic_fetch_add<memory_order::acq_rel>(self, arrived, head + 1 - first);
            if (before + head + 1 - first != (heads.end - heads.first) * (blocks.end - blocks.first)) return;
            atomic_store<memory_order::relaxed>(self, arrived, 0);
            float most = 0;
            for (int one = heads.first; one < heads.end; ++one) {
                if (!args.adds_after(one)) continue;
                most = functional::maximum{}(most, largest_maximum(self, one, blocks));
            }
            imbrex::put(self, args.scale_of(block, head), fp8_scale_of(most));
        }
        IMBREX_KERNEL float* maximum_at(int head, int block) const {
            return args.workspace.maxima + std::int64_t{head} * args.scheduler.total(args.lengths) + block;
        }
        IMBREX_KERNEL float largest_maximum(const warp& self, int head,
                                            const typename arguments::block_range& blocks) const {
            float most = 0;
            for (int first = blocks.first; first < blocks.end; first += 1024) {
                vector_row_tile<float, 1, 1024> some;
                load_rows_from<row_alignment::unaligned>(
                    self, some, [&](int) -> const float* { return maximum_at(head, first); }, blocks.end - first);
                most =
                    functional::maximum{}(most, reduce(self, most, functional::maximum{}, functional::maximum{}, some));
            }
            return most;
        }

        IMBREX_KERNEL void round_and_store(const warp& self, const row_block& block, int head, const halves_of<tile>& x,
                                           float scale) const {
            const float inverse = 1.0f / scale;
            const auto scaled = [=](float value) { return value * inverse; };
            out_tile rounded;
            transform(self, rounded, scaled, x.first);
            store_chunks_to(self, chunks_of(self, args.out, block, head, 0), rounded);
            transform(self, rounded, scaled, x.second);
            store_chunks_to(self, chunks_of(self, args.out, block, head, 1), rounded);
        }
    };
};

}  // namespace imbrex
