#include "engine/loading/mapped_file.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

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
    check_error_message("is a folder; a file is needed", [&] { mapped_file(folder.path()); });
    REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);
    check_error_message("is a pipe or a device", [&] { mapped_file(folder.path() / "pipe"); });
}

TEST_CASE("Dropped pages are read again") {
    const temporary_folder folder;
    const std::string text(100'000, 'x');
    folder.write("file", text);
    const mapped_file file(folder.path() / "file");
    mapped_file::drop_pages(file.bytes());
    mapped_file::drop_pages(file.bytes().subspan(50'000));
    CHECK(as_text(file.bytes()) == text);
    std::string own(100'000, 'y');
    mapped_file::drop_pages(as_bytes(own));  // not of a file: stays
    CHECK(own == std::string(100'000, 'y'));
}

TEST_CASE("A file that is truncated while mapped ends the process with a message") {
    const temporary_folder folder;
    folder.write("file", std::string(100'000, 'x'));
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(pipe[1], STDERR_FILENO);
        mapped_file::report_failed_reads();
        const mapped_file file(folder.path() / "file");
        ::_exit(::truncate((folder.path() / "file").c_str(), 10) == 0 && file.bytes()[90'000] == std::byte{} ? 7 : 8);
    }
    ::close(pipe[1]);
    std::string message;
    for (char next = 0; ::read(pipe[0], &next, 1) == 1;) message += next;
    ::close(pipe[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 1);
    CHECK(message.find("file: cannot be read; it was truncated while in use") != std::string::npos);
}

}  // namespace imbrex::engine::test
