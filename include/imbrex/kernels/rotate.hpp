// Rotary position embedding of heads of tokens: each head of a token is turned by the rotations of the token's position.
//
//     rotate_rows<bf16>::launch(world::device, {.x = as_rows_of_heads<const bf16>(q, tokens, 32, 128),
//                                               .positions = positions,
//                                               .rotary = frequencies.embedding(turns, rotary_style::half_split),
//                                               .out = as_rows_of_heads(q, tokens, 32, 128)}, stream);
//
// Positions are ints in the memory of the kernel's world, one for each token, as accurate at the millionth as at the first
// (kernels/rotary.hpp); a negative one turns backwards. Without them tokens are counted from `first_position`. Columns behind those that
// are rotated are copied bit by bit. Everything is computed in float and rounded once. Any number of tokens, heads and columns, any
// distances; heads of a multiple of 8 columns that begin at multiples of 16 bytes are quick if rotated columns are a multiple of 8, and
// of 16 if they are split in halves; others are moved element by element. bf16, fp16, float.
//
// `out` may be x itself, or must have nothing in common with it. Nothing is allocated and nothing waited for. What is refused is refused
// before anything is launched. Where new keys go into a cache, kernels/paged_append.hpp rotates them, and queries, on their way.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/elementwise/rows.hpp>
#include <imbrex/kernels/rotary.hpp>
#include <imbrex/kernels/rotate/kernel.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class T>
struct rotate_rows_problem {
    static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, fp16> || std::is_same_v<T, float>,
                  "imbrex: heads that are rotated are bf16, fp16 or float");

    row_view<const T> x;             // [token, head, column]
    const int* positions = nullptr;  // one for each token; they are counted if it is left out
    int first_position = 0;          // then, of the first token
    rotary_embedding rotary = {};
    row_view<T> out;

    bool empty() const { return out.extents[0] * out.extents[1] * out.extents[2] == 0; }
    // Then what would be copied is there already.
    bool in_place() const { return x.pointer == out.pointer; }
    bool changes_nothing() const { return empty() || (in_place() && !rotary.given()); }
};

template <class T>
void require_rotate_rows(const rotate_rows_problem<T>& p) {
    using namespace detail;
    require_rows(p.x, "x");
    require_rows(p.out, "out");
    require_same_rows(p.out, "out", p.x, "x");
    require_apart(p.out, "out");
    for (int i = 0; i < 2; ++i) {
        require(p.empty() || !p.in_place() || p.x.extents[i] <= 1 || p.out.strides[i] == p.x.strides[i], "out.strides[",
                i, "]: ", p.out.strides[i], "; where it is x itself, it must have the strides of x, and this is ",
                p.x.strides[i]);
    }
    const rotary_embedding& rotary = p.rotary;
    require(rotary.columns >= 0 && rotary.columns % 2 == 0 && rotary.columns <= p.x.extents[2],
            "rotary.columns: ", rotary.columns, "; pairs are rotated, an even number of columns of the ",
            p.x.extents[2], " that a head has");
    require(!rotary.given() || rotary.turns != nullptr, "rotary.turns: null; ", rotary.columns / 2,
            " numbers are needed");
    require(p.positions == nullptr || p.first_position == 0, "first_position: ", p.first_position,
            "; positions are given, it must be 0");
    require(p.first_position + p.x.extents[0] - 1 <= 2147483647, "first_position: ", p.first_position, "; with ",
            p.x.extents[0], " tokens the last is beyond 2147483647, the last position there is");
}

inline namespace IMBREX_WORLDS {

template <class T>
class rotate_rows {
  public:
    using problem = rotate_rows_problem<T>;
    template <int Columns, row_chunks Known>
    using kernel = rotate_rows_kernel<T, Columns, Known>;

    static void launch(world where, const problem& p, void* stream = nullptr) {
        require_rotate_rows(p);
        if (p.changes_nothing()) return;
        const int half = p.rotary.columns / 2;
        if (!rows_are_whole(p)) {
            launch_kernel<kernel<32, row_chunks::ragged>>(where, p, stream);
        } else if (half > 0 && half <= 32) {
            launch_kernel<kernel<32, row_chunks::whole>>(where, p, stream);
        } else {
            launch_kernel<kernel<64, row_chunks::whole>>(where, p, stream);
        }
    }

    // Of a problem that changes something.
    template <class Kernel>
    static typename Kernel::arguments arguments_of(const problem& p) {
        const int end = p.in_place() ? p.rotary.columns : p.x.columns();
        const typename Kernel::columns all{p.rotary.columns, end, p.rotary.style == rotary_style::half_split};
        const int some = (p.x.rows() - 1) / Kernel::heads_at_once + 1;
        const std::int64_t parts = std::int64_t{some} * all.count();
        require(parts * p.x.extents[0] <= detail::most_rows, "x.extents: ", p.x.extents[0], " tokens of ",
                p.x.extents[1], " heads of ", p.x.extents[2], " columns; that is more than one launch can do");
        return {.x = p.x,
                .out = p.out,
                .positions = p.positions,
                .first_position = p.first_position,
                .rotary = p.rotary,
                .all = all,
                .parts_of_head = known_divisor(all.count()),
                .parts_of_token = known_divisor(static_cast<int>(parts))};
    }

  private:
    template <class Kernel>
    static void launch_kernel(world where, const problem& p, void* stream) {
        const auto args = arguments_of<Kernel>(p);
        imbrex::launch<Kernel>(where, Kernel::grid_of(args), args, stream);
    }

    static bool rows_are_whole(const problem& p) {
        const int run = p.rotary.style == rotary_style::half_split ? p.rotary.columns / 2 : p.rotary.columns;
        return detail::begin_in_chunks(p.x) && detail::begin_in_chunks(p.out) && run % 8 == 0;
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
