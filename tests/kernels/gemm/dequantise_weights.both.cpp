// Dequantisation of packed weights to rows: every format, group size and type, ragged sizes, every value exact, no
// write out of bounds; argument checks. No hazard in any schedule, and every mutation of the synchronisation is
// detected.
#include <imbrex/kernels/gemm/dequantise_weights.hpp>
#include <imbrex/kernels/gemm/pack_weights.hpp>

#include <kernels/gemm/random_weights.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class Weights>
void check_unpacked(int rows, int k) {
    using element = typename Weights::element;
    const random_weights<Weights> given(rows, k, 11);
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(rows);
        CAPTURE(k);
        buffer<typename Weights::weight_tile> parts(where, packed_tile_count<Weights>(rows, k));
        parts.values = pack_weights<Weights>(given.values.data(), given.scales.data(), rows, k);
        const std::size_t count = static_cast<std::size_t>(rows) * k, behind = 256;
        buffer<element> out(where, count + behind, convert<element>(NAN));
        dequantise_weights<Weights>::launch(where, rows, k, parts.upload(), out.upload());
        out.download();
        int wrong = 0, written = 0;
        for (int row = 0; row < rows; ++row) {
            for (int column = 0; column < k; ++column) {
                const auto expected = convert<element>(static_cast<float>(given.at(row, column)));
                wrong += out.values[static_cast<std::size_t>(row) * k + column].bits != expected.bits;
            }
        }
        for (std::size_t i = count; i < out.values.size(); ++i) written += !std::isnan(convert<float>(out.values[i]));
        CHECK(wrong == 0);
        CHECK(written == 0);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("grouped weights are dequantised with their scales", In, bf16, fp16) {
    check_unpacked<int4_weights<In, 128, In, 128>>(200, 384);
    check_unpacked<int4_weights<In, 64, In, 64>>(64, 320);
    check_unpacked<int4_weights<In, 32, In, 128>>(72, 288);
    check_unpacked<int4_weights<In, 32, float, 512>>(1, 32);
    check_unpacked<grouped_weights<In, std::int8_t, 128>>(136, 384);
    check_unpacked<grouped_weights<In, iq4, 32, fp16, 128>>(70, 160);
    check_unpacked<grouped_weights<In, std::int8_t, 32, float, 64>>(65, 160);
}

TEST_CASE_TEMPLATE(
    "weights with a scale per row are dequantised without it, "
    "MXFP4 with its scales",
    In, bf16, fp16) {
    check_unpacked<int8_weights<In, 128>>(200, 392);
    check_unpacked<int8_weights<In, 64>>(3, 7);
    check_unpacked<mxfp4_weights<In, 128>>(130, 416);
    check_unpacked<mxfp4_weights<In, 512>>(64, 96);
}

TEST_CASE("every finite e4m3 is dequantised exactly") {
    using weights = e4m3_weights<bf16>;
    std::vector<e4m3> values;
    for (int i = 0; i < 64 * 64; ++i) {
        const e4m3 value = e4m3::from_bits(static_cast<std::uint8_t>(i));
        values.push_back(value.is_nan() ? e4m3::from_bits(0) : value);
    }
    for (const world where : worlds()) {
        buffer<weights::weight_tile> parts(where, packed_tile_count<weights>(64, 64));
        parts.values = pack_weights<weights>(values.data(), nullptr, 64, 64);
        buffer<bf16> out(where, values.size(), convert<bf16>(NAN));
        dequantise_weights<weights>::launch(where, 64, 64, parts.upload(), out.upload());
        out.download();
        for (std::size_t i = 0; i < values.size(); ++i) {
            CHECK(convert<float>(out.values[i]) == convert<float>(values[i]));
        }
    }
}

TEST_CASE("dequantise_weights rejects invalid arguments") {
    using weights = int4_weights<bf16>;
    const std::vector<weights::weight_tile> part(1);
    bf16 out{};
    const auto refusal = [&](int rows, int k, const weights::weight_tile* parts, bf16* to) {
        return error_message_of([&] { dequantise_weights<weights>::launch(world::host, rows, k, parts, to); });
    };
    CHECK(refusal(0, 128, part.data(), &out) == "rows: 0; there must be a row of weights");
    CHECK(refusal(64, -1, part.data(), &out) == "k: -1; k must be positive");
    CHECK(refusal(64, 128, nullptr, &out) == "tiles: null; packed weights of 64 x 128 are needed");
    CHECK(refusal(64, 128, part.data(), nullptr) == "out: null; there must be memory for 64 x 128 weights");
}

#if !defined(__CUDACC__)
TEST_CASE("dequantise_weights: no hazard in any schedule, and every mutation is detected") {
    using weights = int4_weights<bf16, 32>;
    using kernel = dequantise_weights_kernel<weights>;
    const random_weights<weights> given(100, 192, 3);
    const auto packed = pack_weights<weights>(given.values.data(), given.scales.data(), 100, 192);
    std::vector<bf16> out(100 * 192);
    const kernel::arguments args{weights::describe(packed.data(), 100, 192), {out.data(), 192, 100, 192}};
    check_synchronisation<kernel>("unpacking", kernel::grid_of(args), args, 300);
}
#endif
