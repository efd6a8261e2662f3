#include "engine/loading/safetensors.hpp"

#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

std::string file(std::string_view header, std::string_view data) {
    return raw(std::uint64_t{header.size()}).append(header).append(data);
}

safetensors_file read(std::string_view header, std::string_view data) {
    static std::string kept;  // weights point into it
    kept = file(header, data);
    return read_safetensors(bytes(kept), "file");
}

}  // namespace

TEST_CASE("Reads a safetensors file") {
    const auto result = read(R"({"__metadata__":{"format":"pt"},
        "b":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]},
        "a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},
        "number":{"dtype":"F16","shape":[],"data_offsets":[10,12]},
        "empty":{"dtype":"F32","shape":[0,3],"data_offsets":[12,12]}})",
                             raw(1.5f) + raw(-2.0f) + raw(std::uint16_t{0x3f80}) + raw(std::uint16_t{0x4000}));
    CHECK(result.metadata.at("format") == "pt");
    CHECK(result.weights.all().size() == 4);
    CHECK(to_floats(result.weights.at("a")) == std::vector<float>{1.5f, -2.0f});
    CHECK(to_floats(result.weights.at("b")) == std::vector<float>{1});
    CHECK(to_floats(result.weights.at("number")) == std::vector<float>{2});
    CHECK(result.weights.at("number").shape.empty());
    CHECK(to_floats(result.weights.at("empty")).empty());
    CHECK(result.weights.at("empty").shape == std::vector<std::int64_t>{0, 3});
    CHECK(read("{}", "").weights.all().empty());
    CHECK(read("{}   ", "").weights.all().empty());  // padded with spaces
}

TEST_CASE("Rejects invalid headers") {
    check_error_message("has 7 bytes", [&] { read_safetensors(bytes("1234567"), "file"); });
    const auto with_length = [](std::uint64_t length) { return raw(length) + "{}"; };
    check_error_message("the header's length is 100000001; 100000000 is allowed",
                        [&] { read_safetensors(bytes(with_length(100'000'001)), "file"); });
    check_error_message("the header's length is 18446744073709551615",
                        [&] { read_safetensors(bytes(with_length(~0ull)), "file"); });
    check_error_message("the header's length is 3; only 2 bytes follow",
                        [&] { read_safetensors(bytes(with_length(3)), "file"); });
    check_error_message("does not start with {", [&] { read(" {}", ""); });
    check_error_message("does not start with {", [&] { read("", ""); });
    check_error_message("is not JSON", [&] { read("{\"\xc3\":1}", ""); });
    check_error_message("is not JSON", [&] { read("{\"a\":", ""); });
    check_error_message("key \"a\" is there twice", [&] {
        read(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},
        "a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
             "");
    });
    check_error_message("__metadata__ is an array", [&] { read(R"({"__metadata__":[]})", ""); });
    check_error_message("__metadata__ has 1 under \"a\"", [&] { read(R"({"__metadata__":{"a":1}})", ""); });
}

