#include "engine/loading/checkpoint_quantisation.hpp"

#include <algorithm>
#include <array>
#include <imbrex/core/error.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "engine/loading/checkpoint_tensors.hpp"

namespace imbrex::engine {

namespace {

using namespace checkpoint;
using ggml::read;

class checkpoint_reader {
  public:
    checkpoint_reader(const weight_set& from, const json& quantisation, const std::string& file)
        : from_(from), config_(quantisation), where_(file + ": quantization_config: ") {
        const auto method = string_member(config_, "quant_method", where_);
        require(method.has_value(), where_, "\"quant_method\" is missing");
        method_ = *method;
        constexpr std::array methods{"gptq", "awq", "compressed-tensors", "fp8", "fbgemm_fp8"};
        require(std::ranges::find(methods, method_) != methods.end(), where_, "quant_method is ",
                shown(config_["quant_method"]),
                "; gptq, awq, compressed-tensors, fp8, fbgemm_fp8 and mxfp4 can be read");
    }

    weight_set run() {
        check_options();
        for (const weight& one : from_.all()) {
            const std::string& name = one.name;
            if (const auto base = without_end(name, ".qweight")) {
                method_ == "awq" ? read_awq(one, *base) : read_gptq(one, *base);
            } else if (const auto packed = without_end(name, ".weight_packed")) {
                read_packed(one, *packed);
            } else if (const auto base = without_end(name, ".weight"); base && one.type == weight_type::e4m3) {
                read_fp8(one, *base);
            } else if (base && one.type == weight_type::i8) {
                read_int8(one, *base);
            } else if (!is_part(name)) {
                result_.add(one, where_);
            }
        }
        result_.keep(std::make_shared<weight_set>(from_));  // the files, for weights that are not quantised
        return std::move(result_);
    }

  private:
    static std::optional<std::string> without_end(const std::string& name, std::string_view end) {
        if (!name.ends_with(end)) return {};
        return name.substr(0, name.size() - end.size());
    }

    // A part of a quantised weight, or a scale of activations or of the KV cache.
    static bool is_part(const std::string& name) {
        constexpr std::array ends{".qzeros",         ".scales",           ".g_idx",
                                  ".weight_scale",   ".weight_scale_inv", ".weight_zero_point",
                                  ".weight_shape",   ".weight_g_idx",     ".input_scale",
                                  ".input_scale_ub", ".input_zero_point", ".output_scale",
                                  ".k_scale",        ".v_scale",          ".activation_scale"};
        return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
    }

    void check_options() const {
        const json* dynamic = find_member(config_, "dynamic");
        require(dynamic == nullptr || dynamic->empty(), where_,
                "\"dynamic\" changes the format of some modules; it is not "
                "supported");
        if (method_ == "awq") {
            std::string version = string_member(config_, "version", where_).value_or("gemm");
            std::ranges::transform(version, version.begin(), [](char c) { return static_cast<char>(c | 32); });
            require(version == "gemm", where_, "version is ", shown(config_["version"]), "; gemm can be read");
        }
        if (method_ == "compressed-tensors") {
            const std::string format = string_member(config_, "format", where_).value_or("");
            constexpr std::array formats{"pack-quantized", "int-quantized", "float-quantized", "naive-quantized"};
            require(std::ranges::find(formats, format) != formats.end(), where_, "format is \"", format,
                    "\"; pack-quantized, int-quantized, float-quantized and naive-quantized can be read");
        }
    }

    int bits_of_config() const {
        const auto bits = int_member(config_, "bits", where_);
        require(bits == 4 || (bits == 8 && method_ == "gptq"), where_, "bits is ", bits.value_or(0), "; ",
                method_ == "gptq" ? "4 and 8" : "4", " can be read");
        return static_cast<int>(*bits);
    }

    const weight& part(const std::string& name, matrix_size size) const {
        const weight& found = from_.at(name);
        const std::vector<std::int64_t> shape{size.rows, size.columns};
        require(found.shape == shape, name, ": has the shape ", to_string(found.shape), "; it must be ",
                to_string(shape));
        return found;
    }

    // Groups of rows of the file, each with a scale; their number divides the columns.
    static std::int64_t columns_per_group(const std::string& name, std::int64_t columns, std::int64_t groups) {
        require(groups > 0 && columns % groups == 0, name, ": ", columns, " columns cannot be divided into ", groups,
                " groups");
        return columns / groups;
    }

