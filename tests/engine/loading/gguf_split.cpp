#include "engine/loading/gguf_split.hpp"

#include "engine/loading/model_files.hpp"
#include "engine/loading/small_gguf.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

gguf_builder& number_part(gguf_builder& builder, int number, int count, int tensors = 11) {
    builder.value("split.no", 2, raw(static_cast<std::uint16_t>(number)));
    builder.value("split.count", 2, raw(static_cast<std::uint16_t>(count)));
    return builder.value("split.tensors.count", 5, raw(tensors));
}

// The small model in three files; the first has only the keys, as llama.cpp's tool may write it.
void write_three(const temporary_folder& folder, int tensors = 11) {
    gguf_builder first = small_gguf_keys(), second, third;
    add_small_tensors(second, 0, 5);
    add_small_tensors(third, 5, 11);
    folder.write("m-00001-of-00003.gguf", number_part(first, 0, 3, tensors).build());
    folder.write("m-00002-of-00003.gguf", number_part(second, 1, 3, tensors).build());
    folder.write("m-00003-of-00003.gguf", number_part(third, 2, 3, tensors).build());
}

}  // namespace

TEST_CASE("Opens a split GGUF model by any of its files") {
    const temporary_folder folder;
    write_three(folder);
    const std::string text = small_gguf().build();
    const model_files one = read_gguf_model(bytes(text), "one");
    for (const char* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
        const model_files model = open_model(folder.path() / name);
        CHECK(model.weights.all().size() == 11);
        for (const weight& each : one.weights.all()) CHECK(to_floats(each) == to_floats(model.weights.at(each.name)));
    }
}

TEST_CASE("Names the file of a split model that is missing or does not fit") {
    const temporary_folder folder;
    write_three(folder, 12);
    const auto open = [&] { open_gguf(folder.path() / "m-00001-of-00003.gguf"); };
    check_error_message("the 3 files have 11 tensors; split.tensors.count is 12", open);
    std::filesystem::copy(folder.path() / "m-00001-of-00003.gguf", folder.path() / "other.gguf");
    check_error_message("other.gguf: is one of 3 files of a model; their names must end in -00001-of-00003.gguf",
                        [&] { open_gguf(folder.path() / "other.gguf"); });
    std::filesystem::remove(folder.path() / "m-00003-of-00003.gguf");
    check_error_message("m-00003-of-00003.gguf: does not exist; it is file 3 of 3 of the model", open);
    std::filesystem::copy(folder.path() / "m-00002-of-00003.gguf", folder.path() / "m-00003-of-00003.gguf");
    check_error_message("m-00003-of-00003.gguf: split.no is 1 and split.count is 3; by its name they must be 2 and 3",
                        open);
    gguf_builder none;
    none.value("split.count", 5, raw(std::int32_t{-1}));
    folder.write("none.gguf", none.build());
    check_error_message("split.count is -1; 1 to 99999 are allowed", [&] { open_gguf(folder.path() / "none.gguf"); });
}

}  // namespace imbrex::engine::test