TEST_CASE("Rejects invalid tensors") {
    const auto one = [](const char* entry, std::string_view data) { read("{\"a\":" + std::string(entry) + "}", data); };
    check_error_message("tensor \"a\": is 1; it must be an object", [&] { one("1", ""); });
    check_error_message("\"dtype\" is missing", [&] { one(R"({"shape":[1],"data_offsets":[0,4]})", "1234"); });
    check_error_message("\"shape\" is missing", [&] { one(R"({"dtype":"F32","data_offsets":[0,4]})", "1234"); });
    check_error_message("\"data_offsets\" is missing", [&] { one(R"({"dtype":"F32","shape":[1]})", "1234"); });
    check_error_message("shape holds -1", [&] { one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", "1234"); });
    check_error_message("shape holds 1.5",
                        [&] { one(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})", "1234"); });
    check_error_message("shape holds 9223372036854775808",
                        [&] { one(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})", "1234"); });
    check_error_message("shape is \"x\"", [&] { one(R"({"dtype":"F32","shape":"x","data_offsets":[0,4]})", "1234"); });
    check_error_message("has 17 dimensions", [&] {
        one(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})", "1234");
    });
    check_error_message("has more than 2^63 - 1 bytes",
                        [&] { one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})", ""); });
    check_error_message("has more than 2^63 - 1 bytes",
                        [&] { one(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})", ""); });
    check_error_message("data_offsets [0, 8] do not span the 4 bytes",
                        [&] { one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})", "12345678"); });
    check_error_message("data_offsets [8, 4] do not span",
                        [&] { one(R"({"dtype":"F32","shape":[1],"data_offsets":[8,4]})", "12345678"); });
    check_error_message("data_offsets has 3 numbers",
                        [&] { one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})", "1234"); });
    check_error_message("its data begin at 4; the data before end at 0",
                        [&] { one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", "12345678"); });
    check_error_message("its data end at 4; the file has 3 bytes of data",
                        [&] { one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", "123"); });
    check_error_message("the tensors end at 4; the file has 5 bytes of data",
                        [&] { one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", "12345"); });
    const auto two = [](const char* first, const char* second) {
        read(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + std::string(first) +
                 R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}",
             "123456789012");
    };
    check_error_message("tensor \"b\": its data begin at 8; the data before end at 4",
                        [&] { two("[0,4]", "[8,12]"); });  // a gap
    check_error_message("tensor \"b\": its data begin at 2; the data before end at 4",
                        [&] { two("[0,4]", "[2,6]"); });  // an overlap
    check_error_message("tensor \"b\": its data begin at 0; the data before end at 4", [&] { two("[0,4]", "[0,4]"); });
}

TEST_CASE("Reads every dtype; one that the engine does not know is bytes") {
    const auto one = [](const std::string& dtype, int size) {
        const std::string entry = "{\"a\":{\"dtype\":\"" + dtype + R"(","shape":[1],"data_offsets":[0,)";
        return read(entry + std::to_string(size) + "]}}", std::string(static_cast<std::size_t>(size), '\x38')).weights;
    };
    CHECK(to_floats(one("F8_E4M3", 1).at("a")) == std::vector<float>{1});
    CHECK(to_floats(one("F8_E5M2", 1).at("a")) == std::vector<float>{0.5f});
    CHECK(to_floats(one("BOOL", 1).at("a")) == std::vector<float>{0x38});
    CHECK(one("I64", 8).at("a").type == weight_type::i64);
    CHECK(one("C64", 8).at("a").shape == std::vector<std::int64_t>{8});
    CHECK(one("C64", 8).at("a").name_in_file == "a of dtype C64");
}

TEST_CASE("Reads the index of a sharded model") {
    const auto index = [](const char* place) {
        return read_shard_index(bytes("{\"weight_map\":{\"a\":" + std::string(place) + "}}"), "index");
    };
    CHECK(index("\"part.safetensors\"").at("a") == "part.safetensors");
    check_error_message("it must lie in the model's folder", [&] { index("\"../part.safetensors\""); });
    check_error_message("it must lie in the model's folder", [&] { index("\"x/../../part.safetensors\""); });
    check_error_message("it must lie in the model's folder", [&] { index("\"/part.safetensors\""); });
    check_error_message("it must lie in the model's folder", [&] { index("\"\""); });
    check_error_message("its file is 3; it must be a string", [&] { index("3"); });
    check_error_message("\"weight_map\" is missing", [&] { read_shard_index(bytes("{}"), "index"); });
    check_error_message("\"weight_map\" is an object",
                        [&] { read_shard_index(bytes(R"({"weight_map":{}})"), "index"); });
}

TEST_CASE("Opens a folder with one file, with shards, and rejects one without") {
    const auto with_tensor = [](const std::string& name, float value) {
        return file("{\"" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", raw(value));
    };
    const temporary_folder folder;
    check_error_message("has neither model.safetensors nor model.safetensors.index.json",
                        [&] { open_safetensors(folder.path()); });
    folder.write("model.safetensors", with_tensor("a", 1));
    CHECK(to_floats(open_safetensors(folder.path()).at("a")) == std::vector<float>{1});
    CHECK(to_floats(open_safetensors(folder.path() / "model.safetensors").at("a")) == std::vector<float>{1});

    folder.write("model.safetensors.index.json", R"({"weight_map":{"b":"1.safetensors","c":"2.safetensors"}})");
    folder.write("1.safetensors", with_tensor("b", 2));
    check_error_message("2.safetensors: cannot be opened", [&] { open_safetensors(folder.path()); });
    folder.write("2.safetensors", with_tensor("c", 3));
    const weight_set both = open_safetensors(folder.path());
    CHECK(both.all().size() == 2);
    CHECK(to_floats(both.at("c")) == std::vector<float>{3});
    CHECK(both.find("a") == nullptr);

    folder.write("2.safetensors", with_tensor("b", 3));
    check_error_message("tensor \"c\" is said to be in 2.safetensors, which does not have it",
                        [&] { open_safetensors(folder.path()); });
    folder.write("model.safetensors.index.json", R"({"weight_map":{"b":"1.safetensors","c":"2.safetensors"}})");
    folder.write("2.safetensors", file(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
        "c":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                       "12345678"));
    check_error_message("tensor \"b\" is there twice", [&] { open_safetensors(folder.path()); });
}

}  // namespace imbrex::engine::test