    template <class Integer, class Scale>
    void add(const std::string& base, matrix_size size, weight_type type, const Integer& integer, const Scale& scale,
             const weight& source) {
        const std::string name = base + ".weight";
        require(size.columns % group_size == 0, name, ": rows have ", size.columns, " elements; a multiple of ",
                group_size, " can be read");
        const auto memory = convert(size, type, integer, scale);
        result_.add({name, type, {size.rows, size.columns}, *memory, source.name}, where_);
        result_.keep(memory);
        mapped_file::drop_pages(source.bytes);
    }

    // q4_0 for integers from -8 to 7, q8_0 from -128 to 127.
    static weight_type type_for(int lowest, int highest, std::int64_t per_group, const scale_table& scales) {
        if (per_group % group_size != 0 || !scales.fits_fp16()) return weight_type::bf16;
        if (lowest >= -8 && highest <= 7) return weight_type::q4_0;
        return lowest >= -128 && highest <= 127 ? weight_type::q8_0 : weight_type::bf16;
    }

    // The order of GPTQ's groups: group_of[column]; `is_natural` if neighbours share a group.
    struct group_order {
        std::vector<std::int64_t> group_of;
        bool is_natural = true;
    };
    group_order order_of_groups(const std::string& name, std::int64_t columns, std::int64_t groups) const {
        const std::int64_t per_group = columns_per_group(name, columns, groups);
        group_order order;
        for (std::int64_t i = 0; i < columns; ++i) order.group_of.push_back(i / per_group);
        const weight* given = from_.find(name);
        if (given == nullptr) return order;
        require(given->elements() == columns && given->type == weight_type::i32, name, ": is ", name_of(given->type),
                " of shape ", to_string(given->shape), "; it must have ", columns, " elements of i32");
        for (std::int64_t i = 0; i < columns; ++i) {
            const std::int64_t group = read<std::int32_t>(given->bytes.data() + 4 * i);
            require(group >= 0 && group < groups, name, ": element ", i, " is ", group, "; there are ", groups,
                    " groups");
            order.is_natural &= group == order.group_of[static_cast<std::size_t>(i)];
            order.group_of[static_cast<std::size_t>(i)] = group;
        }
        return order;
    }

    // qweight [columns / per word, rows], scales [groups, rows], qzeros [groups, rows / per word]: the zero point less
    // one, except in the format gptq_v2.
    void read_gptq(const weight& words, const std::string& base) {
        const int bits = bits_of_config();
        const int stored_less =
            string_member(config_, "checkpoint_format", where_).value_or("gptq") == "gptq_v2" ? 0 : 1;
        const packed_integers values(words, bits, true);
        const matrix_size size{values.columns(), values.rows()};
        const scale_table scales = scales_by_group(base, size.rows);
        const weight& zero_words = part(base + ".qzeros", {scales.rows, size.rows * bits / bits_of_word});
        const packed_integers zeros(zero_words, bits, false);
        const group_order order = order_of_groups(base + ".g_idx", size.columns, scales.rows);
        int lowest_zero = 1 << bits, highest_zero = 0;
        for (std::int64_t group = 0; group < scales.rows; ++group) {
            for (std::int64_t row = 0; row < size.rows; ++row) {
                const int zero = zeros.at(group, row) + stored_less;
                lowest_zero = std::min(lowest_zero, zero);
                highest_zero = std::max(highest_zero, zero);
            }
        }
        const weight_type type = order.is_natural ? type_for(-highest_zero, (1 << bits) - 1 - lowest_zero,
                                                             size.columns / scales.rows, scales)
                                                  : weight_type::bf16;
        const auto group_of = [&](std::int64_t column) { return order.group_of[static_cast<std::size_t>(column)]; };
        add(
            base, size, type,
            [&](std::int64_t row, std::int64_t column) {
                return values.at(column, row) - zeros.at(group_of(column), row) - stored_less;
            },
            [&](std::int64_t row, std::int64_t column) { return scales.at(group_of(column), row); }, words);
    }

    scale_table scales_by_group(const std::string& base, std::int64_t rows) const {
        const weight& one = from_.at(base + ".scales");
        const scale_table scales(one);
        require(scales.columns == rows, base, ".scales: has the shape ", to_string(one.shape), "; ", rows,
                " columns are needed");
        return scales;
    }

