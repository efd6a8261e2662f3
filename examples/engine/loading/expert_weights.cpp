#include "engine/loading/expert_weights.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/host/thread_pool.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace imbrex::engine {

namespace {

constexpr std::string_view experts_name = "mlp.experts.";

// Exchanges the name of a part, if it is there.
bool exchange(std::string& name, std::string_view from, std::string_view to) {
    const std::size_t at = name.find(from);
    if (at == std::string::npos) return false;
    name.replace(at, from.size(), to);
    return true;
}

// The names of Mixtral and Qwen3-MoE as the engine's.
std::string common_name(std::string name) {
    exchange(name, ".mlp.gate.", ".mlp.router.");
    if (exchange(name, ".block_sparse_moe.gate.", ".mlp.router.")) return name;
    if (!exchange(name, ".block_sparse_moe.experts.", ".mlp.experts.")) return name;
    exchange(name, ".w1.", ".gate_proj.");
    exchange(name, ".w2.", ".down_proj.");
    exchange(name, ".w3.", ".up_proj.");
    return name;
}

// Rows of a matrix of the file that belong to one projection: first, first + step, ...
struct row_choice {
    const char* projection;
    std::int64_t first, step;
};
constexpr std::array<row_choice, 2> gate_and_up{{{"gate_proj", 0, 2}, {"up_proj", 1, 2}}};
constexpr std::array<row_choice, 1> down{{{"down_proj", 0, 1}}};

constexpr std::byte nan_scale{255};  // of ue8m0

// The neighbours of 32 elements share a byte; in ggml's block elements i and i + 16 do.
void write_ggml_block(const std::byte* nibbles, std::byte scale, std::byte* to) {
    const auto element = [&](int i) { return nibbles[i / 2] >> (4 * (i % 2)) & std::byte{15}; };
    to[0] = scale;
    for (int i = 0; i < 16; ++i) to[1 + i] = element(i) | element(i + 16) << 4;
}

class expert_reader {
  public:
    expert_reader(const weight_set& from, const std::string& file, weight_contents contents)
        : from_(from), file_(file), contents_(contents) {}

    weight_set run() {
        weight_set result =
            from_.renamed([&](const std::string& name) { return divides(name) ? "" : common_name(name); }, file_);
        for (weight& one : made_) result.add(std::move(one), file_);
        for (auto& memory : owned_) result.keep(std::move(memory));
        return result;
    }

  private:
    // Whether the tensor has several experts, which are then weights of their own.
    bool divides(const std::string& name) {
        const std::size_t at = name.find(experts_name);
        if (at == std::string::npos) return false;
        const std::string base = name.substr(0, at + experts_name.size()), part = name.substr(base.size());
        const auto has = [&](const char* other) { return from_.find(base + other) != nullptr; };
        if (part == "gate_up_proj_blocks") return convert_blocks(name, base, "gate_up_proj_scales", gate_and_up);
        if (part == "down_proj_blocks") return convert_blocks(name, base, "down_proj_scales", down);
        if (part == "gate_up_proj_scales") return has("gate_up_proj_blocks");
        if (part == "down_proj_scales") return has("down_proj_blocks");
        // Other families have such tensors without biases, in other orders.
        if (part == "gate_up_proj" && has("gate_up_proj_bias")) return transpose(name, base, gate_and_up);
        if (part == "down_proj" && has("down_proj_bias")) return transpose(name, base, down);
        if (part == "gate_up_proj_bias") return choose_rows(name, base, gate_and_up);
        if (part == "down_proj_bias") return divide(name, base, "down_proj.bias", 2);
        for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
            if (part == str_cat(projection, ".weight")) return divide(name, base, part, 3);
            if (part == str_cat(projection, ".bias")) return divide(name, base, part, 2);
        }
        return false;
    }

