// Dequantisation into registers: every value of every format at every position of a tile, and every scale of the 4-bit
// floats, bit-exact with a conversion and one rounding; by a warpgroup, and by a warp from packed registers. Scales of
// groups.
#include <imbrex/kernels/gemm/pack_weights.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/bulk.hpp>
#include <imbrex/ops/register/dequantise.hpp>

#include <ops/tools.hpp>

#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Each block dequantises its own tile and stores it.
template <class Weights>
struct unpacking {
    static constexpr int warps = 8;
    using In = typename Weights::element;
    using weight_tile = typename Weights::weight_tile;
    using tile = warpgroup_tile<In, 64, 64>;
    struct arguments {
        const weight_tile* parts;
        matrix_view<In> out;
    };
    struct shared_memory {
        pipeline<weight_tile, 1> ring;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        const int number = block.index().x;
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        auto slot = filling.acquire();
                        load_object_async(self, *slot, args.parts[number], slot);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto held = full.wait();
                        tile first, second;
                        unpack<0>(self, first, *held);
                        unpack<64>(self, second, *held);
                        store(self, args.out.template tile<tile>(number, 0), first);
                        store(self, args.out.template tile<tile>(number, 1), second);
                    }));
    }

  private:
    template <int First>
    IMBREX_KERNEL static void unpack(const warpgroup& self, tile& to, const weight_tile& from) {
        if constexpr (requires { dequantise<First>(self, to, from.values, from.scales); }) {
            dequantise<First>(self, to, from.values, from.scales);
        } else {
            dequantise<First>(self, to, from.values);
        }
    }
};

// The same by a warp that holds 64 packed columns and dequantises 16 rows at a time.
template <class Weights>
struct unpacking_by_warp {
    static constexpr int warps = 1;
    using In = typename Weights::element;
    using weight_tile = typename Weights::weight_tile;
    using tile = warp_tile<In, 16, 64>;
    static constexpr bool has_scales = requires(weight_tile one) { one.scales.words; };
    struct arguments {
        const weight_tile* parts;
        matrix_view<In> out;
    };
    struct shared_memory {
        weight_tile held;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            const int number = block.index().x;
            copy_object_async(self, shared.held, args.parts[number]);
            commit_copies(self);
            wait_copies(self);
            self.sync();
            for (int column = 0; column < 128; column += 64) {
                packed_values<typename Weights::format, 64> values;
                load(self, values, shared.held.values.template columns_from<64>(column));
                static_for<4>([&](auto rows) {
                    tile made;
                    if constexpr (has_scales) {
                        packed_scale_values<64> scales;
                        load(self, scales, shared.held.scales.template columns_from<64>(column));
                        dequantise_rows<16 * rows>(self, made, values, scales);
                    } else {
                        dequantise_rows<16 * rows>(self, made, values);
                    }
                    store(self, args.out.at(64 * number + 16 * rows, column), made);
                });
            }
        });
    }
};

// `count` tiles, in each of which every position has another value. `wanted` maps the bits of a value and its scale to
// the expected result.
template <class Weights, class Scale, class Wanted>
void check_unpacking(int count, const std::vector<Scale>& scales, Wanted wanted) {
    using format = typename Weights::format;
    using In = typename Weights::element;
    constexpr int bits = bits_of<format>, depth = Weights::block_k;
    const int rows = 64 * count;
    std::vector<format> values(static_cast<std::size_t>(rows) * depth / values_in<format>);
    const auto number_at = [](int row, int column) {
        const std::uint32_t number = static_cast<std::uint32_t>(row % 64 * 7 + column * 5 + row / 64) % (1U << bits);
        // NaN is not packed.
        return std::is_same_v<format, e4m3> && (number & 0x7fU) == 0x7fU ? 0U : number;
    };
    for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < depth; column += values_in<format>) {
            format& value = values[(static_cast<std::size_t>(row) * depth + column) / values_in<format>];
            if constexpr (std::is_same_v<format, std::int8_t>) {
                value = static_cast<std::int8_t>(number_at(row, column));
            } else if constexpr (bits == 8) {
                value = format::from_bits(static_cast<std::uint8_t>(number_at(row, column)));
            } else {
                value = format::from_bits(
                    static_cast<std::uint8_t>(number_at(row, column) | number_at(row, column + 1) << 4));
            }
        }
    }
    const auto check = [&](auto kernel) {
        using unpacking_kernel = decltype(kernel);
        for (const world where : worlds()) {
            const auto packed = pack_weights<Weights>(values.data(), scales.data(), rows, depth);
            REQUIRE(static_cast<int>(packed.size()) == count);
            buffer<typename Weights::weight_tile> parts(where, packed.size());
            parts.values = packed;
            buffer<In> out(where, static_cast<std::size_t>(rows) * depth, poison<In>());
            run<unpacking_kernel>(where, {count, 1, 1}, {parts.upload(), matrix(out.upload(), rows, depth)}, 2);
            out.download();
            tally compared(str_cat(name_of(where), ", ", imbrex::name_of<format>(), " to ", imbrex::name_of<In>()));
            for (int row = 0; row < rows; ++row) {
                for (int column = 0; column < depth; ++column) {
                    compared.expect_same(row, column, out.values[static_cast<std::size_t>(row) * depth + column],
                                         wanted(number_at(row, column), row, column));
                }
            }
        }
    };
    check(unpacking<Weights>{});
    check(unpacking_by_warp<Weights>{});
}

