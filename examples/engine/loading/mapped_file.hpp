// A file in memory, read-only. Weights are not read but mapped: a model of many gigabytes is open at once, its pages come as
// they are used, and two programs that have the same model open share them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace imbrex::engine {

class mapped_file {
  public:
    explicit mapped_file(const std::filesystem::path& path);
    ~mapped_file();
    mapped_file(const mapped_file&) = delete;
    mapped_file& operator=(const mapped_file&) = delete;

    std::span<const std::byte> bytes() const { return bytes_; }
    const std::string& name() const { return name_; }

  private:
    std::string name_;
    std::span<const std::byte> bytes_;
};

// What the readers take: bytes, and the name that their sentences use. Who owns the bytes is the caller's matter.
inline std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace imbrex::engine
