#include "engine/model/quantise_file.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "engine/loading/gguf_split.hpp"
#include "engine/loading/gguf_writer.hpp"
#include "engine/loading/model_files.hpp"
#include "engine/model/weight_conversion.hpp"
#include "engine/model/weight_mixture.hpp"

namespace imbrex::engine {

namespace {

constexpr std::int64_t rows_at_once = 256;
constexpr const char* part_ending = ".part";

bool is_outer_matrix(const std::string& name) {
    return name == "token_embd.weight" || name == "output.weight" || name == "model.embed_tokens.weight" ||
           name == "lm_head.weight";
}

// The type of a weight in the written file.
weight_type type_in_file(const weight& from, weight_type wanted) {
    if (from.shape.size() < 2) return from.type;
    if (wanted == weight_type::q4_0 && is_outer_matrix(from.name)) wanted = weight_type::q8_0;
    return from.row_elements() % format_of(wanted).elements == 0 ? wanted : from.type;
}

// How matrices are written.
struct file_types {
    weight_format format;
    double bits_per_weight;

    weight_types of(const weight_set& weights) const {
        if (format == weight_format::mixed) return mixture_of(weights, bits_per_weight, world::host);
        weight_types types;
        for (const weight& one : weights.all()) types[one.name] = type_in_file(one, file_type_of(format));
        return types;
    }
};

void write_converted(const weight& from, weight_type type, const byte_sink& sink) {
    if (type == from.type) return sink(from.bytes);
    const std::size_t of_row = row_bytes(type, from.row_elements());
    for (std::int64_t first = 0; first < from.rows(); first += rows_at_once) {
        const std::int64_t rows = std::min(rows_at_once, from.rows() - first);
        std::vector<std::byte> result(static_cast<std::size_t>(rows) * of_row);
        convert_rows(from, first, rows, type, result.data());
        sink(result);
    }
}

void write_weights(const weight_set& weights, const gguf_metadata& metadata, const std::filesystem::path& to,
                   const weight_types& types, const loading_progress& progress) {
    std::vector<gguf_tensor> tensors;
    for (const weight& one : weights.all()) {
        // GGUF has no scalars: one becomes a vector of one element.
        const auto shape = one.shape.empty() ? std::vector<std::int64_t>{1} : one.shape;
        const auto type = types.find(one.name);
        tensors.push_back({one.name, type == types.end() ? one.type : type->second, shape});
    }
    std::ofstream file(to, std::ios::binary);
    require(file.good(), to.string(), ": cannot be created: ", std::strerror(errno));
    std::int64_t done = 0;
    write_gguf(file, to.string(), metadata, tensors, [&](std::size_t i, const byte_sink& sink) {
        const weight& one = weights.all()[i];
        write_converted(one, tensors[i].type, sink);
        mapped_file::drop_pages(one.bytes);
        done += static_cast<std::int64_t>(one.bytes.size());
        if (progress) progress(done, weights.bytes());
    });
}

// The type of most weights.
weight_type main_type(const weight_set& weights, const weight_types& types) {
    std::map<weight_type, std::int64_t> elements;
    for (const auto& [name, type] : types) elements[type] += weights.at(name).elements();
    const auto most = std::ranges::max_element(elements, {}, [](const auto& each) { return each.second; });
    return most == elements.end() ? weight_type::f32 : most->first;
}

// llama.cpp's number for the type of most tensors, general.file_type.
std::int64_t file_type_number(weight_type type) {
    switch (type) {
        case weight_type::f16:
            return 1;
        case weight_type::q4_0:
            return 2;
        case weight_type::q8_0:
            return 7;
        case weight_type::q5_0:
            return 8;
        case weight_type::bf16:
            return 32;
        default:
            return 0;
    }
}

void quantise_gguf(const std::filesystem::path& from, const std::filesystem::path& to, const file_types& wanted,
                   const loading_progress& progress) {
    const gguf_file file = open_gguf(from);
    const weight_types types = wanted.of(file.weights);
    gguf_metadata metadata(to.string());
    for (const auto& [key, value] : file.metadata.all()) {
        if (key != "general.file_type" && key != "general.quantization_version") metadata.add(key, value);
    }
    metadata.add("general.file_type", {gguf_type::uint32, {}, file_type_number(main_type(file.weights, types))});
    metadata.add("general.quantization_version", {gguf_type::uint32, {}, std::int64_t{2}});
    write_weights(file.weights, metadata, to, types, progress);
}

void quantise_folder(const std::filesystem::path& from, const std::filesystem::path& to, const file_types& wanted,
                     const loading_progress& progress) {
    std::filesystem::create_directories(to);
    for (const auto& entry : std::filesystem::directory_iterator(from)) {
        const auto ending = entry.path().extension();
        const bool describes = ending == ".json" || ending == ".txt" || ending == ".jinja" || ending == ".model";
        const bool is_index = entry.path().filename().string().ends_with(".index.json");
        if (entry.is_regular_file() && describes && !is_index) {
            std::filesystem::copy_file(entry.path(), to / entry.path().filename());
        }
    }
    const weight_set weights = open_folder_weights(from);
    write_weights(weights, gguf_metadata(to.string()), to / "model.gguf", wanted.of(weights), progress);
}

}  // namespace

weight_type file_type_of(weight_format format) {
    switch (format) {
        case weight_format::f32:
            return weight_type::f32;
        case weight_format::f16:
            return weight_type::f16;
        case weight_format::bf16:
            return weight_type::bf16;
        case weight_format::int8:
            return weight_type::q8_0;
        case weight_format::int4:
            return weight_type::q4_0;
        case weight_format::as_in_file:
        case weight_format::e4m3:
        case weight_format::mixed:
            break;
    }
    require(false, "weights: ", name_of(format), "; f32, f16, bf16, int8, int4 and mixed can be written to a file");
    return {};
}

void quantise_file(const std::filesystem::path& from, const std::filesystem::path& to, weight_format format,
                   double bits_per_weight, const loading_progress& progress) {
    const file_types types{format, bits_per_weight};
    if (format != weight_format::mixed) file_type_of(format);
    require(std::filesystem::exists(from), from.string(), ": does not exist");
    require(!std::filesystem::exists(to), to.string(), ": exists; the output is a new file or folder");
    const bool is_folder = std::filesystem::is_directory(from);
    require(is_folder || from.extension() == ".gguf", from.string(),
            ": a .gguf file or a Hugging Face folder can be quantised");
    const std::filesystem::path part = to.string() + part_ending;
    std::filesystem::remove_all(part);
    try {
        (is_folder ? quantise_folder : quantise_gguf)(from, part, types, progress);
        std::filesystem::rename(part, to);
    } catch (...) {
        std::error_code ignored;
        std::filesystem::remove_all(part, ignored);
        throw;
    }
}

}  // namespace imbrex::engine
