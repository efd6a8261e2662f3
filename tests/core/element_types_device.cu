// The element types on the device, with hardware conversions, against the host, with software conversions: equal bits
// for every pattern of every type, for every value between neighbours, and for millions of random floats.
//
// The CUDA headers also convert on the host, in their own software; that comparison needs no device.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "imbrex/core/element_types.hpp"

using namespace imbrex;

namespace {

bool device_present() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

void require_success(cudaError_t status) {
    REQUIRE_MESSAGE(status == cudaSuccess, cudaGetErrorString(status));
}

// An operation maps two words of input to four of output, so one kernel serves all of them.
struct words {
    std::uint32_t word[4];
};

IMBREX_FN std::uint32_t word_of(float value) {
    return bits_as<std::uint32_t>(value);
}
IMBREX_FN float float_of(std::uint32_t word) {
    return bits_as<float>(word);
}

// A double next to the float in `word`, closer than float resolution: rounding twice would be wrong here.
IMBREX_FN double double_near(std::uint32_t word, std::uint32_t other) {
    const double value = static_cast<double>(float_of(word));
    if ((word & ~float_sign) > float_infinity) return value;
    return bits_as<double>(bits_as<std::uint64_t>(value) + (other % 3U) - 1U);
}

template <class T>
struct encode_operation {
    IMBREX_FN static words apply(std::uint32_t a, std::uint32_t b) {
        return {{T(float_of(a)).bits, convert<T>(float_of(b)).bits, convert<T>(double_near(a, b)).bits,
                 convert<T>(static_cast<std::int32_t>(a)).bits}};
    }
};

template <class T>
struct decode_operation {
    IMBREX_FN static words apply(std::uint32_t a, std::uint32_t b) {
        const T first = T::from_bits(static_cast<decltype(T::bits)>(a));
        const T second = T::from_bits(static_cast<decltype(T::bits)>(b));
        return {{word_of(static_cast<float>(first)), word_of(convert<float>(second)), first == second,
                 static_cast<std::uint32_t>(convert<std::int8_t>(first))}};
    }
};

template <class T>
struct pair_operation {
    IMBREX_FN static words apply(std::uint32_t a, std::uint32_t b) {
        const float_pair pair = unpack2<T>(a);
        return {{pack2<T>(float_of(a), float_of(b)), pack2<T>(float_of(b), float_of(a)), word_of(pair.low),
                 word_of(pair.high)}};
    }
};

template <class T>
struct pack4_operation {
    IMBREX_FN static words apply(std::uint32_t a, std::uint32_t b) {
        const float first = float_of(a), second = float_of(b);
        return {{pack4<T>(first, second, -first, 0.5F), pack4<T>(1.0F, -second, second, first), 0, 0}};
    }
};

template <class T>
struct unpack4_operation {
    IMBREX_FN static words apply(std::uint32_t a, std::uint32_t) {
        const float_quad quad = unpack4<T>(a);
        return {{word_of(quad.values[0]), word_of(quad.values[1]), word_of(quad.values[2]), word_of(quad.values[3])}};
    }
};

struct packed_operation {
    IMBREX_FN static words apply(std::uint32_t a, std::uint32_t b) {
        const float_pair floats = static_cast<float_pair>(e2m1x2::from_bits(static_cast<std::uint8_t>(a)));
        const float_pair integers = static_cast<float_pair>(int4x2::from_bits(static_cast<std::uint8_t>(a)));
        const std::uint32_t bytes = e2m1x2(float_of(a), float_of(b)).bits | int4x2(float_of(a), float_of(b)).bits << 8;
        return {
            {bytes, word_of(floats.low) ^ word_of(integers.low) >> 7, word_of(floats.high), word_of(integers.high)}};
    }
};

struct scale_operation {
    IMBREX_FN static words apply(std::uint32_t a, std::uint32_t b) {
        const ue8m0 scale = ue8m0::from_bits(static_cast<std::uint8_t>(a));
        return {{ue8m0::round_up(float_of(a)).bits, ue8m0::round_to_zero(float_of(a)).bits,
                 word_of(static_cast<float>(scale)), convert<ue8m0>(double_near(a, b)).bits}};
    }
};

struct integer_operation {
    IMBREX_FN static words apply(std::uint32_t a, std::uint32_t b) {
        return {{static_cast<std::uint32_t>(to_int32(float_of(a))), static_cast<std::uint32_t>(to_int8(float_of(a))),
                 static_cast<std::uint32_t>(to_int4(float_of(a))),
                 static_cast<std::uint32_t>(to_int32(double_near(a, b)))}};
    }
};

// Constant evaluation must equal the same conversion at run time.
struct constant_operation {
    IMBREX_FN static words apply(std::uint32_t, std::uint32_t) {
        constexpr bf16 brain(0.1F);
        constexpr std::uint32_t halves = pack2<fp16>(-0.1F, 1e-6F), bytes = pack4<e4m3>(0.1F, -0.2F, 1e9F, 3e-3F);
        constexpr float value = static_cast<float>(e5m2::from_bits(0x81));
        return {{brain.bits, halves, bytes, word_of(value)}};
    }
};

template <class Operation>
__global__ void apply_everywhere(const std::uint32_t* inputs, words* outputs, std::size_t count) {
    const std::size_t index = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
    if (index < count) outputs[index] = Operation::apply(inputs[index], inputs[count - 1 - index]);
}

template <class T>
void add_neighbourhoods(std::vector<std::uint32_t>& inputs) {
    constexpr std::uint32_t top = T::format.highest;
    const auto value_of_bits = [](std::uint32_t bits) {
        return static_cast<float>(T::from_bits(static_cast<decltype(T::bits)>(bits)));
    };
    for (std::uint32_t bits = 0; bits < top; ++bits) {
        const float low = value_of_bits(bits), high = value_of_bits(bits + 1);
        const std::uint32_t middle = word_of(low + (high - low) / 2);
        for (const std::uint32_t word : {word_of(low), word_of(low) + 1, middle - 1, middle, middle + 1}) {
            inputs.push_back(word);
            inputs.push_back(word | 0x80000000U);
        }
    }
    // From the largest value to past twice that.
    const std::uint32_t highest = word_of(value_of_bits(top));
    for (std::uint32_t word = highest; word < highest + 0x1800000U && word < 0x7f800000U; word += 0x3fffU) {
        inputs.push_back(word);
        inputs.push_back(word | 0x80000000U);
    }
}

// Every low half word (so every pattern of every type), the neighbourhoods, special values, and random words.
const std::vector<std::uint32_t>& all_inputs() {
    static const std::vector<std::uint32_t> inputs = [] {
        std::vector<std::uint32_t> words;
        for (std::uint32_t word = 0; word < 65536; ++word) {
            words.push_back(word);
            words.push_back(word << 16);
            words.push_back(word * 0x01010101U);
        }
        add_neighbourhoods<bf16>(words);
        add_neighbourhoods<fp16>(words);
        add_neighbourhoods<e4m3>(words);
        add_neighbourhoods<e5m2>(words);
        add_neighbourhoods<e2m1>(words);
        for (int quarters = -1024; quarters <= 1024; ++quarters) words.push_back(word_of(quarters / 4.0F));
        for (const std::uint32_t word : {0x7f800000U, 0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0x7f7fffffU, 0x00800000U,
                                         0x007fffffU, 0x00400000U, 0x00400001U, 0x003fffffU, 1U, 0U}) {
            words.push_back(word);
            words.push_back(word | 0x80000000U);
        }
        std::mt19937 generator(1);
        for (int i = 0; i < 3000000; ++i) words.push_back(static_cast<std::uint32_t>(generator()));
        // And with exponents in the range of the narrow types.
        for (int i = 0; i < 1000000; ++i) {
            const std::uint32_t word = static_cast<std::uint32_t>(generator());
            words.push_back((word & 0x807fffffU) | (95U + (word >> 23) % 50U) << 23);
        }
        return words;
    }();
    return inputs;
}

template <class Operation>
void compare_operation() {
    const std::vector<std::uint32_t>& inputs = all_inputs();
    std::uint32_t* device_inputs = nullptr;
    words* device_outputs = nullptr;
    require_success(cudaMalloc(&device_inputs, inputs.size() * sizeof(std::uint32_t)));
    require_success(cudaMalloc(&device_outputs, inputs.size() * sizeof(words)));
    require_success(cudaMemcpy(device_inputs, inputs.data(), inputs.size() * sizeof(std::uint32_t), cudaMemcpyDefault));
    require_success(cudaMemset(device_outputs, 0xa5, inputs.size() * sizeof(words)));
    const unsigned blocks = static_cast<unsigned>((inputs.size() + 255) / 256);
    apply_everywhere<Operation><<<blocks, 256>>>(device_inputs, device_outputs, inputs.size());
    require_success(cudaGetLastError());
    require_success(cudaDeviceSynchronize());
    std::vector<words> outputs(inputs.size());
    require_success(cudaMemcpy(outputs.data(), device_outputs, outputs.size() * sizeof(words), cudaMemcpyDefault));
    require_success(cudaFree(device_inputs));
    require_success(cudaFree(device_outputs));

    long wrong = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const std::uint32_t a = inputs[i], b = inputs[inputs.size() - 1 - i];
        const words expected = Operation::apply(a, b);
        for (int part = 0; part < 4; ++part) {
            if (outputs[i].word[part] == expected.word[part] || wrong++ >= 3) continue;
            CAPTURE(a);
            CAPTURE(b);
            CAPTURE(part);
            CHECK(outputs[i].word[part] == expected.word[part]);
        }
    }
    CHECK(wrong == 0);
}

