// SHA-256, chained keys and checksums, against published values.
#include "engine/cache/content_key.hpp"

#include "engine/cache/checksum.hpp"
#include "engine/support.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace imbrex::engine::test {

TEST_CASE("SHA-256 of the examples of FIPS 180-4") {
    const auto digits = [](const std::string& text) { return hexadecimal(sha256(bytes(text))); };
    CHECK(digits("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(digits("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(digits("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(digits(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("A key depends on the model and on every token before it") {
    const content_key model = first_key("a model"), other = first_key("another");
    const std::vector<int> tokens{1, 2, 300000}, swapped{2, 1, 300000};
    CHECK(model != other);
    CHECK(next_key(model, tokens) == next_key(model, tokens));
    CHECK(next_key(model, tokens) != next_key(other, tokens));
    CHECK(next_key(model, tokens) != next_key(model, swapped));
    CHECK(next_key(next_key(model, tokens), swapped) != next_key(next_key(model, swapped), swapped));
}

TEST_CASE("XXH64 of published examples") {
    CHECK(checksum::of({}) == 0xef46db3751d8e999);
    CHECK(checksum::of(bytes("a")) == 0xd24ec4f1a98c6e5b);
    CHECK(checksum::of(bytes("abc")) == 0x44bc2cf5ad770999);
    CHECK(checksum::of(bytes("Nobody inspects the spammish repetition")) == 0xfbcea83c8a378bf1);
}

}  // namespace imbrex::engine::test
