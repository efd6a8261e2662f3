#include "engine/cache/disk_entry.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "engine/cache/checksum.hpp"

namespace imbrex::engine {

namespace {

constexpr std::string_view magic = "imbrexKV";
constexpr std::uint32_t version = 1, quantised_bit = 4;
constexpr std::size_t checksum_at = 16, checked_from = 24;

template <class Number>
void put(std::vector<std::byte>& to, Number value) {
    for (std::size_t i = 0; i < sizeof value; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
}

// Takes parts off the front.
class file_reader {
  public:
    explicit file_reader(std::span<const std::byte> left) : left_(left) {}

    std::span<const std::byte> take(std::size_t bytes) {
        require(bytes <= left_.size(), "the file ends too early");
        const auto part = left_.first(bytes);
        left_ = left_.subspan(bytes);
        return part;
    }
    template <class Number>
    Number number() {
        Number value = 0;
        const auto part = take(sizeof value);
        for (std::size_t i = 0; i < sizeof value; ++i)
            value |= static_cast<Number>(static_cast<Number>(part[i]) << (8 * i));
        return value;
    }
    content_key key() {
        content_key made;
        std::memcpy(made.data(), take(made.size()).data(), made.size());
        return made;
    }
    std::span<const std::byte> rest() const { return left_; }

  private:
    std::span<const std::byte> left_;
};

}  // namespace

std::vector<std::byte> write_disk_entry(const disk_block& block, const block_codec& codec,
                                        std::span<const std::byte> content) {
    std::vector<std::byte> file(magic.size());
    std::memcpy(file.data(), magic.data(), magic.size());
    put(file, version);
    put(file, static_cast<std::uint32_t>(codec.compression) | (codec.quantised ? quantised_bit : 0));
    put(file, std::uint64_t{0});
    for (const content_key* key : {&block.key, &block.parent}) {
        for (const std::uint8_t byte : *key) file.push_back(static_cast<std::byte>(byte));
    }
    put(file, static_cast<std::uint32_t>(block.group));
    put(file, static_cast<std::uint32_t>(block.tokens.size()));
    put(file, static_cast<std::uint64_t>(content.size()));
    for (const int token : block.tokens) put(file, static_cast<std::uint32_t>(token));
    const std::vector<std::byte> encoded = codec.encode(content);
    file.insert(file.end(), encoded.begin(), encoded.end());

    std::vector<std::byte> sum;
    put(sum, checksum::of(std::span(file).subspan(checked_from)));
    std::ranges::copy(sum, file.begin() + checksum_at);
    return file;
}

disk_entry read_disk_entry(std::span<const std::byte> bytes) {
    file_reader file(bytes);
    const auto name = file.take(magic.size());
    require(std::memcmp(name.data(), magic.data(), magic.size()) == 0, "it is not a block of a KV cache");
    const auto written = file.number<std::uint32_t>();
    require(written == version, "version ", written, "; this program reads version ", version);
    const auto codec = file.number<std::uint32_t>();
    const auto sum = file.number<std::uint64_t>();
    require(sum == checksum::of(file.rest()), "the checksum is wrong: the file is damaged");
    require((codec & ~(3u | quantised_bit)) == 0 && (codec & 3u) <= 2, "codec ", codec, "; it is not known");
    disk_entry made{.compression = static_cast<cache_compression>(codec & 3u),
                    .quantised = (codec & quantised_bit) != 0};
    made.block.key = file.key();
    made.block.parent = file.key();
    made.block.group = static_cast<int>(file.number<std::uint32_t>());
    const auto tokens = file.number<std::uint32_t>();
    made.block_bytes = file.number<std::uint64_t>();
    require(tokens <= file.rest().size() / 4, "the file ends too early");
    for (std::uint32_t i = 0; i < tokens; ++i)
        made.block.tokens.push_back(static_cast<int>(file.number<std::uint32_t>()));
    made.content = file.rest();
    return made;
}

std::vector<std::byte> decode_disk_entry(std::span<const std::byte> file, const disk_block& expected,
                                         const block_codec& codec, std::size_t block_bytes) {
    const disk_entry found = read_disk_entry(file);
    require(found.block == expected, "it holds other tokens than its name says");
    require(found.block_bytes == block_bytes && found.quantised == codec.quantised, "a block of ", found.block_bytes,
            " bytes; it must have ", block_bytes);
    block_codec how = codec;
    how.compression = found.compression;
    how.check();
    return how.decode(found.content, block_bytes);
}

}  // namespace imbrex::engine
