// RoPE (rotary position embedding) as a kernel: rotates the heads of each token by the angles of the token's position.
//
//     apply_rope<bf16>::launch(world::device, {.x = as_rows_of_heads<const bf16>(q, tokens, 32, 128),
//                                               .positions = positions,
//                                               .rope = frequencies.embedding(inv_freq, rope_style::half_split),
//                                               .out = as_rows_of_heads(q, tokens, 32, 128)}, stream);
//
// Positions are ints in the memory of the kernel's world, one per token. The angle is exact at any position
// (rope_embedding.hpp); a negative position rotates backwards. Without positions, tokens are numbered from
// `first_position`. Columns past rotary_dim are copied bit by bit. The arithmetic is float, rounded once. T is bf16,
// fp16 or float. Any number of tokens, heads and columns, any strides. The vectorised path needs heads of a multiple of
// 8 columns, aligned to 16 bytes, and a rotary_dim that is a multiple of 8, or of 16 with half_split; everything else
// is moved element by element.
//
// `out` is x itself or does not overlap it. A launch allocates nothing and does not synchronise. Invalid arguments
// throw imbrex::error before launch. For keys that go into a KV cache, kernels/paged_append.hpp applies RoPE to keys
// and queries in the same launch.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/rope/kernel.hpp>
#include <imbrex/kernels/rope_embedding.hpp>
#include <imbrex/kernels/row_view.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

template <class T>
struct apply_rope_problem {
    static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, fp16> || std::is_same_v<T, float>,
                  "imbrex: apply_rope takes bf16, fp16 or float");

    row_view<const T> x;             // [token, head, column]
    const int* positions = nullptr;  // one per token; null: numbered from first_position
    int first_position = 0;          // of the first token, if positions is null
    rope_embedding rope = {};
    row_view<T> out;

    bool empty() const { return out.extents[0] * out.extents[1] * out.extents[2] == 0; }
    // In place, columns past rotary_dim need no copy.
    bool in_place() const { return x.pointer == out.pointer; }
    bool is_identity() const { return empty() || (in_place() && !rope.given()); }
};

template <class T>
void require_apply_rope(const apply_rope_problem<T>& p) {
    using namespace detail;
    require_rows(p.x, "x");
    require_rows(p.out, "out");
    require_same_rows(p.out, "out", p.x, "x");
    require_disjoint_rows(p.out, "out");
    for (int i = 0; i < 2; ++i) {
        require(p.empty() || !p.in_place() || p.x.extents[i] <= 1 || p.out.strides[i] == p.x.strides[i], "out.strides[",
                i, "]: ", p.out.strides[i], "; in place it must equal the stride of x, ", p.x.strides[i]);
    }
    const rope_embedding& rope = p.rope;
    require(rope.rotary_dim >= 0 && rope.rotary_dim % 2 == 0 && rope.rotary_dim <= p.x.extents[2],
            "rope.rotary_dim: ", rope.rotary_dim, "; must be even and at most the ", p.x.extents[2],
            " columns of a head");
    require(!rope.given() || rope.inv_freq != nullptr, "rope.inv_freq: null; ", rope.rotary_dim / 2,
            " numbers are needed");
    require(p.positions == nullptr || p.first_position == 0, "first_position: ", p.first_position,
            "; positions are given, it must be 0");
    require(p.first_position + p.x.extents[0] - 1 <= 2147483647, "first_position: ", p.first_position, "; with ",
            p.x.extents[0], " tokens the last position is beyond 2147483647");
}

inline namespace IMBREX_WORLDS {

template <class T>
class apply_rope {
  public:
    using problem = apply_rope_problem<T>;
    template <int Columns, row_alignment Known>
    using kernel = apply_rope_kernel<T, Columns, Known>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, void* stream = nullptr) {
        require_apply_rope(p);
        if (p.is_identity()) return;
        const int half = p.rope.rotary_dim / 2;
        if (!rows_are_whole(p)) {
            launch_kernel<kernel<32, row_alignment::unaligned>>(where, p, stream);
        } else if (half > 0 && half <= 32) {
            launch_kernel<kernel<32, row_alignment::aligned>>(where, p, stream);
        } else {
            launch_kernel<kernel<64, row_alignment::aligned>>(where, p, stream);
        }
    }

    // Only for problems that are not the identity.
    template <class Kernel>
    static typename Kernel::arguments arguments_of(const problem& p) {
        const int end = p.in_place() ? p.rope.rotary_dim : p.x.columns();
        const typename Kernel::columns all{p.rope.rotary_dim, end, p.rope.style == rope_style::half_split};
        const int some = (p.x.rows() - 1) / Kernel::heads_at_once + 1;
        const std::int64_t parts = std::int64_t{some} * all.count();
        require(parts * p.x.extents[0] <= detail::max_rows, "x.extents: ", p.x.extents[0], " tokens of ",
                p.x.extents[1], " heads of ", p.x.extents[2], " columns; too many for one launch");
        return {.x = p.x,
                .out = p.out,
                .positions = p.positions,
                .first_position = p.first_position,
                .rope = p.rope,
                .all = all,
                .pairs_per_head = fast_divmod(all.count()),
                .pairs_per_token = fast_divmod(static_cast<int>(parts))};
    }

  private:
    template <class Kernel>
    static void launch_kernel(world where, const problem& p, void* stream) {
        const auto args = arguments_of<Kernel>(p);
        imbrex::launch<Kernel>(where, Kernel::grid_of(args), args, stream);
    }

    static bool rows_are_whole(const problem& p) {
        const int run = p.rope.style == rope_style::half_split ? p.rope.rotary_dim / 2 : p.rope.rotary_dim;
        return detail::can_vectorise(p.x) && detail::can_vectorise(p.out) && run % 8 == 0;
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
