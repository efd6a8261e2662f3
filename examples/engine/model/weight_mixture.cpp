#include "engine/model/weight_mixture.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/model/weight_conversion.hpp"

namespace imbrex::engine {

namespace {

bool is_matrix(const weight& one) {
    return one.shape.size() >= 2;
}

bool is_lm_head(const std::string& name) {
    return name == "lm_head.weight" || name == "output.weight";
}
bool is_embedding(const std::string& name) {
    return name == "model.embed_tokens.weight" || name == "token_embd.weight";
}

// The name that matrices of one GEMM share.
std::string name_of_stack(const std::string& name) {
    using pair = std::pair<const char*, const char*>;
    for (const auto& [part, stack] :
         {pair{"q_proj", "qkv"}, pair{"k_proj", "qkv"}, pair{"v_proj", "qkv"}, pair{"attn_q.", "qkv"},
          pair{"attn_k.", "qkv"}, pair{"attn_v.", "qkv"}, pair{"gate_proj", "gate_up"}, pair{"up_proj", "gate_up"},
          pair{"ffn_gate.", "gate_up"}, pair{"ffn_up.", "gate_up"}}) {
        const std::size_t at = name.find(part);
        if (at != std::string::npos) return name.substr(0, at) + stack;
    }
    return name;
}

// One choice for a stack: a type for all, or nothing for the types of the file.
struct type_option {
    std::optional<weight_type> type;
    std::int64_t bytes = 0;
    double error = 0;
};

struct weight_stack {
    std::vector<const weight*> parts{};
    double importance = 0;
    std::vector<type_option> options{};  // by size; each has less error than the one before
    std::size_t chosen = 0;

    const type_option& choice() const { return options[chosen]; }
};

std::int64_t bytes_in(const weight& one, std::optional<weight_type> type) {
    return static_cast<std::int64_t>(type ? row_bytes(*type, one.row_elements()) * static_cast<std::size_t>(one.rows())
                                          : one.bytes.size());
}

// Sum of squared errors over sum of squares, of a sample of rows.
double measured_error(const weight& from, weight_type type) {
    constexpr std::int64_t sampled_elements = 1 << 16;
    if (type == from.type) return 0;
    const std::int64_t columns = from.row_elements(), rows = from.rows();
    const std::int64_t count = std::clamp<std::int64_t>(sampled_elements / std::max<std::int64_t>(columns, 1), 1, rows);
    std::vector<float> exact(static_cast<std::size_t>(columns)), found(exact.size());
    weight row{from.name, type, {1, columns}, {}};
    double errors = 0, squares = 0;
    std::vector<std::byte> bytes(row_bytes(type, columns));
    row.bytes = bytes;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t number = i * rows / count;
        to_floats(from, number, 1, exact);
        convert_rows(from, number, 1, type, bytes.data());
        to_floats(row, 0, 1, found);
        for (std::size_t k = 0; k < exact.size(); ++k) {
            const double value = exact[k], error = value - double{found[k]};
            errors += error * error;
            squares += value * value;
        }
    }
    return squares > 0 ? errors / squares : 0;
}

std::vector<type_option> options_of(const weight_stack& stack, std::span<const weight_type> types, bool keeps) {
    std::vector<type_option> all;
    const auto add = [&](std::optional<weight_type> type) {
        type_option made{type};
        for (const weight* part : stack.parts) {
            if (type && part->row_elements() % format_of(*type).elements != 0) return;
            made.bytes += bytes_in(*part, type);
            made.error += type ? stack.importance * measured_error(*part, *type) : 0;
        }
        all.push_back(made);
    };
    for (const weight_type type : types) add(type);
    if (keeps) add({});
    std::ranges::stable_sort(all, {}, &type_option::bytes);
    std::vector<type_option> useful;
    for (const type_option& one : all) {
        if (useful.empty() || one.error < useful.back().error) useful.push_back(one);
    }
    return useful;
}

std::vector<weight_stack> stacks_of(const weight_set& weights, world where) {
    constexpr std::array packed{weight_type::q4_0, weight_type::q8_0, weight_type::bf16};
    constexpr std::array all{weight_type::q4_0, weight_type::q5_0, weight_type::q8_0, weight_type::bf16};
    const bool is_gpu = where == world::device;
    const std::span<const weight_type> types = is_gpu ? std::span<const weight_type>(packed) : all;
    std::map<std::string, weight_stack> by_name;
    double matrices = 0;
    bool has_lm_head = false;
    for (const weight& one : weights.all()) {
        if (!is_matrix(one)) continue;
        by_name[name_of_stack(one.name)].parts.push_back(&one);
        ++matrices;
        has_lm_head = has_lm_head || is_lm_head(one.name);
    }
    std::vector<weight_stack> stacks;
    for (auto& [name, stack] : by_name) {
        const bool ends = is_lm_head(name) || (is_embedding(name) && !has_lm_head);
        stack.importance = ends ? matrices : 1;
        stack.options = options_of(stack, types, !is_gpu);
        stacks.push_back(std::move(stack));
    }
    return stacks;
}

// The next step: a stack and its next option. Nothing if no better option fits in the bytes left.
std::optional<std::pair<weight_stack*, std::size_t>> best_step(std::vector<weight_stack>& stacks, std::int64_t left) {
    std::optional<std::pair<weight_stack*, std::size_t>> best;
    double highest = 0;
    for (weight_stack& stack : stacks) {
        for (std::size_t next = stack.chosen + 1; next < stack.options.size(); ++next) {
            const std::int64_t bytes = stack.options[next].bytes - stack.choice().bytes;
            const double gain = (stack.choice().error - stack.options[next].error) / static_cast<double>(bytes);
            if (bytes > left || gain <= highest) continue;
            highest = gain;
            best.emplace(&stack, next);
        }
    }
    return best;
}

}  // namespace

