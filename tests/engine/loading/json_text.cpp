// json_text.hpp is internal to the readers; the smallest reader tests it.
#include "engine/loading/safetensors.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

TEST_CASE("Rejects invalid JSON") {
    const auto read = [](std::string_view text) { return read_shard_index(bytes(text), "index"); };
    CHECK(read(R"({"weight_map":{"a":"b"},"other":[1,{"x":null}]})").at("a") == "b");
    check_error_message("index: key \"a\" is there twice in one object",
                        [&] { read(R"({"weight_map":{"a":"b","a":"c"}})"); });
    CHECK(read(R"({"weight_map":{"a":"b"},"a":{"a":1}})").size() == 1);  // same key in two objects
    check_error_message("index: is not JSON", [&] { read("{"); });
    check_error_message("index: is not JSON", [&] { read(""); });
    check_error_message("index: is not JSON", [&] { read(R"({"weight_map":{"a":"b"}} more)"); });
    check_error_message("index: is not JSON", [&] { read("{\"weight_map\":{\"\xff\":\"b\"}}"); });
    check_error_message("index: is not JSON", [&] { read(R"({"weight_map":1e999})"); });
    check_error_message("nested more than 64 deep", [&] { read("{\"x\":" + std::string(100000, '[')); });
    check_error_message("\"weight_map\" is missing", [&] { read("[1]"); });
}

}  // namespace imbrex::engine::test
