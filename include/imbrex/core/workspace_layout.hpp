// Divides one allocation (a workspace) into buffers, each aligned to 256 bytes, and computes its size.
//
//     workspace_layout buffers;
//     const std::size_t keys = buffers.add(key_bytes), sums = buffers.add(sum_bytes);   // byte offsets
//     buffers.bytes()                                                                   // of the whole workspace
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/error.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

class workspace_layout {
  public:
    static constexpr std::size_t alignment = 256;

    std::size_t add(std::size_t bytes) {
        const std::size_t begin = end_;
        end_ += ceil_div(bytes, alignment) * alignment;
        return begin;
    }
    std::size_t bytes() const { return end_; }

    // Checks the workspace that the caller passes. It may be null if the layout is empty.
    void require_given(const void* memory, const char* name) const {
        const auto address = reinterpret_cast<std::uintptr_t>(memory);
        require(end_ == 0 || (address != 0 && address % alignment == 0), name, ": ", memory, "; ", end_,
                " bytes at a multiple of ", alignment, " are needed");
    }

  private:
    std::size_t end_ = 0;
};

}  // namespace imbrex