    // qweight [columns, rows / 8], scales [groups, rows], qzeros [groups, rows / 8]; eight rows in a word are in the order
    // 0, 2, 4, 6, 1, 3, 5, 7.
    void read_awq(const weight& words, const std::string& base) {
        static constexpr int order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
        const int bits = bits_of_config();
        const packed_integers values(words, bits, false);
        const matrix_size size{values.columns(), values.rows()};
        const scale_table scales = scales_by_group(base, size.rows);
        const weight& zero_words = part(base + ".qzeros", {scales.rows, size.rows / 8});
        const packed_integers zeros(zero_words, bits, false);
        const std::int64_t per_group = columns_per_group(base + ".scales", size.columns, scales.rows);
        add(
            base, size, type_for(-15, 15, per_group, scales),
            [&](std::int64_t row, std::int64_t column) {
                return values.at(column, row, order) - zeros.at(column / per_group, row, order);
            },
            [&](std::int64_t row, std::int64_t column) { return scales.at(column / per_group, row); }, words);
    }

    // weight_packed [rows, columns / per word], weight_scale [rows, groups], weight_zero_point [rows / per word, groups];
    // the integers and the zero points are stored with half of their range added.
    void read_packed(const weight& words, const std::string& base) {
        const weight& shape = from_.at(base + ".weight_shape");
        require(is_integer(shape.type) && shape.elements() == 2, shape.name, ": is ", name_of(shape.type), " of shape ",
                to_string(shape.shape), "; it must be two whole numbers");
        const std::vector<float> sizes = to_floats(shape);
        constexpr float most = 1 << 24;  // whole numbers up to here are exact
        require(words.shape.size() == 2 && sizes[0] == static_cast<float>(words.shape[0]) && sizes[1] >= 1 &&
                    sizes[1] <= most,
                base, ".weight_shape: is [", sizes[0], ", ", sizes[1], "]; the packed weight has the shape ",
                to_string(words.shape));
        const matrix_size size{words.shape[0], static_cast<std::int64_t>(sizes[1])};
        const std::int64_t bits = words.shape[1] * bits_of_word / size.columns;
        require((bits == 4 || bits == 8) && words.shape[1] * bits_of_word == bits * size.columns, base,
                ".weight_packed: has the shape ", to_string(words.shape), " for [", size.rows, ", ", size.columns,
                "]; 4 and 8 bits can be read");
        const packed_integers values(words, static_cast<int>(bits), false);
        const scale_table scales(from_.at(base + ".weight_scale"));
        require(scales.rows == size.rows, base, ".weight_scale: has ", scales.rows, " rows; ", size.rows,
                " are needed");
        const int half = 1 << (bits - 1);
        std::optional<packed_integers> zeros;
        if (from_.find(base + ".weight_zero_point") != nullptr) {
            const std::int64_t per_word = bits_of_word / bits;
            zeros.emplace(part(base + ".weight_zero_point", {(size.rows + per_word - 1) / per_word, scales.columns}),
                          static_cast<int>(bits), true);
        }
        const group_order order = order_of_groups(base + ".weight_g_idx", size.columns, scales.columns);
        const int range = zeros ? 2 * half - 1 : half;
        const weight_type type = order.is_natural
                                     ? type_for(-range, zeros ? range : half - 1, size.columns / scales.columns, scales)
                                     : weight_type::bf16;
        const auto group_of = [&](std::int64_t column) { return order.group_of[static_cast<std::size_t>(column)]; };
        add(
            base, size, type,
            [&](std::int64_t row, std::int64_t column) {
                return values.at(row, column) - (zeros ? zeros->at(row, group_of(column)) : half);
            },
            [&](std::int64_t row, std::int64_t column) { return scales.at(row, group_of(column)); }, words);
    }

