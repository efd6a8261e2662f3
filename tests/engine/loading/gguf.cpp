#include "engine/loading/gguf.hpp"

#include "engine/loading/gguf_builder.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

gguf_file read(const gguf_builder& builder) {
    static std::string kept;  // weights point into it
    kept = builder.build();
    return read_gguf(bytes(kept), "file");
}

std::string header(std::uint64_t tensors, std::uint64_t keys) {
    return "GGUF" + raw(std::uint32_t{3}) + raw(tensors) + raw(keys);
}

void read_text(const std::string& text) {
    read_gguf(bytes(text), "file");
}

}  // namespace

TEST_CASE("Reads GGUF values of all types") {
    for (const std::uint32_t version : {2u, 3u}) {
        gguf_builder builder;
        builder.version = version;
        builder.value("u8", 0, raw(std::uint8_t{200})).value("i8", 1, raw(std::int8_t{-3}));
        builder.value("u16", 2, raw(std::uint16_t{60000})).value("i16", 3, raw(std::int16_t{-300}));
        builder.whole("u32", 4000000000u).value("i32", 5, raw(std::int32_t{-70000}));
        builder.real("f32", 0.5f).truth("yes", true).string("text", "w\xc3\xb6rd");
        builder.value("u64", 10, raw(~std::uint64_t{0})).value("i64", 11, raw(std::int64_t{-5}));
        builder.value("f64", 12, raw(0.25));
        builder.strings("texts", {"a", "", "b"})
            .numbers<float>("reals", 6, {1, 2})
            .numbers<std::int32_t>("wholes", 5, {-1, 7});
        const gguf_metadata metadata = read(builder).metadata;
        CHECK(metadata.whole("u8") == 200);
        CHECK(metadata.whole("i8") == -3);
        CHECK(metadata.whole("u16") == 60000);
        CHECK(metadata.whole("i16") == -300);
        CHECK(metadata.whole("u32") == 4000000000);
        CHECK(metadata.whole("i32") == -70000);
        CHECK(metadata.whole("i64") == -5);
        CHECK(metadata.real("f32") == 0.5);
        CHECK(metadata.real("f64") == 0.25);
        CHECK(metadata.truth("yes") == true);
        CHECK(metadata.text("text") == "w\xc3\xb6rd");
        CHECK(*metadata.texts("texts") == std::vector<std::string>{"a", "", "b"});
        CHECK(*metadata.reals("reals") == std::vector<double>{1, 2});
        CHECK(*metadata.wholes("wholes") == std::vector<std::int64_t>{-1, 7});
        CHECK_FALSE(metadata.whole("none"));
        CHECK(metadata.texts("none") == nullptr);
        check_error_message("file: u64 is beyond 2^63 - 1", [&] { metadata.whole("u64"); });
        check_error_message("file: text must be a whole number", [&] { metadata.whole("text"); });
        check_error_message("file: yes must be a whole number", [&] { metadata.whole("yes"); });
        check_error_message("file: u8 must be a floating-point number", [&] { metadata.real("u8"); });
        check_error_message("file: u8 must be true or false", [&] { metadata.truth("u8"); });
        check_error_message("file: texts must be a string", [&] { metadata.text("texts"); });
        check_error_message("file: wholes must be an array of strings", [&] { metadata.texts("wholes"); });
        check_error_message("file: texts must be an array of whole numbers", [&] { metadata.wholes("texts"); });
        check_error_message("file: text must be an array of floating-point numbers", [&] { metadata.reals("text"); });
    }
}

TEST_CASE("Reads GGUF tensors") {
    gguf_builder builder;
    builder.alignment = 64;
    builder.whole("general.alignment", 64).floats("a", {3, 2}).floats("b", {1}, 9);
    builder.tensor("q", {32, 2}, 8, 128);
    builder.data.resize(128);
    builder.data += std::string(68, '\1');
    const gguf_file file = read(builder);
    CHECK(file.weights.at("a").shape == std::vector<std::int64_t>{2, 3});  // outermost first
    CHECK(to_floats(file.weights.at("a")) == std::vector<float>{0, 1, 2, 3, 4, 5});
    CHECK(to_floats(file.weights.at("b")) == std::vector<float>{9});
    CHECK(file.weights.at("q").type == weight_type::q8_0);
    CHECK(file.weights.at("q").bytes.size() == 68);
}

