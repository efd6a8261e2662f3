// Shared by the engine tests: test data, files built in memory, error messages.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <imbrex/core/error.hpp>
#include <iterator>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

namespace imbrex::engine::test {

// The quick scope runs fewer combinations of tests that take long.
#if defined(IMBREX_FEW_SHAPES)
inline constexpr bool few_combinations = true;
#else
inline constexpr bool few_combinations = false;
#endif

// A file of the shared test data; nothing, with a message, if it is missing.
inline std::optional<std::filesystem::path> shared_file(const std::string& name) {
#ifdef IMBREX_SHARED_MODELS
    const std::filesystem::path path = std::filesystem::path(IMBREX_SHARED_MODELS) / name;
    if (std::filesystem::exists(path)) return path;
#endif
    MESSAGE("skipped: ../shared/models/" << name << " is not there");
    return {};
}

inline std::string content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file.good());
    return {std::istreambuf_iterator<char>(file), {}};
}

inline std::span<const std::byte> bytes(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

// The bytes of a number in a file.
template <class Number>
std::string raw(Number number) {
    std::string text(sizeof number, '\0');
    std::memcpy(text.data(), &number, sizeof number);
    return text;
}

// The message of the imbrex::error that the action throws; empty if it does not throw.
template <class Action>
std::string error_message_of(const Action& action) {
    try {
        action();
    } catch (const imbrex::error& failure) {
        return failure.what();
    }
    return {};
}

// Checks that the action throws imbrex::error with a message that contains `part`; reports the caller's line.
template <class Action>
void check_error_message(const std::string& part, const Action& action,
                         const std::source_location& where = std::source_location::current()) {
    const std::string message = error_message_of(action);
    const bool is_reported = message.find(part) != std::string::npos;
    if (!is_reported) ADD_FAIL_CHECK_AT(where.file_name(), static_cast<int>(where.line()), "error: " << message);
    CHECK(is_reported);
}

// A temporary folder, removed after the test.
class temporary_folder {
  public:
    temporary_folder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "imbrex_engine_XXXXXX").string();
        REQUIRE(::mkdtemp(pattern.data()) != nullptr);
        path_ = pattern;
    }
    ~temporary_folder() { std::filesystem::remove_all(path_); }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    void write(const std::string& name, std::string_view text) const {
        std::ofstream(path_ / name, std::ios::binary) << text;
    }

  private:
    std::filesystem::path path_;
};

}  // namespace imbrex::engine::test
