#include "engine/cache/content_key.hpp"

#include <bit>
#include <vector>

namespace imbrex::engine {

namespace {

using word = std::uint32_t;

// FIPS 180-4: the first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr std::array<word, 64> round_constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

word big_endian(const std::byte* from) {
    word value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<word>(from[i]);
    return value;
}

void compress(std::array<word, 8>& state, const std::byte* block) {
    std::array<word, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
    for (std::size_t i = 16; i < 64; ++i) {
        const word s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
        const word s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t i = 0; i < 64; ++i) {
        const word s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
        const word t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
        const word s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
        const word t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<word, 8> added{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state[i] += added[i];
}

}  // namespace

content_key sha256(std::span<const std::byte> bytes) {
    std::array<word, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                              0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
    for (; bytes.size() >= 64; bytes = bytes.subspan(64)) compress(state, bytes.data());
    std::array<std::byte, 128> last{};
    if (!bytes.empty()) std::memcpy(last.data(), bytes.data(), bytes.size());
    last[bytes.size()] = std::byte{0x80};
    const std::size_t length = bytes.size() < 56 ? 64 : 128;
    for (std::size_t i = 0; i < 8; ++i) last[length - 1 - i] = static_cast<std::byte>(bits >> (8 * i) & 0xff);
    for (std::size_t at = 0; at < length; at += 64) compress(state, last.data() + at);
    content_key result;
    for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
    return result;
}

content_key first_key(std::string_view description) {
    return sha256(std::as_bytes(std::span(description)));
}

content_key next_key(const content_key& parent, std::span<const int> tokens) {
    std::vector<std::byte> all(parent.size() + 4 * tokens.size());
    std::memcpy(all.data(), parent.data(), parent.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        for (std::size_t byte = 0; byte < 4; ++byte)
            all[parent.size() + 4 * i + byte] =
                static_cast<std::byte>(static_cast<std::uint32_t>(tokens[i]) >> (8 * byte) & 0xff);
    }
    return sha256(all);
}

std::string hexadecimal(const content_key& key) {
    std::string text;
    for (const std::uint8_t byte : key) {
        for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
    }
    return text;
}

}  // namespace imbrex::engine
