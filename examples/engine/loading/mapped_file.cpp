#include "engine/loading/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <imbrex/core/error.hpp>

namespace imbrex::engine {

namespace {

// Closes the file on every path: the mapping stays valid.
struct open_file {
    int descriptor;
    ~open_file() {
        if (descriptor >= 0) ::close(descriptor);
    }
};

// The mapped files, for a signal handler: no locks, no allocation. Files beyond the capacity are not listed.
struct listed_file {
    std::atomic<const mapped_file*> file{nullptr};
};
std::array<listed_file, 1024> listed_files;

void replace_listed(const mapped_file* from, const mapped_file* to) {
    for (listed_file& one : listed_files) {
        const mapped_file* expected = from;
        if (one.file.compare_exchange_strong(expected, to)) return;
    }
}

const mapped_file* file_with(const void* address) {
    for (const listed_file& one : listed_files) {
        const mapped_file* file = one.file.load();
        if (file == nullptr) continue;
        const auto offset = reinterpret_cast<std::uintptr_t>(address) -
                            reinterpret_cast<std::uintptr_t>(file->bytes().data());  // wraps below the start
        if (offset < file->bytes().size()) return file;
    }
    return nullptr;
}

void print(std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
        if (written <= 0) return;
        text.remove_prefix(static_cast<std::size_t>(written));
    }
}

void on_failed_read(int signal, siginfo_t* info, void*) {
    if (const mapped_file* file = file_with(info->si_addr)) {
        print("error: ");
        print(file->name());
        print(": cannot be read; it was truncated while in use, or its disk failed\n");
        ::_exit(1);
    }
    ::signal(signal, SIG_DFL);  // the instruction is repeated and ends the process
}

}  // namespace

mapped_file::mapped_file(const std::filesystem::path& path) : name_(path.string()) {
    const open_file file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    require(file.descriptor >= 0, name_, ": cannot be opened: ", std::strerror(errno));
    struct stat status {};
    require(::fstat(file.descriptor, &status) == 0, name_, ": cannot be examined: ", std::strerror(errno));
    require(!S_ISDIR(status.st_mode), name_, ": is a folder; a file is needed");
    require(S_ISREG(status.st_mode), name_, ": is a pipe or a device; only a regular file can be mapped");
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size == 0) return;  // mmap rejects length 0; an empty file is valid
    void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
    require(start != MAP_FAILED, name_, ": cannot be mapped: ", std::strerror(errno));
    bytes_ = {static_cast<const std::byte*>(start), size};
    replace_listed(nullptr, this);
}

mapped_file::~mapped_file() {
    if (bytes_.empty()) return;
    replace_listed(this, nullptr);
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void mapped_file::drop_pages(std::span<const std::byte> bytes) {
    if (bytes.empty() || file_with(bytes.data()) == nullptr) return;
    // Only pages that lie within the bytes.
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    const std::uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes.size()) / page * page;
    if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void mapped_file::report_failed_reads() {
    struct sigaction action {};
    action.sa_sigaction = on_failed_read;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace imbrex::engine