    // int8 values [rows, columns]; a scale for all, for each row, or for groups of columns.
    void read_int8(const weight& values, const std::string& base) {
        const matrix_size size = size_of(values);
        const scale_table scales(from_.at(base + ".weight_scale"));
        const bool for_all = scales.values.size() == 1;
        require(for_all || scales.rows == size.rows, base, ".weight_scale: has ", scales.rows, " rows; 1 or ",
                size.rows, " can be read");
        const std::int64_t per_group =
            columns_per_group(base + ".weight_scale", size.columns, for_all ? 1 : scales.columns);
        const weight* zeros = from_.find(base + ".weight_zero_point");
        std::vector<float> zero_points;
        if (zeros != nullptr) {
            zero_points = to_floats(*zeros);
            require(zeros->type == weight_type::i8, zeros->name, ": is ", name_of(zeros->type), "; it must be i8");
            require(zero_points.size() == scales.values.size(), zeros->name, ": has the shape ",
                    to_string(zeros->shape), "; a zero point for each of ", scales.values.size(), " scales is needed");
        }
        const bool has_zeros = std::ranges::any_of(zero_points, [](float zero) { return zero != 0; });
        const auto place = [&](std::int64_t row, std::int64_t column) {
            return static_cast<std::size_t>(for_all ? 0 : row * scales.columns + column / per_group);
        };
        const int range = has_zeros ? 255 : 128;
        add(
            base, size, type_for(-range, has_zeros ? range : 127, per_group, scales),
            [&](std::int64_t row, std::int64_t column) {
                const int value = read<std::int8_t>(values.bytes.data() + row * size.columns + column);
                return value - (has_zeros ? static_cast<int>(zero_points[place(row, column)]) : 0);
            },
            [&](std::int64_t row, std::int64_t column) { return scales.values[place(row, column)]; }, values);
    }

    // e4m3 values [rows, columns]; a scale for all, for each row, or for blocks of rows and columns.
    void read_fp8(const weight& values, const std::string& base) {
        const matrix_size size = size_of(values);
        const weight* inverse = from_.find(base + ".weight_scale_inv");
        const weight& scale_weight = inverse != nullptr ? *inverse : from_.at(base + ".weight_scale");
        const scale_table scales(scale_weight);
        std::int64_t block_rows = size.rows, block_columns = size.columns;
        if (const json* block = find_member(config_, "weight_block_size")) {
            const bool is_pair = block->is_array() && block->size() == 2 && (*block)[0].is_number_unsigned() &&
                                 (*block)[1].is_number_unsigned() && (*block)[0] > 0 && (*block)[1] > 0;
            require(is_pair, where_, "weight_block_size is ", shown(*block), "; it must be two positive whole numbers");
            block_rows = (*block)[0].get<std::int64_t>();
            block_columns = (*block)[1].get<std::int64_t>();
        } else if (scales.values.size() > 1) {
            block_rows = 1;
        }
        const auto blocks = [](std::int64_t all, std::int64_t block) {
            return all / block + (all % block != 0 ? 1 : 0);
        };
        require(scales.rows == blocks(size.rows, block_rows) && scales.columns == blocks(size.columns, block_columns),
                scale_weight.name, ": has the shape ", to_string(scale_weight.shape), "; the weight has the shape ",
                to_string(values.shape), " and a scale for each ", block_rows, " x ", block_columns, " elements");
        add(
            base, size, weight_type::bf16,
            [&](std::int64_t row, std::int64_t column) {
                return e4m3_values()[read<std::uint8_t>(values.bytes.data() + row * size.columns + column)];
            },
            [&](std::int64_t row, std::int64_t column) { return scales.at(row / block_rows, column / block_columns); },
            values);
    }

    static const std::vector<float>& e4m3_values() {
        static const std::vector<float> all = [] {
            std::vector<std::byte> bytes;
            for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<std::byte>(i));
            return to_floats(weight{"e4m3", weight_type::e4m3, {256}, bytes});
        }();
        return all;
    }

    static matrix_size size_of(const weight& values) {
        require(values.shape.size() == 2 && values.elements() > 0, values.name, ": has the shape ",
                to_string(values.shape), "; a quantised weight must be a matrix");
        return {values.shape[0], values.shape[1]};
    }

    const weight_set& from_;
    const json& config_;
    std::string where_, method_;
    weight_set result_;
};

}  // namespace

weight_set read_quantised_checkpoint(const weight_set& weights, const json& quantisation, const std::string& file) {
    require(quantisation.is_object(), file, ": quantization_config is ", shown(quantisation), "; it must be an object");
    const bool is_mxfp4 = string_member(quantisation, "quant_method", file) == "mxfp4";
    return is_mxfp4 ? weights : checkpoint_reader(weights, quantisation, file).run();
}

}  // namespace imbrex::engine
