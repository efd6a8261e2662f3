// One piece of memory, divided into buffers that follow each other and begin at multiples of 256 bytes: how a workspace is laid out,
// and how many bytes it takes.
//
//     workspace_layout buffers;
//     const std::size_t keys = buffers.add(key_bytes), sums = buffers.add(sum_bytes);       where they begin
//     buffers.bytes()                                                                     of all together
#pragma once

#include <imbrex/core/error.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

class workspace_layout {
  public:
    static constexpr std::size_t alignment = 256;

    std::size_t add(std::size_t bytes) {
        const std::size_t begin = end_;
        end_ += (bytes + alignment - 1) / alignment * alignment;
        return begin;
    }
    std::size_t bytes() const { return end_; }

    // Memory that a caller gives for them; where there are none, he need not.
    void require_given(const void* memory, const char* name) const {
        const auto address = reinterpret_cast<std::uintptr_t>(memory);
        require(end_ == 0 || (address != 0 && address % alignment == 0), name, ": ", memory, "; ", end_,
                " bytes at a multiple of ", alignment, " are needed");
    }

  private:
    std::size_t end_ = 0;
};

}  // namespace imbrex
