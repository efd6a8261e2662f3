// pack_weights behind a plain function (../variant.hpp): it runs on the host.
#pragma once

#include "../calls/quantised_weights.hpp"
#include "../variant.hpp"

#include <imbrex/hw/host/thread_pool.hpp>
#include <imbrex/kernels/gemm/pack_weights.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace imbrex::bindings {

// Bytes of the tiles, and of the scales after them.
template <class Weights>
std::size_t packed_tile_bytes(int rows, int k) {
    return packed_tile_count<Weights>(rows, k) * sizeof(typename Weights::weight_tile);
}
template <class Weights>
std::size_t packed_scale_bytes(int rows) {
    return Weights::group == 0 ? static_cast<std::size_t>(rows) * sizeof(float) : 0;
}

template <class Weights>
struct pack_weights {
    using call = pack_weights_call;
    using tile = typename Weights::weight_tile;
    using format = typename Weights::format;
    using scale = typename Weights::scale;
    static constexpr bool is_grouped = Weights::group > 0;

    static void run(const execution&, const call& c) {
        const std::size_t tile_bytes = packed_tile_bytes<Weights>(c.rows, c.k),
                          scale_bytes = packed_scale_bytes<Weights>(c.rows);
        if (c.packed_bytes != nullptr) {
            *c.packed_bytes = tile_bytes + scale_bytes;
            return;
        }
        auto* const packed =
            elements_of<std::uint8_t>(c.packed, "packed", static_cast<std::int64_t>(tile_bytes + scale_bytes));
        const scale* const scales = scales_of(c);
        pack(reinterpret_cast<tile*>(packed), values_of(c), is_grouped ? scales : nullptr, c.rows, c.k);
        if constexpr (!is_grouped) std::memcpy(packed + tile_bytes, scales, scale_bytes);
    }

  private:
    // 64 rows at a time, on all cores.
    static void pack(tile* to, const format* values, const scale* scales, int rows, int k) {
        const std::size_t tiles = packed_tile_count<Weights>(packed_rows, k);
        hw::thread_pool::shared().for_each((rows + packed_rows - 1) / packed_rows, 0, [&](int block) {
            const std::int64_t first = std::int64_t{block} * packed_rows;
            const int count = static_cast<int>(std::min<std::int64_t>(packed_rows, rows - first));
            const format* const own_values = values + first * k / values_in<format>;
            const scale* const own_scales = scales == nullptr ? nullptr : scales + first * groups_of(k);
            imbrex::pack_weights<Weights>(to + block * tiles, own_values, own_scales, count, k);
        });
    }
    static int groups_of(int k) { return is_grouped ? k / Weights::group : 1; }

    static const format* values_of(const call& c) {
        using stored = std::conditional_t<values_in<format> == 2, std::uint8_t, format>;
        const std::int64_t count = std::int64_t{c.rows} * c.k / values_in<format>;
        return reinterpret_cast<const format*>(elements_of<const stored>(c.values, "values", count));
    }
    static const scale* scales_of(const call& c) {
        using stored = std::conditional_t<std::is_same_v<scale, ue8m0>, std::uint8_t, scale>;
        const std::int64_t count = std::int64_t{c.rows} * groups_of(c.k);
        return reinterpret_cast<const scale*>(elements_of<const stored>(c.scales, "scales", count));
    }
};

}  // namespace imbrex::bindings