template <class In>
void check_integers() {
    const auto wanted = [](auto value) { return convert<In>(static_cast<float>(value)); };
    check_unpacking<int8_weights<In, 128>>(256, std::vector<float>(), [&](std::uint32_t bits, int, int) {
        return wanted(static_cast<std::int8_t>(bits));
    });
    const std::vector<In> scales(16 * 64, convert<In>(1.0f));
    check_unpacking<int4_weights<In, 128, In, 128>>(16, scales, [&](std::uint32_t bits, int, int) {
        return wanted(int4x2::from_bits(static_cast<std::uint8_t>(bits)).low() / packed_int4_divisor<In>);
    });
}

template <class In>
void check_small_floats() {
    check_unpacking<e4m3_weights<In, 128>>(256, std::vector<float>(), [](std::uint32_t bits, int, int) {
        return convert<In>(e4m3::decode(static_cast<std::uint8_t>(bits)));
    });
    using weights = mxfp4_weights<In, 128>;
    const int parts = 32;
    std::vector<ue8m0> scales(parts * 64 * 4);
    for (std::size_t i = 0; i < scales.size(); ++i) {
        scales[i] = ue8m0::from_bits(static_cast<std::uint8_t>(i * 7 % (packed_scale_max + 1)));
    }
    check_unpacking<weights>(parts, scales, [&](std::uint32_t bits, int row, int column) {
        const float number = static_cast<float>(e2m1::from_bits(static_cast<std::uint8_t>(bits)));
        return convert<In>(static_cast<double>(number) * static_cast<float>(scales[row * 4 + column / 32]));
    });
}

// Scales columns 16 to 47 of a tile.
template <class In, class Scale>
struct group_scaling {
    static constexpr int warps = 4;
    using tile = warpgroup_tile<In, 64, 64>;
    struct arguments {
        matrix_view<In> from;
        const Scale* scales;
        matrix_view<In> to;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        block.each_warpgroup([&](warpgroup& self) {
            tile values;
            row_values<Scale, 64, warpgroup> scales;
            load(self, values, args.from.at(0, 0));
            load(self, scales, args.scales, 64);
            scale_group<16, 32>(self, values, scales, 64.0f);
            store(self, args.to.at(0, 0), values);
        });
    }
};

template <class In, class Scale>
void check_group_scaling() {
    for (const world where : worlds()) {
        buffer<In> values(where, 64 * 64), out(where, 64 * 64, poison<In>());
        buffer<Scale> scales(where, 64);
        fill_random(values.values, 1);
        fill_random(scales.values, 2);
        run<group_scaling<In, Scale>>(
            where, {1}, {matrix(values.upload(), 64, 64), scales.upload(), matrix(out.upload(), 64, 64)}, 2);
        out.download();
        tally compared(str_cat(name_of(where), ", ", imbrex::name_of<Scale>(), " to ", imbrex::name_of<In>()));
        for (int row = 0; row < 64; ++row) {
            const float scale = convert<float>(convert<In>(convert<float>(scales.values[row]) * 64.0f));
            for (int column = 0; column < 64; ++column) {
                const In old = values.values[row * 64 + column];
                const bool scaled = column >= 16 && column < 48;
                compared.expect_same(row, column, out.values[row * 64 + column],
                                     scaled ? convert<In>(convert<float>(old) * scale) : old);
            }
        }
    }
}

}  // namespace

TEST_CASE_TEMPLATE("dequantise: every integer at every position", In, bf16, fp16) {
    check_integers<In>();
}

TEST_CASE_TEMPLATE("dequantise: every e4m3, and every e2m1 with every scale, at every position", In, bf16, fp16) {
    check_small_floats<In>();
}

TEST_CASE_TEMPLATE("scale_group: each row of some columns by its own scale, rounded twice", In, bf16, fp16) {
    check_group_scaling<In, In>();
    check_group_scaling<In, float>();
}

#if !defined(__CUDACC__)
namespace {

// Reads weights that were never loaded, or passes an invalid scope.
template <bool InvalidScope>
struct misuse {
    static constexpr int warps = 4;
    struct arguments {};
    struct shared_memory {
        int8_weights<bf16, 128>::weight_tile part;
    };
    template <class Block>
    static void run(Block& block, const arguments&, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<bf16, 64, 64> tile;
            dequantise(InvalidScope ? warpgroup{nullptr, 0} : self, tile, shared.part.values);
        });
    }
};

}  // namespace

TEST_CASE("dequantise: reports weights that were never loaded and an invalid scope") {
    const auto unwritten = host::check<misuse<false>>({1}, {}, 4);
    REQUIRE(unwritten);
    CHECK(unwritten->kind == hazard_kind::uninitialised_read);
    const auto stranger = host::check<misuse<true>>({1}, {}, 4);
    REQUIRE(stranger);
    CHECK(stranger->kind == hazard_kind::wrong_scope);
}
#endif
