// Shared by the device benchmarks: random device arrays, and timing with interleaved contestants, so that clocks and
// temperature are the same for all of them.
#pragma once

#include <imbrex/core/element_types.hpp>

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

inline void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
}

// RAII device memory.
template <class T>
class device_array {
  public:
    explicit device_array(std::size_t count) : count_(count) {
        check(cudaMalloc(&pointer_, count * sizeof(T) + 256), "cudaMalloc");
    }
    // Normally distributed values, repeated after about four million; caches go by address, so timing is unaffected.
    device_array(std::size_t count, unsigned seed, float spread = 1) : device_array(count) {
        std::mt19937 generator(seed);
        std::normal_distribution<float> number(0, spread);
        const std::size_t period = std::min(count, (std::size_t{1} << 22) + 7);
        std::vector<T> values(period);
        for (T& value : values) value = imbrex::convert<T>(number(generator));
        for (std::size_t at = 0; at < count; at += period) {
            check(cudaMemcpy(pointer_ + at, values.data(), std::min(period, count - at) * sizeof(T),
                             cudaMemcpyHostToDevice),
                  "cudaMemcpy");
        }
    }
    device_array(device_array&& other) noexcept
        : count_(other.count_), pointer_(std::exchange(other.pointer_, nullptr)) {}
    device_array(const device_array&) = delete;
    device_array& operator=(const device_array&) = delete;
    ~device_array() { cudaFree(pointer_); }

    T* data() const { return pointer_; }
    std::size_t bytes() const { return count_ * sizeof(T); }
    std::vector<T> download() const {
        std::vector<T> values(count_);
        check(cudaMemcpy(values.data(), pointer_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        return values;
    }
    // NaN in every floating-point type.
    void poison() { check(cudaMemset(pointer_, 0xff, bytes()), "cudaMemset"); }

  private:
    std::size_t count_;
    T* pointer_ = nullptr;
};

inline std::string device_name() {
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "properties");
    return std::string(device.name) + ", " + std::to_string(device.multiProcessorCount) + " SMs";
}

// Sizes of a GEMM.
struct sizes {
    int m, n, k;
    std::string text() const { return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k); }
    double flop() const { return 2.0 * m * n * k; }
};

inline float median(std::vector<float> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

// One implementation. `run` enqueues it in the stream; `copy` selects one of several copies of the data, so that a
// benchmark can keep its inputs out of the caches.
struct contestant {
    std::string name;
    std::function<void(cudaStream_t, int copy)> run;
};

// Pacing of measurements. At its power limit the GPU lowers its clocks: `sustained` warms it up to that state before
// timing, `paused` sleeps 10 ms before each measurement.
enum class pace { as_it_comes, sustained, paused };

inline const char* name_of(pace how) {
    return how == pace::sustained ? "sustained" : how == pace::paused ? "paused" : "as it comes";
}

// Median milliseconds of each contestant, interleaved, over `rounds` rounds. With `repeats` above 1 a round is a CUDA
// graph of `repeats` launches over successive copies: the time per launch without host overhead.
inline std::vector<float> take_turns(const std::vector<contestant>& all, int rounds, int repeats = 1,
                                     pace how = pace::as_it_comes) {
    using clock = std::chrono::steady_clock;
    cudaStream_t stream;
    check(cudaStreamCreate(&stream), "cudaStreamCreate");
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<cudaGraphExec_t> graphs(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].run(stream, 0);  // the first launch may do setup that must not be captured
        check(cudaStreamSynchronize(stream), all[i].name.c_str());
        cudaGraph_t graph;
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
        for (int repeat = 0; repeat < repeats; ++repeat) all[i].run(stream, repeat);
        check(cudaStreamEndCapture(stream, &graph), "end capture");
        check(cudaGraphInstantiate(&graphs[i], graph, 0), "instantiate");
        cudaGraphDestroy(graph);
    }
    std::vector<std::vector<float>> times(all.size());
    const auto hot = clock::now() + std::chrono::milliseconds(300);
    while (how == pace::sustained && clock::now() < hot) {
        for (cudaGraphExec_t one : graphs) check(cudaGraphLaunch(one, stream), "launch");
        check(cudaStreamSynchronize(stream), "warming up");
    }
    const int warm_up = std::max(2, rounds / 8);
    for (int round = 0; round < rounds + warm_up; ++round) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (how == pace::paused) std::this_thread::sleep_for(std::chrono::milliseconds(10));
            check(cudaEventRecord(begin, stream), "record");
            check(cudaGraphLaunch(graphs[i], stream), "launch");
            check(cudaEventRecord(end, stream), "record");
            check(cudaEventSynchronize(end), all[i].name.c_str());
            float took = 0;
            check(cudaEventElapsedTime(&took, begin, end), "elapsed");
            if (round >= warm_up) times[i].push_back(took / static_cast<float>(repeats));
        }
    }
    for (cudaGraphExec_t one : graphs) cudaGraphExecDestroy(one);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(stream);
    std::vector<float> medians;
    for (auto& one : times) medians.push_back(median(one));
    return medians;
}

// Current clocks; under load if called right after it.
inline std::string clocks() {
    std::string line;
    if (FILE* tool = popen(
            "nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader", "r")) {
        char part[256];
        while (std::fgets(part, sizeof part, tool) != nullptr) line += part;
        pclose(tool);
    }
    while (!line.empty() && line.back() == '\n') line.pop_back();
    return line.empty() ? "clocks unknown" : line;
}

}  // namespace bench
