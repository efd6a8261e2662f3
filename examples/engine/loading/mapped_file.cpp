#include "engine/loading/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
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

}  // namespace

mapped_file::mapped_file(const std::filesystem::path& path) : name_(path.string()) {
    const open_file file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    require(file.descriptor >= 0, name_, ": cannot be opened: ", std::strerror(errno));
    struct stat status {};
    require(::fstat(file.descriptor, &status) == 0, name_, ": cannot be examined: ", std::strerror(errno));
    require(S_ISREG(status.st_mode), name_, ": is not a file");
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size == 0) return;  // mmap rejects length 0; an empty file is valid
    void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor, 0);
    require(start != MAP_FAILED, name_, ": cannot be mapped: ", std::strerror(errno));
    bytes_ = {static_cast<const std::byte*>(start), size};
}

mapped_file::~mapped_file() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace imbrex::engine
