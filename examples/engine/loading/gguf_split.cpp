#include "engine/loading/gguf_split.hpp"

#include <cstdio>
#include <imbrex/core/error.hpp>
#include <memory>

namespace imbrex::engine {

namespace {

constexpr int most_files = 99999;

gguf_file open_one(const std::filesystem::path& path) {
    const auto mapped = std::make_shared<const mapped_file>(path);
    gguf_file file = read_gguf(mapped->bytes(), mapped->name());
    file.weights.keep(mapped);
    return file;
}

std::string ending(int number, int count) {
    char text[40];
    std::snprintf(text, sizeof text, "-%05d-of-%05d.gguf", number + 1, count);
    return text;
}

int split_number(const gguf_metadata& metadata, const char* key, int least) {
    const std::int64_t value = metadata.whole(key).value_or(least);
    require(value >= least && value <= most_files, metadata.file(), ": ", key, " is ", value, "; ", least, " to ",
            most_files, " are allowed");
    return static_cast<int>(value);
}

int count_of(const gguf_metadata& metadata) {
    return metadata.whole("split.count").value_or(0) == 0 ? 1 : split_number(metadata, "split.count", 1);
}

gguf_file open_part(const std::filesystem::path& path, int number, int count) {
    require(std::filesystem::exists(path), path.string(), ": does not exist; it is file ", number + 1, " of ", count,
            " of the model");
    gguf_file part = open_one(path);
    const int found = split_number(part.metadata, "split.no", 0), of = count_of(part.metadata);
    require(found == number && of == count, path.string(), ": split.no is ", found, " and split.count is ", of,
            "; by its name they must be ", number, " and ", count);
    return part;
}

}  // namespace

std::filesystem::path split_gguf_path(const std::filesystem::path& path, int number, int count) {
    const std::string name = path.filename().string();
    for (int own = 0; own < count; ++own) {
        const std::string end = ending(own, count);
        if (name.ends_with(end))
            return path.parent_path() / (name.substr(0, name.size() - end.size()) + ending(number, count));
    }
    return {};
}

gguf_file open_gguf(const std::filesystem::path& path) {
    gguf_file given = open_one(path);
    const int count = count_of(given.metadata);
    if (count == 1) return given;
    const auto path_of = [&](int number) { return split_gguf_path(path, number, count); };
    require(!path_of(0).empty(), path.string(), ": is one of ", count,
            " files of a model; their names must end in -00001-of-", ending(0, count).substr(10), " and so on");
    gguf_file all = open_part(path_of(0), 0, count);
    for (int number = 1; number < count; ++number) {
        const gguf_file part = open_part(path_of(number), number, count);
        all.weights.merge(part.weights, part.metadata.file());
    }
    const auto tensors = static_cast<std::int64_t>(all.weights.all().size());
    const std::int64_t expected = all.metadata.whole("split.tensors.count").value_or(tensors);
    require(tensors == expected, path.string(), ": the ", count, " files have ", tensors,
            " tensors; split.tensors.count is ", expected);
    return all;
}

}  // namespace imbrex::engine
