// Cached blocks as files: restart, budget, damage, a second process, a full disk, threads.
#include "engine/cache/disk_level.hpp"

#include "engine/support.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace imbrex::engine::test {

namespace {

constexpr std::size_t block_bytes = 1000;

disk_block block_number(int number) {
    const content_key parent = first_key("before " + std::to_string(number));
    return {.key = next_key(parent, std::vector{number}), .parent = parent, .group = number % 2, .tokens = {number}};
}

std::vector<std::byte> content_of(int number) {
    return std::vector<std::byte>(block_bytes, static_cast<std::byte>(number));
}

// Writes these blocks and waits.
void write(disk_level& level, const std::vector<int>& numbers) {
    std::vector<std::vector<std::byte>> contents;
    for (const int number : numbers) contents.push_back(content_of(number));
    for (std::size_t i = 0; i < numbers.size(); ++i)
        level.write_later(numbers[i], block_number(numbers[i]), contents[i]);
    level.flush();
}

bool has(const disk_level& level, int number) {
    return level.has(block_number(number).key, block_number(number).group);
}

// Waits for the contents of these blocks.
std::shared_ptr<disk_read> read(disk_level& level, const std::vector<int>& numbers) {
    std::vector<disk_block> blocks;
    for (const int number : numbers) blocks.push_back(block_number(number));
    const auto made = level.reader().read(blocks, std::vector<std::size_t>(numbers.size(), block_bytes));
    while (!level.reader().wait(std::chrono::seconds(1), [&] { return made->ended(); })) {}
    level.flush();  // of files that are removed
    return made;
}

bool reads(disk_level& level, int number) {
    const auto found = read(level, {number})->content(block_number(number).key, number % 2);
    return found && *found == content_of(number);
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& directory, const char* extension = ".kv") {
    std::vector<std::filesystem::path> files;
    for (const auto& each : std::filesystem::recursive_directory_iterator(directory)) {
        if (each.path().extension() == extension) files.push_back(each.path());
    }
    return files;
}

std::int64_t bytes_of(const std::filesystem::path& directory) {
    std::int64_t all = 0;
    for (const auto& each : files_of(directory)) all += static_cast<std::int64_t>(std::filesystem::file_size(each));
    return all;
}

disk_level_options in(const temporary_folder& folder, std::int64_t bytes = 1 << 20) {
    return {.directory = folder.path() / "cache", .bytes = bytes};
}

bool is_reported(disk_level& level, const std::string& part) {
    const auto messages = level.take_messages();
    return std::ranges::any_of(messages, [&](const std::string& each) { return each.find(part) != each.npos; });
}

}  // namespace

TEST_CASE("Blocks are found again, also by the next process") {
    const temporary_folder folder;
    {
        disk_level level(in(folder));
        CHECK_FALSE(has(level, 1));
        CHECK_FALSE(reads(level, 1));
        write(level, {1, 2});
        CHECK(has(level, 1));
        CHECK(level.has_any(block_number(1).key));
        CHECK_FALSE(level.has(block_number(1).key, 0));
        CHECK(reads(level, 2));
        CHECK(level.counts().saved_blocks == 2);
        CHECK(level.counts().held_bytes == bytes_of(folder.path()));
        CHECK(level.take_messages().empty());
    }
    disk_level again(in(folder));
    CHECK(has(again, 1));
    CHECK(reads(again, 1));
    CHECK(reads(again, 2));
    CHECK(again.counts().held_bytes == bytes_of(folder.path()));
}

TEST_CASE("The budget is kept: what was used longest ago leaves, also after a restart") {
    const temporary_folder folder;
    const std::int64_t three = 3 * 1150;
    {
        disk_level level(in(folder, three));
        write(level, {1, 2, 3});
        CHECK(reads(level, 1));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // file times are coarse
        write(level, {4});
        CHECK(has(level, 1));
        CHECK_FALSE(has(level, 2));
        CHECK_FALSE(reads(level, 2));
        CHECK(level.counts().evicted_blocks == 1);
        CHECK(bytes_of(folder.path()) <= three);
    }
    disk_level smaller(in(folder, 1150));
    CHECK(files_of(folder.path()).size() == 1);
    CHECK(reads(smaller, 4));
    disk_level tiny({.directory = folder.path() / "tiny", .bytes = 100});
    write(tiny, {1});
    CHECK_FALSE(has(tiny, 1));
    CHECK(tiny.counts().lost_blocks == 1);
}

TEST_CASE("Damaged files are reported, removed and never used") {
    const temporary_folder folder;
    disk_level level(in(folder));
    for (const int kind : {0, 1, 2, 3}) {
        CAPTURE(kind);
        write(level, {7});
        const auto path = files_of(folder.path()).front();
        if (kind == 0) std::filesystem::resize_file(path, 500);
        if (kind == 1) std::filesystem::resize_file(path, 0);
        if (kind == 2) std::ofstream(path, std::ios::binary | std::ios::in).seekp(600).put('x');
        if (kind == 3) {
            write(level, {9});
            for (const auto& other : files_of(folder.path())) {
                if (other != path)
                    std::filesystem::copy_file(other, path, std::filesystem::copy_options::overwrite_existing);
            }
        }
        CHECK_FALSE(reads(level, 7));
        CHECK_FALSE(has(level, 7));
        CHECK_FALSE(std::filesystem::exists(path));
        CHECK(is_reported(level, "it is removed"));
        CHECK(level.counts().damaged_blocks == kind + 1);
    }
}

