// Attention's forward kernels behind C functions, so that bench/kernels/attention.py can call them on PyTorch's tensors, where
// the peers are. A variant is one shape of the kernel for one depth, named by that and by its groups and columns; with
// "_all_heads" behind its name, causal attention takes the longest blocks of all heads first, instead of those of a few heads.
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/hopper.hpp>

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>

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

enum class taken_together { few_heads, all_heads };

// Of [batch, sequence, head, depth], without gaps.
attention_view<bf16> view_of(bf16* pointer, int batches, int length, int heads, int depth) {
    const std::int64_t row = std::int64_t(heads) * depth;
    return {pointer, {batches, heads, length, depth}, {length * row, depth, row}};
}

// Heads whose blocks, the longest first, keep the multiprocessors busy for about three rounds: few enough for their keys to
// stay in L2, and enough for long blocks to be evened out by short ones.
int heads_in_section(const problem& p, int blocks, int processors) {
    const int enough = (3 * processors + blocks / 2) / blocks;
    return std::clamp(enough, 1, p.batches * p.heads);
}

template <int Depth, class Mask, attention_shape Shape>
void launch_attention(const problem& p, taken_together together) {
    using kernel = attention_hopper<bf16, Depth, Depth, Mask, plain_score, Shape>;
    const int blocks = (p.queries + kernel::rows - 1) / kernel::rows;
    const int processors = processors_of(world::device);
    int section = 0;
    if (!std::is_same_v<Mask, full_mask>) {
        section = together == taken_together::all_heads ? p.batches * p.heads : heads_in_section(p, blocks, processors);
    }
    typename kernel::arguments arguments{};
    arguments.q = tensor_of<typename kernel::q_tile>(view_of(p.q, p.batches, p.queries, p.heads, Depth));
    arguments.k = tensor_of<typename kernel::k_tile>(view_of(p.k, p.batches, p.keys, p.key_heads, Depth));
    arguments.v = tensor_of<typename kernel::v_tile>(view_of(p.v, p.batches, p.keys, p.key_heads, Depth));
    arguments.out_view = view_of(p.out, p.batches, p.queries, p.heads, Depth);
    arguments.out = tensor_of<typename kernel::out_tile>(arguments.out_view, tensor_use::store);
    arguments.outputs.log2_sums = {p.log2_sums, std::int64_t(p.heads) * p.queries, p.queries};
    arguments.scale = p.scale;
    arguments.order = {p.batches, p.heads, blocks, section};
    arguments.lengths.queries = p.queries;
    arguments.lengths.keys = p.keys;
    arguments.heads_per_key_head = p.heads / p.key_heads;
    device::launch<kernel>({std::min(processors, arguments.order.total())}, arguments, p.stream);
}

struct variant {
    std::string_view name;
    int depth;
    void (*full)(const problem&, taken_together);
    void (*causal)(const problem&, taken_together);
};

template <int Depth, attention_shape Shape>
constexpr variant variant_of(std::string_view name) {
    return {name, Depth, launch_attention<Depth, full_mask, Shape>, launch_attention<Depth, causal_mask, Shape>};
}

constexpr variant variants[] = {
    variant_of<128, attention_shape{.groups = 2, .columns = 128}>("d128_2x128"),
    variant_of<128, attention_shape{.groups = 2, .columns = 160}>("d128_2x160"),
    variant_of<128, attention_shape{.groups = 2, .columns = 176}>("d128_2x176"),
    variant_of<64, attention_shape{.groups = 2, .columns = 128}>("d64_2x128"),
    variant_of<64, attention_shape{.groups = 2, .columns = 192}>("d64_2x192"),
    // Wider tiles would spill: three groups have 160 registers a thread.
    variant_of<64, attention_shape{3, 112, 2, 32, 160}>("d64_3x112"),
};
constexpr std::string_view all_heads = "_all_heads";

const std::string& names() {
    static const std::string lines = [] {
        std::string text;
        for (const variant& one : variants) {
            text += std::string(one.name) + '\n' + std::string(one.name) + std::string(all_heads) + '\n';
        }
        return text;
    }();
    return lines;
}

void forward(std::string_view name, const problem& p, int depth, bool causal) {
    const taken_together together = name.ends_with(all_heads) ? taken_together::all_heads : taken_together::few_heads;
    std::string_view shape = name;
    if (together == taken_together::all_heads) shape.remove_suffix(all_heads.size());
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
    (causal ? found->causal : found->full)(p, together);
}

thread_local std::string last_error;

}  // namespace

extern "C" {

// The variants' names, a line each.
const char* imbrex_attention_variants() {
    return names().c_str();
}

// What went wrong in this thread's last call that did not return 0.
const char* imbrex_attention_last_error() {
    return last_error.c_str();
}

// Tensors are bf16 [batch, sequence, head, depth]; log2_sums [batch, head, query] or null. Returns 0, or 1 where an argument is
// not allowed, 2 for an error of CUDA, 3 for any other.
int imbrex_attention_forward(const char* variant, void* q, void* k, void* v, void* out, float* log2_sums, int batch,
                             int heads, int key_heads, int queries, int keys, int depth, int causal, float scale,
                             void* stream) {
    const auto matrix = [](void* pointer) { return static_cast<bf16*>(pointer); };
    try {
        require(variant != nullptr, "variant: null; a name is needed");
        forward(variant,
                {matrix(q), matrix(k), matrix(v), matrix(out), log2_sums, batch, heads, key_heads, queries, keys, scale,
                 static_cast<cudaStream_t>(stream)},
                depth, causal != 0);
        return 0;
    } catch (const invalid_argument& fault) {
        last_error = fault.what();
        return 1;
    } catch (const cuda_error& fault) {
        last_error = fault.what();
        return 2;
    } catch (const std::exception& fault) {
        last_error = fault.what();
        return 3;
    }
}

}  // extern "C"