    const weight& tensor(const std::string& name, std::size_t rank) const {
        const weight& found = from_.at(name);
        require(found.shape.size() == rank && found.elements() > 0, file_, ": tensor \"", name, "\" has the shape ",
                to_string(found.shape), "; experts have ", rank, " dimensions here, none of them 0");
        require(found.shape[0] <= moe_sizes::most_experts, file_, ": tensor \"", name, "\" has ", found.shape[0],
                " experts; at most ", moe_sizes::most_experts, " are allowed");
        return found;
    }

    void add(const std::string& base, std::int64_t expert, const std::string& end, weight_type type,
             std::vector<std::int64_t> shape, std::span<const std::byte> bytes, const weight& source) {
        made_.push_back({base + std::to_string(expert) + "." + end, type, std::move(shape), bytes,
                         source.name_in_file.empty() ? source.name : source.name_in_file});
    }

    // Memory for `count` experts of this size. write(expert, bytes of the expert) runs on all cores.
    template <class Write>
    std::span<const std::byte> make(std::int64_t count, std::int64_t bytes_of_one, const Write& write) {
        const auto all = static_cast<std::size_t>(count * bytes_of_one), one = static_cast<std::size_t>(bytes_of_one);
        const std::shared_ptr<std::byte[]> memory = std::make_shared_for_overwrite<std::byte[]>(all);
        hw::thread_pool::shared().for_each(static_cast<int>(count), 0, [&](int expert) {
            write(expert, memory.get() + static_cast<std::size_t>(expert) * one);
        });
        owned_.push_back(memory);
        return {memory.get(), all};
    }

    // The same for matrices, which are large: only if their contents are wanted.
    template <class Write>
    std::span<const std::byte> make_matrices(std::int64_t count, std::int64_t bytes_of_one, const Write& write) {
        return make(count, bytes_of_one, [&](std::int64_t expert, std::byte* to) {
            if (contents_ == weight_contents::given) write(expert, to);
        });
    }

    void refuse_nan(const std::string& scales, std::int64_t expert, std::int64_t row, std::int64_t group) const {
        require(false, file_, ": tensor \"", scales, "\" has the scale 255 (NaN) at [", expert, ", ", row, ", ", group,
                "]; 0 to 254 are allowed");
    }

    // A weight for each expert, with these bytes.
    void add_all(const std::string& base, const std::string& end, weight_type type,
                 const std::vector<std::int64_t>& shape, std::int64_t count, std::span<const std::byte> bytes,
                 const weight& source) {
        const std::size_t one = bytes.size() / static_cast<std::size_t>(count);
        for (std::int64_t expert = 0; expert < count; ++expert)
            add(base, expert, end, type, shape, bytes.subspan(static_cast<std::size_t>(expert) * one, one), source);
    }

    // [experts, ...] in the order of the engine: views.
    bool divide(const std::string& name, const std::string& base, const std::string& end, std::size_t rank) {
        const weight& whole = tensor(name, rank);
        add_all(base, end, whole.type, {whole.shape.begin() + 1, whole.shape.end()}, whole.shape[0], whole.bytes,
                whole);
        return true;
    }

    template <std::size_t Count>
    static void check_rows(const weight& whole, std::int64_t rows, const std::array<row_choice, Count>&) {
        require(rows % static_cast<std::int64_t>(Count) == 0, "tensor \"", whole.name, "\" has ", rows,
                " rows; those of gate and up alternate");
    }

    // Biases: [experts, rows].
    template <std::size_t Count>
    bool choose_rows(const std::string& name, const std::string& base, const std::array<row_choice, Count>& choices) {
        const weight& whole = tensor(name, 2);
        const std::int64_t count = whole.shape[0], rows = whole.shape[1], size = element_bytes(whole);
        check_rows(whole, rows, choices);
        for (const row_choice& choice : choices) {
            const std::int64_t own = rows / choice.step;
            const auto bytes = make(count, own * size, [&](std::int64_t expert, std::byte* to) {
                const std::byte* from = whole.bytes.data() + expert * rows * size;
                for (std::int64_t i = 0; i < own; ++i)
                    std::memcpy(to + i * size, from + (choice.first + i * choice.step) * size,
                                static_cast<std::size_t>(size));
            });
            add_all(base, str_cat(choice.projection, ".bias"), whole.type, {own}, count, bytes, whole);
        }
        return true;
    }

