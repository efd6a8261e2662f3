// quantise_fp8 behind a plain function (../variant.hpp).
#pragma once

#include "../calls/quantise_fp8.hpp"
#include "../rope.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/quantise_fp8.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class In>
struct quantise_fp8 {
    using call = quantise_fp8_call;
    using launcher = imbrex::quantise_fp8<In>;

    static void run(const execution& on, const call& c) {
        quantise_fp8_problem<In> p{.x = attention_view_of<const In>(c.x, "x"),
                                   .out = attention_view_of<e4m3>(c.out, "out"),
                                   .scales_given = c.scales_given};
        if (c.cu_seqlens.given()) {
            p.sequences = static_cast<int>(c.cu_seqlens.count()) - 1;
            p.cu_seqlens = elements_of<const int>(c.cu_seqlens, "cu_seqlens");
        }
        p.seqused = elements_of<const int>(c.seqused, "seqused", p.batches());
        p.scales = scales_of(c, p.batches(), p.heads());
        p.rope = rope_of(c.inv_freq, c.style, c.attention_factor);
        p.positions = elements_of<const int>(c.positions, "positions", p.x.extents[0] * p.x.extents[2]);
        p.hadamard_seed = c.hadamard_seed;
        const std::size_t bytes = launcher::workspace_bytes(p);
        if (bytes > 0) p.workspace = allocate_zeroed(on, bytes, bytes);
        launch_or_check<launcher>(on, p);
    }

  private:
    static fp8_scales scales_of(const call& c, int batches, int heads) {
        if (c.block_rows > 0) {
            const std::int64_t blocks = c.scales.sizes[c.scales.rank - 1];
            float* const data = elements_of<float>(c.scales, "scales", std::int64_t{batches} * heads * blocks);
            return fp8_scales_per_block(data, heads, static_cast<int>(blocks), c.block_rows);
        }
        if (c.scales.count() == 1) return fp8_scale_per_tensor(elements_of<float>(c.scales, "scales"));
        return fp8_scales_per_head(elements_of<float>(c.scales, "scales", std::int64_t{batches} * heads), heads);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
