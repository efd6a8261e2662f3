// Runs the readers over the fuzzers' corpus: seeds and past findings.
#include "engine/loading/mapped_file.hpp"
#include "engine/support.hpp"
#include "fuzz/readers.hpp"

namespace imbrex::engine::test {

TEST_CASE("Readers accept or reject each input of the fuzzers' corpus with imbrex::error") {
    const std::pair<const char*, void (*)(std::span<const std::byte>)> readers[] = {
        {"safetensors", fuzz::safetensors},     {"gguf", fuzz::gguf},       {"tokenizer_json", fuzz::tokenizer_json},
        {"sentencepiece", fuzz::sentencepiece}, {"llama2c", fuzz::llama2c}, {"text", fuzz::text},
        {"disk_entry", fuzz::disk_entry}};
    for (const auto& [name, reader] : readers) {
        int files = 0;
        for (const auto& entry :
             std::filesystem::directory_iterator(std::filesystem::path(IMBREX_FUZZ_CORPUS) / name)) {
            CAPTURE(entry.path().string());
            CHECK_NOTHROW(reader(mapped_file(entry.path()).bytes()));
            ++files;
        }
        CHECK(files > 0);
    }
}

}  // namespace imbrex::engine::test
