// The file of a cached block: what was written is read, and every damage is noticed.
#include "engine/cache/disk_entry.hpp"

#include "engine/support.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

namespace imbrex::engine::test {

namespace {

const disk_block block{.key = first_key("key"), .parent = first_key("parent"), .group = 3, .tokens = {5, -1, 70000, 2}};

std::vector<std::byte> content(std::size_t size) {
    std::mt19937 random(1);
    std::vector<std::byte> made(size);
    for (std::byte& each : made) each = static_cast<std::byte>(random() & 0xff);
    return made;
}

}  // namespace

TEST_CASE("A file has the block, its tokens and its keys") {
    const auto inside = content(1000);
    const auto file = write_disk_entry(block, {}, inside);
    const disk_entry found = read_disk_entry(file);
    CHECK(found.block == block);
    CHECK(found.block_bytes == 1000);
    CHECK(decode_disk_entry(file, block, {}, 1000) == inside);
}

TEST_CASE("A file that holds another block than expected is refused") {
    const auto file = write_disk_entry(block, {}, content(64));
    for (int part = 0; part < 4; ++part) {
        disk_block other = block;
        if (part == 0) other.key = first_key("other");
        if (part == 1) other.parent = first_key("other");
        if (part == 2) other.group = 0;
        if (part == 3) other.tokens[1] = 4;
        check_error_message("it holds other tokens than its name says",
                            [&] { decode_disk_entry(file, other, {}, 64); });
    }
    check_error_message("a block of 64 bytes; it must have 65", [&] { decode_disk_entry(file, block, {}, 65); });
    const block_codec quantised{.quantised = true, .element = cache_element::bf16};
    check_error_message("a block of 64 bytes", [&] { decode_disk_entry(file, block, quantised, 64); });
}

TEST_CASE("Every changed byte and every length but the right one is noticed") {
    const auto file = write_disk_entry(block, {}, content(40));
    for (std::size_t i = 0; i < file.size(); ++i) {
        CAPTURE(i);
        auto damaged = file;
        damaged[i] ^= std::byte{0x10};
        CHECK_FALSE(error_message_of([&] { read_disk_entry(damaged); }).empty());
        CHECK_FALSE(error_message_of([&] { read_disk_entry(std::span(file).first(i)); }).empty());
    }
    auto longer = file;
    longer.push_back(std::byte{});
    check_error_message("the checksum is wrong", [&] { read_disk_entry(longer); });
    check_error_message("it is not a block of a KV cache", [&] { read_disk_entry(bytes("something else, longer")); });
}

}  // namespace imbrex::engine::test
