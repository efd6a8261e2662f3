// Included by both files: the same source, compiled by each compiler, must give different functions.
#pragma once

#include "shared.hpp"

namespace two_compilers {
namespace {

std::string error_of(const std::function<void()>& call, const char* otherwise) {
    try {
        call();
    } catch (const imbrex::error& thrown) {
        return thrown.what();
    }
    return otherwise;
}

findings find() {
    using namespace imbrex;
    findings found;
    alignas(256) static bf16 elements[64 * 64];
    const auto tensor = make_tma_tensor<tile>(imbrex::matrix(elements, 64, 64));
    for (const unsigned char byte : tensor.map.bytes) found.descriptor = found.descriptor || byte != 0;
    found.tensor_function = reinterpret_cast<const void*>(&make_tma_tensor<tile, matrix_view<bf16>>);
    void (*const gate)(world, const swiglu_problem<float>&, void*) = &swiglu_activation<float>::launch;
    found.gate_function = reinterpret_cast<const void*>(gate);
    found.array_on_device = error_of([] { world_array<float> values(world::device, 4); }, "made");
    found.launch_on_device = error_of(
        [] {
            world_array<float> values(world::device, 256);
            launch<doubled>(world::device, {1}, {imbrex::matrix(values.upload(), 16, 16)});
        },
        "launched");
    found.gate_on_device = error_of(
        [] {
            world_array<float> values(world::device, 192, 1.0f);
            float* const x = values.upload();
            swiglu_activation<float>::launch(world::device, {.gate = as_rows<const float>(x, 1, 64),
                                                             .up = as_rows<const float>(x + 64, 1, 64),
                                                             .out = as_rows(x + 128, 1, 64)});
        },
        "launched");
    std::vector<float> values(256, 3.0f);
    launch<doubled>(world::host, {1}, {imbrex::matrix(values.data(), 16, 16)});
    found.host_launch = values == std::vector<float>(256, 6.0f);
    return found;
}

}  // namespace
}  // namespace two_compilers
