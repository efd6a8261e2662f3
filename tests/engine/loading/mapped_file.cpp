#include "engine/loading/mapped_file.hpp"

#include "engine/support.hpp"

namespace imbrex::engine::test {

TEST_CASE("Maps a file") {
    const temporary_folder folder;
    folder.write("full", "some bytes");
    folder.write("empty", "");
    const mapped_file full(folder.path() / "full"), empty(folder.path() / "empty");
    CHECK(as_text(full.bytes()) == "some bytes");
    CHECK(full.name() == (folder.path() / "full").string());
    CHECK(empty.bytes().empty());
    check_error_message("none: cannot be opened: No such file", [&] { mapped_file(folder.path() / "none"); });
    check_error_message("is not a file", [&] { mapped_file(folder.path()); });
}

}  // namespace imbrex::engine::test
