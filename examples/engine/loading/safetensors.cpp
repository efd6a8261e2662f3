#include "engine/loading/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <imbrex/core/error.hpp>
#include <optional>
#include <set>
#include <utility>

#include "engine/loading/json_text.hpp"

namespace imbrex::engine {

namespace {

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t longest_header = 100'000'000;
constexpr std::size_t highest_rank = 16;

// Nothing for a dtype that the engine cannot compute with.
std::optional<weight_type> type_of(const std::string& type) {
    constexpr std::pair<std::string_view, weight_type> types[] = {
        {"F32", weight_type::f32}, {"F16", weight_type::f16},      {"BF16", weight_type::bf16},
        {"F64", weight_type::f64}, {"F8_E4M3", weight_type::e4m3}, {"F8_E5M2", weight_type::e5m2},
        {"I8", weight_type::i8},   {"U8", weight_type::u8},        {"BOOL", weight_type::u8},
        {"I16", weight_type::i16}, {"I32", weight_type::i32},      {"I64", weight_type::i64},
    };
    for (const auto& [name, found] : types) {
        if (name == type) return found;
    }
    return {};
}

std::vector<std::int64_t> whole_numbers(const json& values, const char* key, const std::string& where) {
    require(values.is_array(), where, key, " is ", shown(values), "; it must be an array");
    std::vector<std::int64_t> result;
    for (const json& value : values) {
        require(value.is_number_unsigned() && value.get<std::uint64_t>() >> 63 == 0, where, key, " holds ",
                shown(value), "; whole numbers from 0 to 2^63 - 1 are allowed");
        result.push_back(value.get<std::int64_t>());
    }
    return result;
}

struct placed_weight {
    weight what;
    std::int64_t begin;
    std::int64_t end;
};

placed_weight read_entry(const std::string& tensor, const json& entry, const std::string& name) {
    const std::string where = name + ": tensor " + shown(tensor) + ": ";
    require(entry.is_object(), where, "is ", shown(entry), "; it must be an object");
    const auto type = string_member(entry, "dtype", where);
    require(type.has_value(), where, "\"dtype\" is missing");
    placed_weight placed{{tensor, type_of(*type).value_or(weight_type::u8), {}, {}}, 0, 0};
    placed.what.shape = whole_numbers(member(entry, "shape", where), "shape", where);
    require(placed.what.shape.size() <= highest_rank, where, "it has ", placed.what.shape.size(), " dimensions; ",
            highest_rank, " are allowed");
    const auto offsets = whole_numbers(member(entry, "data_offsets", where), "data_offsets", where);
    require(offsets.size() == 2, where, "data_offsets has ", offsets.size(), " numbers; it must have 2");
    placed.begin = offsets[0];
    placed.end = offsets[1];
    if (!type_of(*type)) {  // bytes, which do no harm if the model does not use them
        require(placed.begin <= placed.end, where, "data_offsets [", placed.begin, ", ", placed.end,
                "] end before they begin");
        placed.what.name_in_file = tensor + " of dtype " + *type;
        placed.what.shape = {placed.end - placed.begin};
    }
    const auto size = byte_size(placed.what.type, placed.what.shape);
    require(size.has_value(), where, "shape ", to_string(placed.what.shape), " has more than 2^63 - 1 bytes");
    require(placed.begin <= placed.end && placed.end - placed.begin == *size, where, "data_offsets [", placed.begin,
            ", ", placed.end, "] do not span the ", *size, " bytes of shape ", to_string(placed.what.shape));
    return placed;
}

std::map<std::string, std::string> read_metadata(const json& entry, const std::string& name) {
    require(entry.is_object(), name, ": __metadata__ is ", shown(entry), "; it must be an object");
    std::map<std::string, std::string> metadata;
    for (const auto& [key, value] : entry.items()) {
        require(value.is_string(), name, ": __metadata__ has ", shown(value), " under ", shown(key),
                "; its values must be strings");
        metadata[key] = value.get<std::string>();
    }
    return metadata;
}

}  // namespace

safetensors_file read_safetensors(std::span<const std::byte> bytes, const std::string& name) {
    require(bytes.size() >= length_bytes, name, ": has ", bytes.size(), " bytes; a safetensors file has at least ",
            length_bytes);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    require(length <= longest_header, name, ": the header's length is ", length, "; ", longest_header, " is allowed");
    require(length <= bytes.size() - length_bytes, name, ": the header's length is ", length, "; only ",
            bytes.size() - length_bytes, " bytes follow");
    const std::string_view text = as_text(bytes.subspan(length_bytes, length));
    require(text.starts_with('{'), name, ": the header does not start with {");
    const json header = parse_json(text, name);
    const std::span<const std::byte> data = bytes.subspan(length_bytes + length);

    safetensors_file file;
    std::vector<placed_weight> placed;
    for (const auto& [tensor, entry] : header.items()) {
        if (tensor == "__metadata__") {
            file.metadata = read_metadata(entry, name);
        } else {
            placed.push_back(read_entry(tensor, entry, name));
        }
    }

    // Sorted by offset, the tensors must cover the data without gaps or overlaps.
    std::ranges::stable_sort(placed, {}, [](const placed_weight& one) { return std::pair(one.begin, one.end); });
    std::int64_t end = 0;
    for (placed_weight& one : placed) {
        require(one.begin == end, name, ": tensor ", shown(one.what.name), ": its data begin at ", one.begin,
                "; the data before end at ", end);
        require(static_cast<std::uint64_t>(one.end) <= data.size(), name, ": tensor ", shown(one.what.name),
                ": its data end at ", one.end, "; the file has ", data.size(), " bytes of data");
        end = one.end;
        one.what.bytes =
            data.subspan(static_cast<std::size_t>(one.begin), static_cast<std::size_t>(one.end - one.begin));
        file.weights.add(std::move(one.what), name);
    }
    require(static_cast<std::uint64_t>(end) == data.size(), name, ": the tensors end at ", end, "; the file has ",
            data.size(), " bytes of data");
    return file;
}

std::map<std::string, std::string> read_shard_index(std::span<const std::byte> bytes, const std::string& name) {
    const json index = parse_json(as_text(bytes), name);
    const json& places = member(index, "weight_map", name);
    require(places.is_object() && !places.empty(), name, ": \"weight_map\" is ", shown(places),
            "; it must be an object with a file for each tensor");
    std::map<std::string, std::string> result;
    for (const auto& [tensor, place] : places.items()) {
        require(place.is_string(), name, ": tensor ", shown(tensor), ": its file is ", shown(place),
                "; it must be a string");
        const std::filesystem::path file = place.get<std::string>();
        const bool is_inside = !file.empty() && file.is_relative() && std::ranges::find(file, "..") == file.end();
        require(is_inside, name, ": tensor ", shown(tensor), ": its file is ", shown(place),
                "; it must lie in the model's folder (no absolute path, no ..)");
        result[tensor] = file.string();
    }
    return result;
}

weight_set open_safetensors(const std::filesystem::path& path) {
    const auto open_one = [](const std::filesystem::path& file) {
        auto mapped = std::make_shared<const mapped_file>(file);
        weight_set weights = read_safetensors(mapped->bytes(), mapped->name()).weights;
        weights.keep(mapped);
        return weights;
    };
    if (!std::filesystem::is_directory(path)) return open_one(path);
    const auto index_path = path / "model.safetensors.index.json";
    if (!std::filesystem::exists(index_path)) {
        require(std::filesystem::exists(path / "model.safetensors"), path.string(),
                ": has neither model.safetensors nor model.safetensors.index.json");
        return open_one(path / "model.safetensors");
    }
    const mapped_file index_file(index_path);
    const auto index = read_shard_index(index_file.bytes(), index_file.name());
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : index) shards.insert(shard);
    weight_set all;
    for (const std::string& shard : shards) {
        const weight_set some = open_one(path / shard);
        for (const auto& [tensor, place] : index) {
            require(place != shard || some.find(tensor) != nullptr, index_file.name(), ": tensor ", shown(tensor),
                    " is said to be in ", shard, ", which does not have it");
        }
        all.merge(some, (path / shard).string());
    }
    return all;
}

}  // namespace imbrex::engine
