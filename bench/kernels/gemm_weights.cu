// GEMM with quantised weights against bf16 weights: 8192 x 8192, rotating over copies that exceed the caches; CUDA
// graphs of many launches, medians. Small M, and large M with and without a workspace. --json FILE writes the tables
// for bench/plot.py.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/gemm_quantised.hpp>

#include "device.hpp"
#include "report.hpp"

#include <type_traits>

using namespace imbrex;
using namespace bench;

namespace {

constexpr int n = 8192, k = 8192, copies = 6;

// Copies of packed weights with random bits; the values do not affect the time. Scales are finite.
template <class Weights>
class weight_copies {
  public:
    weight_copies() {
        const auto packed = pack_random();
        for (int copy = 0; copy < copies; ++copy) {
            all_.emplace_back(packed_tile_count<Weights>(n, k));
            for (int block = 0; block < n / rows; ++block) {
                check(cudaMemcpy(all_.back().data() + block * packed.size(), packed.data(),
                                 packed.size() * sizeof(packed[0]), cudaMemcpyHostToDevice),
                      "copy");
            }
        }
    }
    const typename Weights::weight_tile* at(int copy) const { return all_[copy % copies].data(); }

  private:
    static constexpr int rows = 64;  // packed once, and repeated
    using tiles = std::vector<typename Weights::weight_tile>;

    static tiles pack_random() {
        using format = typename Weights::format;
        using scale = typename Weights::scale;
        std::mt19937 random(1);
        std::vector<format> values(std::size_t(rows) * k / values_in<format>);
        for (format& value : values) {
            const auto byte = static_cast<std::uint8_t>(random());
            if constexpr (std::is_same_v<format, std::int8_t>) {
                value = static_cast<std::int8_t>(byte);
            } else {
                value = format::from_bits(byte);
            }
        }
        if constexpr (requires { typename Weights::super_scale; }) {
            const std::vector<scale> scales(values.size() / packed_columns);
            const std::vector<typename Weights::super_scale> supers(values.size() / Weights::super_block);
            tiles result(packed_tile_count<Weights>(rows, k));
            pack_weights<Weights>(result.data(), values.data(), scales.data(), supers.data(), rows, k);
            return result;
        } else {
            return pack_weights<Weights>(values.data(), random_scales(random).data(), rows, k);
        }
    }
    static std::vector<typename Weights::scale> random_scales(std::mt19937& random) {
        using scale = typename Weights::scale;
        std::vector<scale> scales(std::size_t(rows) * k / 32);
        for (scale& one : scales) {
            if constexpr (std::is_same_v<scale, ue8m0>) {
                one = ue8m0::from_bits(static_cast<std::uint8_t>(118 + random() % 6));
            } else {
                one = convert<scale>(0.01f);
            }
        }
        return scales;
    }