weight_types mixture_of(const weight_set& weights, double bits_per_weight, world where) {
    std::vector<weight_stack> stacks = stacks_of(weights, where);
    double elements = 0;
    std::int64_t bytes = 0;
    for (const weight_stack& stack : stacks) {
        for (const weight* part : stack.parts) elements += static_cast<double>(part->elements());
        bytes += stack.choice().bytes;
    }
    require(static_cast<double>(bytes) * 8 <= bits_per_weight * elements, "weights-budget: ", bits_per_weight,
            " bits per weight; the smallest types take ", static_cast<double>(bytes) * 8 / elements);
    const auto all = static_cast<std::int64_t>(bits_per_weight * elements / 8);
    while (const auto step = best_step(stacks, all - bytes)) {
        auto& [stack, next] = *step;
        bytes += stack->options[next].bytes - stack->choice().bytes;
        stack->chosen = next;
    }
    weight_types types;
    for (const weight_stack& stack : stacks) {
        for (const weight* part : stack.parts) types[part->name] = stack.choice().type.value_or(part->type);
    }
    return types;
}

weight_set converted(const weight_set& weights, const weight_types& types, const loading_progress& progress) {
    weight_set result;
    for (const auto& owner : weights.owners()) result.keep(owner);  // of the weights that stay in the file
    std::int64_t done = 0;
    for (const weight& one : weights.all()) {
        weight made = one;
        const auto type = types.find(one.name);
        if (type != types.end() && type->second != one.type) {
            const auto own =
                std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes_in(one, type->second)));
            convert_rows(one, 0, one.rows(), type->second, own->data());
            mapped_file::drop_pages(one.bytes);
            made.type = type->second;
            made.bytes = *own;
            result.keep(own);
        }
        done += static_cast<std::int64_t>(one.bytes.size());
        result.add(std::move(made), "the mixture");
        if (progress) progress(done, weights.bytes());
    }
    return result;
}

void mix_weights(model_files& files, runner_options& options, const loading_progress& progress) {
    if (options.weights != weight_format::mixed) return;
    const weight_types types = mixture_of(files.weights, options.bits_per_weight, options.where);
    files.weights = converted(files.weights, types, progress);
    options.weights = weight_format::as_in_file;
}

double bits_per_weight(const weight_set& weights) {
    double bytes = 0, elements = 0;
    for (const weight& one : weights.all()) {
        if (!is_matrix(one)) continue;
        bytes += static_cast<double>(one.bytes.size());
        elements += static_cast<double>(one.elements());
    }
    return elements > 0 ? 8 * bytes / elements : 0;
}

}  // namespace imbrex::engine