    // [experts, columns, rows], as the input is multiplied from the left.
    template <std::size_t Count>
    bool transpose(const std::string& name, const std::string& base, const std::array<row_choice, Count>& choices) {
        const weight& whole = tensor(name, 3);
        const std::int64_t count = whole.shape[0], columns = whole.shape[1], rows = whole.shape[2];
        const std::int64_t size = element_bytes(whole);
        check_rows(whole, rows, choices);
        for (const row_choice& choice : choices) {
            const std::int64_t own = rows / choice.step;
            const auto bytes = make_matrices(count, own * columns * size, [&](std::int64_t expert, std::byte* to) {
                const std::byte* from = whole.bytes.data() + expert * rows * columns * size;
                for (std::int64_t row = 0; row < own; ++row) {
                    for (std::int64_t column = 0; column < columns; ++column, to += size)
                        std::memcpy(to, from + (column * rows + choice.first + row * choice.step) * size,
                                    static_cast<std::size_t>(size));
                }
            });
            add_all(base, str_cat(choice.projection, ".weight"), whole.type, {own, columns}, count, bytes, whole);
        }
        mapped_file::drop_pages(whole.bytes);
        return true;
    }

    // MXFP4: blocks [experts, rows, groups, 16] and scales [experts, rows, groups].
    template <std::size_t Count>
    bool convert_blocks(const std::string& name, const std::string& base, const char* scales_name,
                        const std::array<row_choice, Count>& choices) {
        constexpr std::int64_t packed = 16, block = 17, elements = 32;
        const weight& blocks = tensor(name, 4);
        const weight& scales = tensor(base + scales_name, 3);
        const std::int64_t count = blocks.shape[0], rows = blocks.shape[1], groups = blocks.shape[2];
        const bool fits = blocks.type == weight_type::u8 && scales.type == weight_type::u8 &&
                          blocks.shape[3] == packed &&
                          std::equal(scales.shape.begin(), scales.shape.end(), blocks.shape.begin());
        require(fits, file_, ": tensor \"", name, "\" is ", name_of(blocks.type), " of shape ", to_string(blocks.shape),
                " and its scales are ", name_of(scales.type), " of shape ", to_string(scales.shape),
                "; MXFP4 has u8 of [experts, rows, groups, 16] and [experts, rows, groups]");
        check_rows(blocks, rows, choices);
        for (const row_choice& choice : choices) {
            const std::int64_t own = rows / choice.step;
            const auto bytes = make_matrices(count, own * groups * block, [&](std::int64_t expert, std::byte* to) {
                for (std::int64_t row = choice.first; row < rows; row += choice.step) {
                    const std::int64_t from = (expert * rows + row) * groups;
                    for (std::int64_t group = 0; group < groups; ++group, to += block) {
                        const std::byte scale = scales.bytes[static_cast<std::size_t>(from + group)];
                        if (scale == nan_scale) refuse_nan(scales.name, expert, row, group);
                        write_ggml_block(blocks.bytes.data() + (from + group) * packed, scale, to);
                    }
                }
            });
            add_all(base, str_cat(choice.projection, ".weight"), weight_type::mxfp4, {own, groups * elements}, count,
                    bytes, blocks);
        }
        mapped_file::drop_pages(blocks.bytes);
        return true;
    }

    std::int64_t element_bytes(const weight& whole) const {
        require(!is_block(whole.type), file_, ": tensor \"", whole.name, "\" has blocks of type ", name_of(whole.type),
                "; numbers are known here");
        return format_of(whole.type).bytes;
    }

    const weight_set& from_;
    const std::string& file_;
    weight_contents contents_;
    std::vector<weight> made_;
    std::vector<std::shared_ptr<const void>> owned_;
};

}  // namespace

weight_set with_separate_experts(const weight_set& weights, const std::string& file, weight_contents contents) {
    return expert_reader(weights, file, contents).run();
}

}  // namespace imbrex::engine
