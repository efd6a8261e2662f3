// A read-only memory-mapped file. A model of many gigabytes opens at once, pages load on first use, and processes that
// open the same model share them.
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

    // Takes the pages of these bytes from the memory of the process; they are read again on the next use. Does nothing
    // for bytes that are not part of a mapped file.
    static void drop_pages(std::span<const std::byte> bytes);

    // From now on, reading a mapped file that was truncated, or whose disk fails, ends the process with exit code 1 and
    // a message that names the file, not with SIGBUS alone.
    static void report_failed_reads();

  private:
    std::string name_;
    std::span<const std::byte> bytes_;
};

// Input of the readers: bytes (not owned), and the file name for error messages.
inline std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace imbrex::engine
