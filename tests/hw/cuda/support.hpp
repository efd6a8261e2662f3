// Shared by the tests of hw/cuda: device buffers, random operands, and kernels that only call the function under test.
// They call hw:: directly; the host computes the expected results with plain loops.
#pragma once

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <imbrex/core/element_types.hpp>
#include <imbrex/hw/cuda/launch.hpp>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace hw_test {

using namespace imbrex;

// Ends a test case with a message if there is no device.
inline bool skipped() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return false;
    cudaGetLastError();
    MESSAGE("skipped: no CUDA device");
    return true;
}

inline void check_cuda(cudaError_t status) {
    REQUIRE_MESSAGE(status == cudaSuccess, cudaGetErrorString(status));
}

template <class T>
class device_buffer {
  public:
    explicit device_buffer(std::size_t count) : count_(count) {
        check_cuda(cudaMalloc(&pointer_, (count_ > 0 ? count_ : 1) * sizeof(T)));
        poison();
    }
    explicit device_buffer(const std::vector<T>& values) : device_buffer(values.size()) {
        check_cuda(cudaMemcpy(pointer_, values.data(), count_ * sizeof(T), cudaMemcpyDefault));
    }
    device_buffer(const device_buffer&) = delete;
    device_buffer& operator=(const device_buffer&) = delete;
    ~device_buffer() { cudaFree(pointer_); }

    static constexpr unsigned char poison_byte = 0xa5;
    void poison() { check_cuda(cudaMemset(pointer_, poison_byte, count_ * sizeof(T))); }

    T* data() const { return static_cast<T*>(pointer_); }

    // Waits for the kernel, and so reports its failure.
    std::vector<T> read() const {
        check_cuda(cudaDeviceSynchronize());
        std::vector<T> values(count_);
        check_cuda(cudaMemcpy(values.data(), pointer_, count_ * sizeof(T), cudaMemcpyDefault));
        return values;
    }

  private:
    std::size_t count_;
    void* pointer_ = nullptr;
};

inline std::mt19937& generator() {
    static std::mt19937 shared(20240917);
    return shared;
}

// Arbitrary bits, for operations that only move data.
template <class T>
std::vector<T> random_bits(std::size_t count) {
    std::vector<T> values(count);
    std::vector<unsigned char> bytes(count * sizeof(T));
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(generator()());
    if (count > 0) std::memcpy(static_cast<void*>(values.data()), bytes.data(), bytes.size());
    return values;
}

// Numbers from -range to range.
template <class T>
std::vector<T> random_numbers(std::size_t count, float range) {
    std::uniform_real_distribution<float> distribution(-range, range);
    std::vector<T> values(count);
    for (T& value : values) value = convert<T>(distribution(generator()));
    return values;
}

template <class T>
T poisoned() {
    T value;
    std::memset(static_cast<void*>(&value), device_buffer<T>::poison_byte, sizeof(T));
    return value;
}

template <class T>
bool same_bits(const T& a, const T& b) {
    return std::memcmp(static_cast<const void*>(&a), static_cast<const void*>(&b), sizeof(T)) == 0;
}

// The number of elements that differ in any bit; reports the first.
template <class T>
long differing(const std::vector<T>& found, const std::vector<T>& expected) {
    REQUIRE(found.size() == expected.size());
    long count = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        if (!same_bits(found[i], expected[i]) && count++ == 0) MESSAGE("first difference at element ", i);
    }
    return count;
}

}  // namespace hw_test