template <class... Operations>
void compare_with_device() {
    if (!device_present()) {
        MESSAGE("skipped: no CUDA device");
        return;
    }
    (compare_operation<Operations>(), ...);
}

template <class Ours, class Theirs>
void compare_with_header(Ours ours, Theirs theirs) {
    long wrong = 0;
    for (const std::uint32_t word : all_inputs()) {
        const std::uint32_t found = ours(float_of(word)), expected = theirs(float_of(word));
        if (found == expected || wrong++ >= 3) continue;
        CAPTURE(word);
        CHECK(found == expected);
    }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("the device converts to and from bf16 as the host does") {
    compare_with_device<encode_operation<bf16>, decode_operation<bf16>, pair_operation<bf16>>();
}

TEST_CASE("the device converts to and from fp16 as the host does") {
    compare_with_device<encode_operation<fp16>, decode_operation<fp16>, pair_operation<fp16>>();
}

TEST_CASE("the device converts to and from e4m3 as the host does") {
    compare_with_device<encode_operation<e4m3>, decode_operation<e4m3>, pack4_operation<e4m3>,
                        unpack4_operation<e4m3>>();
}

TEST_CASE("the device converts to and from e5m2 as the host does") {
    compare_with_device<encode_operation<e5m2>, decode_operation<e5m2>, pack4_operation<e5m2>,
                        unpack4_operation<e5m2>>();
}

TEST_CASE("the device converts to and from e2m1, int4 and ue8m0 as the host does") {
    compare_with_device<encode_operation<e2m1>, decode_operation<e2m1>, packed_operation, scale_operation>();
}

TEST_CASE("the device rounds to integers as the host does") {
    compare_with_device<integer_operation>();
}

TEST_CASE("constants in device code equal the host's") {
    compare_with_device<constant_operation>();
}

TEST_CASE("the CUDA headers convert on the host as Imbrex does") {
    compare_with_header([](float value) { return bf16(value).bits; },
                        [](float value) { return __nv_bfloat16_raw(__float2bfloat16_rn(value)).x; });
    compare_with_header([](float value) { return fp16(value).bits; },
                        [](float value) { return __half_raw(__float2half_rn(value)).x; });
    compare_with_header([](float value) { return e4m3(value).bits; },
                        [](float value) { return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3); });
    compare_with_header([](float value) { return e5m2(value).bits; },
                        [](float value) { return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2); });
    compare_with_header([](float value) { return ue8m0::round_up(value).bits; },
                        [](float value) { return __nv_cvt_float_to_e8m0(value, __NV_SATFINITE, cudaRoundPosInf); });
    compare_with_header([](float value) { return ue8m0::round_to_zero(value).bits; },
                        [](float value) { return __nv_cvt_float_to_e8m0(value, __NV_SATFINITE, cudaRoundZero); });
}
