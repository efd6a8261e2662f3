// An array of one element type in the memory of a world.
#pragma once

#include <imbrex/hw/world_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

template <class T>
class world_buffer {
  public:
    world_buffer() = default;
    world_buffer(world where, std::int64_t count) : memory_(where, static_cast<std::size_t>(count) * sizeof(T)) {}
    world_buffer(world where, const std::vector<T>& values)
        : world_buffer(where, static_cast<std::int64_t>(values.size())) {
        write(0, values);
    }

    T* data() const { return memory_.template at<T>(); }
    std::int64_t size() const { return static_cast<std::int64_t>(memory_.bytes() / sizeof(T)); }
    const world_memory& memory() const { return memory_; }

    void write(std::int64_t first, std::span<const T> values) {
        memory_.write(static_cast<std::size_t>(first) * sizeof(T), values.data(), values.size_bytes());
    }
    std::vector<T> read(std::int64_t count, void* stream = nullptr) const {
        std::vector<T> values(static_cast<std::size_t>(count));
        memory_.read(0, values.data(), values.size() * sizeof(T), stream);
        return values;
    }

  private:
    world_memory memory_;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
