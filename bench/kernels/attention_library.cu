// Attention's forward kernels behind C functions, so that bench/kernels/attention.py can call them on PyTorch's tensors, where
// the peers are. "d128_chosen" is what the launcher makes of a depth of 128, "d128_relaxed" the same with
// attention_softmax::relaxed. Any other variant is one shape of the kernel for one
// depth, named by that and by its groups and columns; with "_drawn" behind its name, blocks draw
// their work from a counter instead of taking it in turn.
#include <imbrex/kernels/attention_forward.hpp>

#include "attention_calls.hpp"

#include <algorithm>
#include <string>
#include <string_view>

using namespace imbrex;

namespace {

struct problem {
    bf16* q;
    bf16* k;
    bf16* v;
    bf16* out;
    float* log2_sums;  // or null
    int batches, heads, key_heads, queries, keys;
    float scale;
    cudaStream_t stream;
};

enum class dealt { in_turn, by_counter };

attention_problem<bf16> described(const problem& p, int depth) {
    return {.q = batch_sequence_head<const bf16>(p.q, p.batches, p.queries, p.heads, depth),
            .k = batch_sequence_head<const bf16>(p.k, p.batches, p.keys, p.key_heads, depth),
            .v = batch_sequence_head<const bf16>(p.v, p.batches, p.keys, p.key_heads, depth),
            .out = batch_sequence_head(p.out, p.batches, p.queries, p.heads, depth),
            .log2_sums = batch_head_rows(p.log2_sums, p.heads, p.queries),
            .scale = p.scale};
}

template <int Depth, class Mask, attention_softmax Softmax>
void launch_chosen(const problem& p, dealt) {
    using attention = attention_forward<bf16, Mask, plain_score, attention_result::normalised, attention_tiles<Depth>,
                                        attention_keys::in_rows, Softmax>;
    attention::launch(world::device, described(p, Depth), {}, {}, p.stream);
}

template <int Depth, class Mask, attention_shape Shape>
void launch_attention(const problem& p, dealt work) {
    using kernel = attention_hopper<bf16, Depth, Depth, Mask, plain_score, Shape>;
    const attention_problem<bf16> all = described(p, Depth);
    const int blocks = (p.queries + kernel::rows - 1) / kernel::rows;
    const int processors = processors_of(world::device);
    const double key_bytes = 4.0 * p.batches * p.key_heads * p.keys * Depth;
    const auto costs = attention_costs({kernel::rows, kernel::part_rows, kernel::columns, kernel::can_rest}, p.queries,
                                       p.keys, Mask{});
    const int sections = attention_sections(costs, p.batches * p.heads, key_bytes, processors);
    typename kernel::arguments arguments{};
    arguments.q = tensor_of<typename kernel::q_tile>(all.q);
    arguments.k = tensor_of<typename kernel::k_tile>(all.k);
    arguments.v = tensor_of<typename kernel::v_tile>(all.v);
    arguments.out_view = all.out;
    arguments.out = tensor_of<typename kernel::out_tile>(all.out, tensor_use::store);
    arguments.outputs.log2_sums = all.log2_sums;
    arguments.scale = p.scale;
    arguments.factor = factor_after(plain_score{}, p.scale);
    arguments.order = {p.batches, p.heads, blocks, sections};
    arguments.lengths.queries = p.queries;
    arguments.lengths.keys = p.keys;
    arguments.heads_per_key_head = p.heads / p.key_heads;
    if (work == dealt::by_counter) arguments.counter = bench::work_counter();
    const int pieces = arguments.order.total(arguments.lengths);
    device::launch<kernel>({std::min(processors, pieces)}, arguments, p.stream);
}

struct variant {
    std::string_view name;
    int depth;
    void (*full)(const problem&, dealt);
    void (*causal)(const problem&, dealt);
};

template <int Depth, attention_shape Shape>
constexpr variant variant_of(std::string_view name) {
    return {name, Depth, launch_attention<Depth, full_mask, Shape>, launch_attention<Depth, causal_mask, Shape>};
}

template <int Depth, attention_softmax Softmax>
constexpr variant chosen_of(std::string_view name) {
    return {name, Depth, launch_chosen<Depth, full_mask, Softmax>, launch_chosen<Depth, causal_mask, Softmax>};
}

constexpr variant variants[] = {
    chosen_of<128, attention_softmax::exact>("d128_chosen"),
    chosen_of<64, attention_softmax::exact>("d64_chosen"),
    chosen_of<96, attention_softmax::exact>("d96_chosen"),
    chosen_of<128, attention_softmax::relaxed>("d128_relaxed"),
    chosen_of<64, attention_softmax::relaxed>("d64_relaxed"),
    chosen_of<96, attention_softmax::relaxed>("d96_relaxed"),
    variant_of<128, attention_shape{.groups = 2, .columns = 128}>("d128_2x128"),
    variant_of<128, attention_shape{.groups = 2, .columns = 160}>("d128_2x160"),
    variant_of<128, attention_shape{.groups = 2, .columns = 176}>("d128_2x176"),
    variant_of<64, attention_shape{.groups = 2, .columns = 128}>("d64_2x128"),
    variant_of<64, attention_shape{3, 112, 2, 32, 160}>("d64_3x112"),
    variant_of<64, attention_shape{3, 128, 2, 32, 160}>("d64_3x128"),
};
constexpr std::string_view drawn = "_drawn";

const std::string& names() {
    static const std::string lines = [] {
        std::string text;
        for (const variant& one : variants) {
            text += std::string(one.name) + '\n';
            if (!one.name.ends_with("_chosen") && !one.name.ends_with("_relaxed"))
                text += std::string(one.name) + std::string(drawn) + '\n';
        }
        return text;
    }();
    return lines;
}

void forward(std::string_view name, const problem& p, int depth, bool causal) {
    const dealt work = name.ends_with(drawn) ? dealt::by_counter : dealt::in_turn;
    std::string_view shape = name;
    if (work == dealt::by_counter) shape.remove_suffix(drawn.size());
    const auto found =
        std::find_if(std::begin(variants), std::end(variants), [=](const variant& one) { return one.name == shape; });
    require(found != std::end(variants), "variant: ", std::string(name), "; there are:\n", names());
    require(depth == found->depth, "depth: ", depth, "; variant ", std::string(name), " has ", found->depth);
    require(p.q != nullptr && p.k != nullptr && p.v != nullptr && p.out != nullptr, "q, k, v, out: ", p.q, ", ", p.k,
            ", ", p.v, ", ", p.out, "; none may be null");
    require(p.batches > 0 && p.queries > 0 && p.keys > 0, "batch, queries, keys: ", p.batches, ", ", p.queries, ", ",
            p.keys, "; each must be positive");
    require(p.heads > 0 && p.key_heads > 0 && p.heads % p.key_heads == 0, "heads, key_heads: ", p.heads, ", ",
            p.key_heads, "; both must be positive, and the first a multiple of the second");
    (causal ? found->causal : found->full)(p, work);
}

}  // namespace

extern "C" {

// The variants' names, a line each.
const char* imbrex_attention_variants() {
    return names().c_str();
}

const char* imbrex_attention_last_error() {
    return bench::last_error().c_str();
}

// Tensors are bf16 [batch, sequence, head, depth]; log2_sums [batch, head, query] or null.
int imbrex_attention_forward(const char* variant, void* q, void* k, void* v, void* out, float* log2_sums, int batch,
                             int heads, int key_heads, int queries, int keys, int depth, int causal, float scale,
                             void* stream) {
    const auto matrix = [](void* pointer) { return static_cast<bf16*>(pointer); };
    return bench::status_of([&] {
        require(variant != nullptr, "variant: null; a name is needed");
        forward(variant,
                {matrix(q), matrix(k), matrix(v), matrix(out), log2_sums, batch, heads, key_heads, queries, keys, scale,
                 static_cast<cudaStream_t>(stream)},
                depth, causal != 0);
    });
}

}  // extern "C"