TEST_CASE("Rejects invalid GGUF headers") {
    gguf_builder builder;
    check_error_message("file: does not begin with GGUF", [&] { read_text(""); });
    builder.magic = "GGML";
    check_error_message("file: does not begin with GGUF", [&] { read(builder); });
    builder.magic = "GGUF";
    for (const std::uint32_t version : {0u, 1u, 4u, 65537u}) {
        builder.version = version;
        check_error_message("; 2 and 3 can be read", [&] { read(builder); });
    }
    builder.version = 3u << 24;
    check_error_message("is big-endian", [&] { read(builder); });
    check_error_message("ends at byte 5, within the version", [&] { read_text("GGUF\3"); });
    check_error_message("ends at byte 10, within the number of tensors", [&] { read_text("GGUF" + raw(3u) + "12"); });
    check_error_message("the number of tensors at byte 8 is 1000", [&] { read_text(header(1000, 0)); });
    check_error_message("the number of tensors at byte 8 is 18446744073709551615",
                        [&] { read_text(header(~0ull, 0)); });
    check_error_message("the number of keys at byte 16 is 1000", [&] { read_text(header(0, 1000)); });
    check_error_message("the number of keys at byte 16 is 9223372036854775808",
                        [&] { read_text(header(0, 1ull << 63)); });
}

TEST_CASE("Rejects invalid GGUF keys and values") {
    const auto with = [](std::string_view key, std::uint32_t type, const std::string& content) {
        read(gguf_builder{}.value(key, type, content));
    };
    check_error_message("a key is empty", [&] { with("", 0, "1"); });
    check_error_message("key \"a\" is there twice", [&] { read(gguf_builder{}.whole("a", 1).whole("a", 2)); });
    check_error_message("key \"a\": value type 13; 0 to 12 are known", [&] { with("a", 13, "1"); });
    check_error_message("key \"a\": a truth is 2", [&] { with("a", 7, "\2"); });
    check_error_message("within a value", [&] { with("a", 4, "12"); });
    check_error_message("a string's length at byte", [&] { with("a", 8, raw(std::uint64_t{5}) + "1234"); });
    check_error_message("a string's length at byte", [&] { with("a", 8, raw(~std::uint64_t{0}) + "1234"); });
    check_error_message("a key's length at byte 24 is 100",
                        [&] { read_text(header(0, 1) + raw(std::uint64_t{100}) + "123456789"); });
    check_error_message("key \"a\": an array of arrays is not allowed",
                        [&] { with("a", 9, raw(9u) + raw(std::uint64_t{0})); });
    check_error_message("key \"a\": value type 99", [&] { with("a", 9, raw(99u) + raw(std::uint64_t{0})); });
    check_error_message("an array's length at byte", [&] { with("a", 9, raw(4u) + raw(std::uint64_t{2}) + "1234"); });
    check_error_message("an array's length at byte",
                        [&] { with("a", 9, raw(4u) + raw(std::uint64_t{1} << 62) + "1234"); });
    check_error_message("an array's length at byte",
                        [&] { with("a", 9, raw(8u) + raw(std::uint64_t{2}) + raw(std::uint64_t{0})); });
    check_error_message("a string's length",
                        [&] { with("a", 9, raw(8u) + raw(std::uint64_t{1}) + raw(std::uint64_t{9})); });
    for (const std::uint32_t alignment : {0u, 3u, 48u, 131072u, 1u << 31}) {
        check_error_message("a power of two up to 65536 is allowed",
                            [&] { read(gguf_builder{}.whole("general.alignment", alignment)); });
    }
    check_error_message("general.alignment must be a whole number",
                        [&] { read(gguf_builder{}.string("general.alignment", "32")); });
}

