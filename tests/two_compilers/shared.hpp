// The interface of the two files: nvcc compiles cuda_file.cu, the host compiler host_file.cpp, and both include Imbrex.
// Problems, views, element types and errors are the same types in both.
#pragma once

#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/swiglu.hpp>

#include <functional>
#include <string>
#include <vector>

namespace two_compilers {

using tile = imbrex::shared_tile<imbrex::bf16, 64, 64>;
using problem = imbrex::attention_problem<imbrex::bf16>;

struct doubled {
    static constexpr int warps = 1;
    struct arguments {
        imbrex::matrix_view<float> values;
    };
    struct shared_memory {};
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory&) {
        block.each_warp([&](imbrex::warp& self) {
            imbrex::warp_tile<float, 16, 16> part;
            load(self, part, args.values.at(0, 0));
            map(self, part, [](float value) { return 2 * value; });
            store(self, args.values.at(0, 0), part);
        });
    }
};

// The observations of each file, and the addresses of its functions.
struct findings {
    std::string array_on_device;   // the error of world_array(world::device, ...), or "made"
    std::string launch_on_device;  // the error of a launch there, or "launched"
    std::string gate_on_device;    // the same of a kernel of the library
    bool descriptor = false;       // make_tma_tensor encoded it
    bool host_launch = false;      // a launch in the host world gave the right result
    const void* tensor_function = nullptr;
    const void* gate_function = nullptr;
};

findings cuda_findings();
findings host_findings();

// Throws imbrex::invalid_argument for an invalid problem.
void cuda_require(const problem& p);
void host_require(const problem& p);

// The message of the imbrex::error that the call throws, caught in that file.
std::string caught_by_cuda(const std::function<void()>& call);
std::string caught_by_host(const std::function<void()>& call);

}  // namespace two_compilers
