// Encodes TMA descriptors on the host by cuTensorMapEncodeTiled. The driver entry point is looked up at run time, so a
// program links without libcuda and runs, without TMA, if there is no driver. The device pass only declares the
// function: the driver's header is long, and no device code encodes.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/tensor_map.hpp>
#include <imbrex/hw/tensor_map_parameters.hpp>

#if IMBREX_DEVICE_WORLD

namespace imbrex::hw {

bool encode(tensor_map& map, const tensor_map_parameters& tensor);

}  // namespace imbrex::hw

#else

#include <imbrex/core/error.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace imbrex::hw {

inline decltype(&cuTensorMapEncodeTiled) driver_tensor_map_encoder() {
    static const auto encoder = [] {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        const cudaError_t status =
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
        if (status != cudaSuccess) cudaGetLastError();  // no driver: clears the error for the next runtime call
        const bool usable = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(usable ? function : nullptr);
    }();
    return encoder;
}

inline CUtensorMapDataType driver_type(tensor_map_element element) {
    switch (element) {
        case tensor_map_element::uint8:
            return CU_TENSOR_MAP_DATA_TYPE_UINT8;
        case tensor_map_element::uint16:
            return CU_TENSOR_MAP_DATA_TYPE_UINT16;
        case tensor_map_element::int32:
            return CU_TENSOR_MAP_DATA_TYPE_INT32;
        case tensor_map_element::float16:
            return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        case tensor_map_element::bfloat16:
            return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
        case tensor_map_element::float32:
            return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    }
    throw invalid_argument(str_cat("imbrex: no tensor element has the number ", static_cast<int>(element)));
}

inline CUtensorMapSwizzle driver_swizzle(int bytes) {
    switch (bytes) {
        case 0:
            return CU_TENSOR_MAP_SWIZZLE_NONE;
        case 32:
            return CU_TENSOR_MAP_SWIZZLE_32B;
        case 64:
            return CU_TENSOR_MAP_SWIZZLE_64B;
        case 128:
            return CU_TENSOR_MAP_SWIZZLE_128B;
        default:
            throw invalid_argument(str_cat("imbrex: a swizzle is 0, 32, 64 or 128 bytes wide, not ", bytes));
    }
}

inline int bytes_of(tensor_map_element element) {
    switch (element) {
        case tensor_map_element::uint8:
            return 1;
        case tensor_map_element::uint16:
        case tensor_map_element::float16:
        case tensor_map_element::bfloat16:
            return 2;
        default:
            return 4;
    }
}

// L2 promotion: the bytes that are fetched into L2 at a time. If rows are far apart, or copied in steps, it is no more
// than one copy takes of each row: the neighbouring bytes may be evicted before their use. For rows of 256 bytes that
// are copied in two halves, memory delivers 4,390 GB/s by halves and 4,240 as a whole. (Measured with decode from KV
// caches of 8-bit and 16-bit elements; for weights with small M, 3.92 instead of 3.79 TB/s.)
inline CUtensorMapL2promotion driver_promotion(const tensor_map_parameters& tensor) {
    const auto bytes = static_cast<std::uint64_t>(bytes_of(tensor.element));
    const bool narrowly =
        tensor.narrow_l2_promotion || (tensor.rank > 1 && tensor.strides_bytes[0] > tensor.extents[0] * bytes);
    const std::uint64_t copied = std::min<std::uint64_t>(tensor.box[0], tensor.extents[0]) * bytes;
    return !narrowly || copied >= 256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
           : copied >= 128            ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                      : CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
}

template <class T>
std::string list_of(const T* values, int count) {
    std::string list;
    for (int i = 0; i < count; ++i) list += (i > 0 ? " x " : "") + std::to_string(values[i]);
    return list;
}

// False if there is no driver or no device; throws if the driver rejects the tensor.
inline bool encode(tensor_map& map, const tensor_map_parameters& tensor) {
    require(tensor.rank >= 1 && tensor.rank <= 5, "imbrex: a tensor map has 1 to 5 dimensions, not ", tensor.rank);
    const CUtensorMapDataType type = driver_type(tensor.element);
    const CUtensorMapSwizzle swizzle = driver_swizzle(tensor.swizzle_bytes);
    const auto encoder = driver_tensor_map_encoder();
    if (encoder == nullptr) return false;

    static_assert(sizeof(CUtensorMap) == sizeof(tensor_map));
    CUtensorMap encoded;
    const cuuint32_t adjacent[5] = {1, 1, 1, 1, 1};
    const auto ask = [&] {
        return encoder(&encoded, type, static_cast<cuuint32_t>(tensor.rank), tensor.pointer, tensor.extents,
                       tensor.strides_bytes, tensor.box, adjacent, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                       driver_promotion(tensor), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    CUresult status = ask();
    // On the program's first use of the device, cudaFree(nullptr) creates the context that the driver needs.
    if (status == CUDA_ERROR_INVALID_CONTEXT && cudaFree(nullptr) == cudaSuccess) status = ask();
    if (status == CUDA_ERROR_NO_DEVICE || status == CUDA_ERROR_NOT_INITIALIZED) return false;
    if (status != CUDA_SUCCESS) {
        throw cuda_error(str_cat(
            "imbrex: the driver rejects (error ", static_cast<int>(status), ") a tensor map of element kind ",
            static_cast<int>(tensor.element), " at ", tensor.pointer, ", extents ",
            list_of(tensor.extents, tensor.rank), ", strides in bytes ", list_of(tensor.strides_bytes, tensor.rank - 1),
            ", box ", list_of(tensor.box, tensor.rank), ", swizzle ", tensor.swizzle_bytes,
            " bytes; the pointer and strides must be multiples of 16 bytes, the strides below 2^40, the box at most "
            "256 in each dimension and its innermost one at most as wide as the swizzle"));
    }
    std::memcpy(&map, &encoded, sizeof(map));
    return true;
}

}  // namespace imbrex::hw

#endif