TEST_CASE("Rejects invalid GGUF tensors") {
    const auto with = [](const std::vector<std::int64_t>& dimensions, std::uint32_t type, std::uint64_t offset,
                         std::size_t size = 64) {
        gguf_builder builder;
        builder.tensor("a", dimensions, type, offset).data = std::string(size, '\0');
        read(builder);
    };
    with({4}, 0, 32);
    with({4, 1, 2, 1}, 0, 0);
    check_error_message("tensor \"a\": it has 5 dimensions; 1 to 4 are allowed", [&] { with({1, 1, 1, 1, 1}, 0, 0); });
    check_error_message("tensor \"a\": it has 0 dimensions", [&] { with({}, 0, 0); });
    check_error_message("tensor \"a\": dimension 1 is 0", [&] { with({4, 0}, 0, 0); });
    check_error_message("tensor \"a\": dimension 0 is -4", [&] { with({-4}, 0, 0); });
    const std::int64_t large = std::int64_t{1} << 32;
    check_error_message("has more than 2^63 - 1 bytes", [&] { with({large, large}, 0, 0); });
    check_error_message("has more than 2^63 - 1 bytes", [&] { with({large, large / 4}, 0, 0); });
    check_error_message("has more than 2^63 - 1 bytes", [&] { with({large, large, large, large}, 0, 0); });
    check_error_message("tensor \"a\": its type is IQ2_XS; F32,", [&] { with({256}, 17, 0); });
    check_error_message("Convert the original model to one of them, for example Q4_K_M", [&] { with({256}, 34, 0); });
    check_error_message("its type is 4294967295;", [&] { with({4}, ~0u, 0); });
    check_error_message("its rows of 128 elements are not whole blocks of 256", [&] { with({128, 2}, 12, 0); });
    check_error_message("its rows of 33 elements are not whole blocks of 32", [&] { with({33, 2}, 8, 0); });
    check_error_message("its offset is 8; it must be a multiple of 32", [&] { with({4}, 0, 8); });
    check_error_message("its 16 bytes at offset 64 lie beyond the file's 64 bytes of data", [&] { with({4}, 0, 64); });
    check_error_message("its 16 bytes at offset 18446744073709551584 lie beyond",
                        [&] { with({4}, 0, ~std::uint64_t{31}); });
    check_error_message("its 68 bytes at offset 0 lie beyond", [&] { with({17}, 0, 0); });
    check_error_message("its 16 bytes at offset 0 lie beyond the file's 15 bytes", [&] { with({4}, 0, 0, 15); });
    check_error_message("its 16 bytes at offset 0 lie beyond the file's 0 bytes", [&] { with({4}, 0, 0, 0); });

    gguf_builder twice;
    twice.floats("a", {4}).floats("a", {4});
    check_error_message("tensor \"a\" is there twice", [&] { read(twice); });
    gguf_builder overlapping;
    overlapping.tensor("b", {4}, 0, 32).tensor("a", {16}, 0, 0).data = std::string(64, '\0');
    check_error_message("tensors \"a\" and \"b\" overlap", [&] { read(overlapping); });
    gguf_builder nameless;
    nameless.floats("", {4});
    check_error_message("a tensor's name is empty", [&] { read(nameless); });
    check_error_message("a tensor name's length",
                        [&] { read_text(header(1, 0) + raw(std::uint64_t{1000}) + std::string(40, 'x')); });
    check_error_message("a tensor's dimensions", [&] {
        read_text(header(1, 0) + raw(std::uint64_t{1}) + "x" + raw(4u) + std::string(24, '\1'));
    });
}

TEST_CASE("Rejects every truncated GGUF file") {
    const std::string whole = gguf_builder{}.whole("a", 1).strings("b", {"x", "yz"}).floats("t", {4, 2}).build();
    read_text(whole);
    for (std::size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        CHECK(error_message_of([&] { read_text(whole.substr(0, size)); }).starts_with("file: "));
    }
}

}  // namespace imbrex::engine::test
