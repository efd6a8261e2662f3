#include "engine/model/quantise_file.hpp"

#include <imbrex/core/error.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#include <imbrex/kernels/linear/quantise.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "engine/loading/gguf_split.hpp"
#include "engine/loading/gguf_writer.hpp"
#include "engine/loading/model_files.hpp"

namespace imbrex::engine {

namespace {

constexpr std::int64_t rows_at_once = 256;
constexpr const char* part_ending = ".part";

template <class T>
void round_rows(std::span<const float> values, std::byte* to) {
    for (const float value : values) {
        const T rounded = convert<T>(value);
        std::memcpy(to, &rounded, sizeof rounded);
        to += sizeof rounded;
    }
}

// Rows of blocks: an fp16 scale, then the values of 32 elements.
template <class Value, template <class> class Output>
void quantise_to_blocks(std::span<const float> values, std::size_t bytes_of_values, std::byte* to) {
    constexpr auto group = static_cast<std::size_t>(weight_group_size);
    for (std::size_t first = 0; first < values.size(); first += group) {
        Value quantised[group];
        fp16 scale;
        quantise_rows(Output<fp16>{quantised, &scale}, values.data() + first, 1, weight_group_size);
        std::memcpy(to, &scale, sizeof scale);
        std::memcpy(to + sizeof scale, quantised, bytes_of_values);
        to += sizeof scale + bytes_of_values;
    }
}

void convert_row(std::span<const float> values, weight_type type, std::byte* to) {
    switch (type) {
        case weight_type::q8_0:
            return quantise_to_blocks<std::int8_t, int8_rows_output>(values, 32, to);
        case weight_type::q4_0:
            return quantise_to_blocks<std::uint8_t, int4_rows_output>(values, 16, to);
        case weight_type::f16:
            return round_rows<fp16>(values, to);
        case weight_type::bf16:
            return round_rows<bf16>(values, to);
        default:
            return round_rows<float>(values, to);
    }
}

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

void write_converted(const weight& from, weight_type type, const byte_sink& sink) {
    if (type == from.type) return sink(from.bytes);
    const std::int64_t columns = from.row_elements();
    const auto row_bytes = static_cast<std::size_t>(*byte_size(type, std::vector<std::int64_t>{columns}));
    for (std::int64_t first = 0; first < from.rows(); first += rows_at_once) {
        const std::int64_t rows = std::min(rows_at_once, from.rows() - first);
        std::vector<std::byte> result(static_cast<std::size_t>(rows) * row_bytes);
        hw::thread_pool::shared().for_each(static_cast<int>(rows), 0, [&](int row) {
            std::vector<float> values(static_cast<std::size_t>(columns));
            to_floats(from, first + row, 1, values);
            try {
                convert_row(values, type, result.data() + static_cast<std::size_t>(row) * row_bytes);
            } catch (const error& failure) {
                require(false, from.name, ": row ", first + row, ": ", failure.what());
            }
        });
        sink(result);
    }
}

void write_weights(const weight_set& weights, const gguf_metadata& metadata, const std::filesystem::path& to,
                   weight_type type, const loading_progress& progress) {
    std::vector<gguf_tensor> tensors;
    for (const weight& one : weights.all()) {
        // GGUF has no scalars: one becomes a vector of one element.
        const auto shape = one.shape.empty() ? std::vector<std::int64_t>{1} : one.shape;
        tensors.push_back({one.name, type_in_file(one, type), shape});
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

// llama.cpp's number for the type of most tensors, general.file_type.
std::int64_t file_type_number(weight_type type) {
    switch (type) {
        case weight_type::f16:
            return 1;
        case weight_type::q4_0:
            return 2;
        case weight_type::q8_0:
            return 7;
        case weight_type::bf16:
            return 32;
        default:
            return 0;
    }
}

void quantise_gguf(const std::filesystem::path& from, const std::filesystem::path& to, weight_type type,
                   const loading_progress& progress) {
    const gguf_file file = open_gguf(from);
    gguf_metadata metadata(to.string());
    for (const auto& [key, value] : file.metadata.all()) {
        if (key != "general.file_type" && key != "general.quantization_version") metadata.add(key, value);
    }
    metadata.add("general.file_type", {gguf_type::uint32, {}, file_type_number(type)});
    metadata.add("general.quantization_version", {gguf_type::uint32, {}, std::int64_t{2}});
    write_weights(file.weights, metadata, to, type, progress);
}

void quantise_folder(const std::filesystem::path& from, const std::filesystem::path& to, weight_type type,
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
    write_weights(open_folder_weights(from), gguf_metadata(to.string()), to / "model.gguf", type, progress);
}

}  // namespace

weight_type file_type_of(weight_format format) {
    switch (format) {
        case weight_format::f32:
            return weight_type::f32;
        case weight_format::bf16:
            return weight_type::bf16;
        case weight_format::int8:
            return weight_type::q8_0;
        case weight_format::int4:
            return weight_type::q4_0;
        case weight_format::as_in_file:
        case weight_format::e4m3:
            break;
    }
    require(false, "weights: ", name_of(format), "; f32, bf16, int8 and int4 can be written to a file");
    return {};
}

void quantise_file(const std::filesystem::path& from, const std::filesystem::path& to, weight_format format,
                   const loading_progress& progress) {
    const weight_type type = file_type_of(format);
    require(std::filesystem::exists(from), from.string(), ": does not exist");
    require(!std::filesystem::exists(to), to.string(), ": exists; the output is a new file or folder");
    const bool is_folder = std::filesystem::is_directory(from);
    require(is_folder || from.extension() == ".gguf", from.string(),
            ": a .gguf file or a Hugging Face folder can be quantised");
    const std::filesystem::path part = to.string() + part_ending;
    std::filesystem::remove_all(part);
    try {
        (is_folder ? quantise_folder : quantise_gguf)(from, part, type, progress);
        std::filesystem::rename(part, to);
    } catch (...) {
        std::error_code ignored;
        std::filesystem::remove_all(part, ignored);
        throw;
    }
}

}  // namespace imbrex::engine
