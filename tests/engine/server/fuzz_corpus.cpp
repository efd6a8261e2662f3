// Runs the fuzz targets of the API and of structured output over their corpus: seeds and past findings.
#include <filesystem>

#include "engine/loading/mapped_file.hpp"
#include "engine/support.hpp"
#include "fuzz/grammar.hpp"
#include "fuzz/server.hpp"

namespace imbrex::engine::test {

TEST_CASE("The API and structured output take or refuse each input of the fuzzers' corpus") {
    const std::pair<const char*, void (*)(std::span<const std::byte>)> targets[] = {{"server", fuzz::api_request},
                                                                                    {"grammar", fuzz::grammar}};
    for (const auto& [name, target] : targets) {
        int files = 0;
        for (const auto& entry :
             std::filesystem::directory_iterator(std::filesystem::path(IMBREX_FUZZ_CORPUS) / name)) {
            CAPTURE(entry.path().string());
            CHECK_NOTHROW(target(mapped_file(entry.path()).bytes()));
            ++files;
        }
        CHECK(files > 0);
    }
}

}  // namespace imbrex::engine::test
