// The file of a cached block. All numbers are little-endian.
//
//   "imbrexKV"  version u32   codec u32   checksum u64 of all that follows
//   key 32 bytes   key of the block before it 32 bytes   group u32   tokens u32   bytes of the block u64
//   the tokens, u32 each   the block (block_codec.hpp)
//
// The keys and tokens are compared with those of the prompt, so that an entry is never taken for another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/block_codec.hpp"
#include "engine/cache/content_key.hpp"

namespace imbrex::engine {

// What a block holds.
struct disk_block {
    content_key key{}, parent{};
    int group = 0;
    std::vector<int> tokens{};

    bool operator==(const disk_block&) const = default;
};

struct disk_entry {
    disk_block block{};
    cache_compression compression = cache_compression::none;
    bool quantised = false;
    std::uint64_t block_bytes = 0;
    std::span<const std::byte> content{};  // of the file
};

std::vector<std::byte> write_disk_entry(const disk_block& block, const block_codec& codec,
                                        std::span<const std::byte> content);

// Throws imbrex::error if the bytes are damaged, incomplete or of another version.
disk_entry read_disk_entry(std::span<const std::byte> file);

// The content of a file with this block in this many bytes, or imbrex::error.
std::vector<std::byte> decode_disk_entry(std::span<const std::byte> file, const disk_block& expected,
                                         const block_codec& codec, std::size_t block_bytes);

}  // namespace imbrex::engine