TEST_CASE("A file that another process removed is a miss, without a message") {
    const temporary_folder folder;
    disk_level level(in(folder));
    write(level, {7});
    std::filesystem::remove(files_of(folder.path()).front());
    CHECK_FALSE(reads(level, 7));
    CHECK_FALSE(has(level, 7));
    CHECK(level.take_messages().empty());
}

TEST_CASE("A second process only reads") {
    const temporary_folder folder;
    auto first = std::make_unique<disk_level>(in(folder));
    write(*first, {1, 2});
    disk_level second(in(folder, 10));
    CHECK(is_reported(second, "another process writes"));
    CHECK(reads(second, 1));
    write(second, {3});
    CHECK_FALSE(has(second, 3));
    std::filesystem::resize_file(files_of(folder.path()).front(), 10);
    std::filesystem::resize_file(files_of(folder.path()).back(), 10);
    CHECK_FALSE(reads(second, 1));
    CHECK(is_reported(second, "it is ignored"));
    CHECK(files_of(folder.path()).size() == 2);
    first.reset();
    disk_level third(in(folder));
    write(third, {3});
    CHECK(has(third, 3));
}

TEST_CASE("Unfinished files are removed, unknown ones are left alone") {
    const temporary_folder folder;
    {
        disk_level level(in(folder));
        write(level, {1});
    }
    const auto path = files_of(folder.path()).front();
    std::ofstream(path.string() + ".tmp") << "half";
    std::ofstream(path.parent_path() / "notes.txt") << "mine";
    std::ofstream(path.parent_path() / "zz.0.kv") << "mine";
    disk_level again(in(folder));
    CHECK(reads(again, 1));
    CHECK(files_of(folder.path(), ".tmp").empty());
    CHECK(std::filesystem::exists(path.parent_path() / "notes.txt"));
    CHECK(std::filesystem::exists(path.parent_path() / "zz.0.kv"));
}

TEST_CASE("A directory that cannot be used is reported") {
    const temporary_folder folder;
    folder.write("file", "not a directory");
    disk_level level({.directory = folder.path() / "file", .bytes = 1000});
    CHECK(is_reported(level, "cannot be made"));
    write(level, {1});
    CHECK_FALSE(has(level, 1));
    check_error_message("cache-disk: 0 bytes; it must be positive", [&] { disk_level({.directory = folder.path()}); });
    check_error_message("cache-dir: none", [] { disk_level({.bytes = 10}); });
}

TEST_CASE("On a full disk nothing more is written, and what is there is read") {
    const temporary_folder folder;
    disk_level level(in(folder));
    write(level, {1});
    // A limit of the size of files acts as a full disk: a write ends half way.
    rlimit before;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto old = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit full{.rlim_cur = 500, .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &full) == 0);
    write(level, {2, 3});
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, old);

    CHECK(is_reported(level, "nothing more is written"));
    CHECK_FALSE(level.writes());
    CHECK(files_of(folder.path(), ".tmp").empty());
    CHECK(level.counts().lost_blocks >= 1);  // the second one only if it was queued before the first failed
    CHECK(reads(level, 1));
    write(level, {4});
    CHECK_FALSE(has(level, 4));
}

TEST_CASE("A cancelled block is not written, and its bytes are free") {
    const temporary_folder folder;
    disk_level level(in(folder));
    std::int64_t kept = 0;
    for (int i = 0; i < 200; ++i) {
        auto content = std::make_unique<std::vector<std::byte>>(content_of(i));
        level.write_later(i, block_number(i), *content);
        if (level.cancel(i)) {
            content.reset();
        } else {
            level.flush();
            ++kept;
        }
    }
    level.flush();
    const level_counts counts = level.counts();
    CHECK(counts.lost_blocks + counts.saved_blocks == 200);
    CHECK(counts.saved_blocks >= kept);
    for (int i = 0; i < 200; ++i) CHECK(has(level, i) == reads(level, i));
}

TEST_CASE("Reads and writes at the same time") {
    const temporary_folder folder;
    disk_level level(in(folder, 40 * 1150));
    std::vector<std::vector<std::byte>> contents;
    for (int i = 0; i < 100; ++i) contents.push_back(content_of(i));
    for (int round = 0; round < 5; ++round) {
        for (int i = 0; i < 100; ++i) level.write_later(i, block_number(i), contents[static_cast<std::size_t>(i)]);
        std::vector<int> wanted(100);
        std::iota(wanted.begin(), wanted.end(), 0);
        const auto found = read(level, wanted);
        for (const int i : wanted) {
            const disk_content one = found->content(block_number(i).key, i % 2);
            CHECK((!one || *one == content_of(i)));
        }
    }
    level.flush();
    CHECK(level.take_messages().empty());
    CHECK(bytes_of(folder.path()) == level.counts().held_bytes);
    CHECK(level.counts().held_bytes <= 40 * 1150);
}

}  // namespace imbrex::engine::test