    std::vector<device_array<typename Weights::weight_tile>> all_;
};

template <class Weights>
contestant with_weights(const char* name, const weight_copies<Weights>& weights, const bf16* a, bf16* out, int m) {
    return {name, [=, &weights](cudaStream_t stream, int copy) {
                gemm_quantised<Weights, bf16>::launch(world::device, {m, n, k, {a}, {}, {out}}, weights.at(copy), {},
                                                      stream);
            }};
}

using weights_int4 = int4_weights<bf16, 128, bf16, 512>;
using weights_mxfp4 = mxfp4_weights<bf16, 512>;
using weights_int8 = int8_weights<bf16, 256>;
using weights_int4_32 = int4_weights<bf16, 32, fp16, 128>;
using product = gemm<bf16, bf16, gemm_options{.b = matrix_layout::column_major, .prefetch = pdl_prefetch::weights}>;

contestant with_bf16(const std::vector<device_array<bf16>>& weights, const bf16* a, bf16* out, int m) {
    return {"bf16", [=, &weights](cudaStream_t stream, int copy) {
                product::launch(world::device, {m, n, k, {a}, {weights[copy % copies].data()}, {out}}, {}, stream);
            }};
}

report small_m(const std::vector<device_array<bf16>>& as_bf16) {
    report table("quantised weights, 8192 x 8192, caches cold", "launches per millisecond");
    const weight_copies<weights_int4> as_int4;
    const weight_copies<weights_mxfp4> as_mxfp4;
    const weight_copies<weights_int8> as_int8;
    for (const int m : {1, 16}) {
        const device_array<bf16> a(std::size_t(m) * k, 1);
        const device_array<bf16> out(std::size_t(m) * n);
        const auto times = take_turns({with_bf16(as_bf16, a.data(), out.data(), m),
                                       with_weights("int4, groups of 128", as_int4, a.data(), out.data(), m),
                                       with_weights("MXFP4", as_mxfp4, a.data(), out.data(), m),
                                       with_weights("int8", as_int8, a.data(), out.data(), m)},
                                      40, 5 * copies);
        table.add(std::to_string(m) + (m == 1 ? " row" : " rows"), {{"bf16", 1 / times[0]},
                                                                    {"int4, groups of 128", 1 / times[1]},
                                                                    {"MXFP4", 1 / times[2]},
                                                                    {"int8", 1 / times[3]}});
    }
    return table;
}

// The blocks of GGUF files: bits per weight in the names.
report blocks() {
    report table("weights in GGUF's blocks, 8192 x 8192, caches cold", "launches per millisecond");
    const weight_copies<weights_int4_32> as_int4;
    const weight_copies<grouped_weights<bf16, iq4, 32, fp16, 128>> as_iq4;
    const weight_copies<q4_k_weights<bf16>> as_q4_k;
    const weight_copies<q5_k_weights<bf16>> as_q5_k;
    const weight_copies<q6_k_weights<bf16>> as_q6_k;
    for (const int m : {1, 16, 32}) {
        const device_array<bf16> a(std::size_t(m) * k, 1);
        const device_array<bf16> out(std::size_t(m) * n);
        const auto times = take_turns({with_weights("Q4_0, 4.5", as_int4, a.data(), out.data(), m),
                                       with_weights("IQ4_NL, 4.5", as_iq4, a.data(), out.data(), m),
                                       with_weights("Q4_K, 4.63", as_q4_k, a.data(), out.data(), m),
                                       with_weights("Q5_K, 5.63", as_q5_k, a.data(), out.data(), m),
                                       with_weights("Q6_K, 6.56", as_q6_k, a.data(), out.data(), m)},
                                      40, 5 * copies);
        table.add(std::to_string(m) + (m == 1 ? " row" : " rows"), {{"Q4_0, 4.5", 1 / times[0]},
                                                                    {"IQ4_NL, 4.5", 1 / times[1]},
                                                                    {"Q4_K, 4.63", 1 / times[2]},
                                                                    {"Q5_K, 5.63", 1 / times[3]},
                                                                    {"Q6_K, 6.56", 1 / times[4]}});
    }
    return table;
}

// With a workspace argument: fused dequantisation, and for the largest M dequantised first.
template <class Weights>
contestant with_workspace(const char* name, const weight_copies<Weights>& weights, const gemm_workspace& workspace,
                          const bf16* a, bf16* out, int m) {
    return {name, [=, &weights](cudaStream_t stream, int copy) {
                gemm_quantised<Weights, bf16>::launch(world::device, {m, n, k, {a}, {}, {out}}, weights.at(copy),
                                                      workspace, {}, stream);
            }};
}

report many_rows(const std::vector<device_array<bf16>>& as_bf16) {
    report table("many rows: quantised weights, 8192 x 8192, caches cold", "TFLOP/s");
    const weight_copies<weights_int4> as_int4;
    const weight_copies<weights_mxfp4> as_mxfp4;
    const device_array<bf16> room(std::size_t(n) * k);
    const gemm_workspace workspace{room.data(), room.bytes()};
    for (const int m : {64, 100, 128, 192, 256, 512, 1024, 2048, 4096}) {
        const device_array<bf16> a(std::size_t(m) * k, 1);
        const device_array<bf16> out(std::size_t(m) * n);
        const auto times =
            take_turns({with_bf16(as_bf16, a.data(), out.data(), m),
                        with_workspace("int4, groups of 128", as_int4, workspace, a.data(), out.data(), m),
                        with_workspace("MXFP4", as_mxfp4, workspace, a.data(), out.data(), m),
                        with_weights("int4, 32 rows at a time", as_int4, a.data(), out.data(), m)},
                       20, m > 256 ? copies : 2 * copies);
        const double work = 2e-9 * m * n * k;
        table.add(std::to_string(m) + " rows", {{"bf16", work / times[0]},
                                                {"int4, groups of 128", work / times[1]},
                                                {"MXFP4", work / times[2]},
                                                {"int4, 32 rows at a time", work / times[3]}});
    }
    return table;
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: no GPU\n");
        return 0;
    }
    std::vector<device_array<bf16>> as_bf16;
    for (int i = 0; i < copies; ++i) as_bf16.emplace_back(std::size_t(n) * k, 2 + i);
    std::vector<report> tables{small_m(as_bf16), blocks(), many_rows(as_bf16)};
    tables.back().note("clocks: " + clocks());
    return publish(tables, json_file(count, words)) ? 0 : 1;
}
