// Attention forward kernels behind C functions, so that bench/kernels/attention.py can call them on PyTorch tensors,
// next to the peers. "d128_heuristic" is the launcher's choice for head_dim 128, "d128_lazy_rescaling" the same with
// attention_rescaling::lazy. Every other variant is one tile shape for one head_dim, named by its consumer warpgroups
// and block_n; the suffix "_dynamic" selects the dynamic scheduler (tile counter).
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
    float* lse2;  // or null
    int batches, heads, kv_heads, seqlen_q, seqlen_k;
    float scale;
    cudaStream_t stream;
};

enum class tile_order { static_order, by_counter };

attention_problem<bf16> described(const problem& p, int head_dim) {
    return {.q = batch_sequence_head<const bf16>(p.q, p.batches, p.seqlen_q, p.heads, head_dim),
            .k = batch_sequence_head<const bf16>(p.k, p.batches, p.seqlen_k, p.kv_heads, head_dim),
            .v = batch_sequence_head<const bf16>(p.v, p.batches, p.seqlen_k, p.kv_heads, head_dim),
            .out = batch_sequence_head(p.out, p.batches, p.seqlen_q, p.heads, head_dim),
            .lse2 = batch_head_rows(p.lse2, p.heads, p.seqlen_q),
            .scale = p.scale};
}

template <int HeadDim, class Mask, attention_rescaling Softmax>
void launch_heuristic(const problem& p, tile_order) {
    using attention = attention_forward<bf16, attention_options{.head_dims = {HeadDim}, .rescaling = Softmax}, Mask>;
    attention::launch(world::device, described(p, HeadDim), {}, {}, p.stream);
}

template <int HeadDim, class Mask, attention_shape Shape>
void launch_attention(const problem& p, tile_order work) {
    using kernel = attention_hopper<bf16, HeadDim, HeadDim, Mask, score_mod::identity, Shape>;
    const attention_problem<bf16> all = described(p, HeadDim);
    const int blocks = (p.seqlen_q + kernel::block_m - 1) / kernel::block_m;
    const int num_sms = imbrex::num_sms(world::device);
    const double key_bytes = 4.0 * p.batches * p.kv_heads * p.seqlen_k * HeadDim;
    const auto costs = attention_block_costs({kernel::block_m, kernel::block_m_step, kernel::block_n, kernel::can_idle},
                                             p.seqlen_q, p.seqlen_k, Mask{});
    const int l2_sections = attention_l2_sections(costs, p.batches * p.heads, key_bytes, num_sms);
    typename kernel::arguments arguments{};
    arguments.q = make_tma_tensor<typename kernel::q_tile>(all.q);
    arguments.k = make_tma_tensor<typename kernel::k_tile>(all.k);
    arguments.v = make_tma_tensor<typename kernel::v_tile>(all.v);
    arguments.out_view = all.out;
    arguments.out = make_tma_tensor<typename kernel::out_tile>(all.out, tma_use::store);
    arguments.outputs.lse2 = all.lse2;
    arguments.scale = p.scale;
    arguments.scale_log2 = scale_log2_after(score_mod::identity{}, p.scale);
    arguments.scheduler = {p.batches, p.heads, blocks, l2_sections};
    arguments.lengths.seqlen_q = p.seqlen_q;
    arguments.lengths.seqlen_k = p.seqlen_k;
    arguments.q_heads_per_kv_head = p.heads / p.kv_heads;
    if (work == tile_order::by_counter) arguments.tile_counter = bench::tile_counter();
    const int pieces = arguments.scheduler.total(arguments.lengths);
    device::launch<kernel>({std::min(num_sms, pieces)}, arguments, p.stream);
}

struct variant {
    std::string_view name;
    int head_dim;
    void (*full)(const problem&, tile_order);
    void (*causal)(const problem&, tile_order);
};

template <int HeadDim, attention_shape Shape>
constexpr variant variant_of(std::string_view name) {
    return {name, HeadDim, launch_attention<HeadDim, full_mask, Shape>, launch_attention<HeadDim, causal_mask, Shape>};
}

template <int HeadDim, attention_rescaling Softmax>
constexpr variant heuristic_of(std::string_view name) {
    return {name, HeadDim, launch_heuristic<HeadDim, full_mask, Softmax>,
            launch_heuristic<HeadDim, causal_mask, Softmax>};
}

constexpr variant variants[] = {
    heuristic_of<128, attention_rescaling::exact>("d128_heuristic"),
    heuristic_of<64, attention_rescaling::exact>("d64_heuristic"),
    heuristic_of<96, attention_rescaling::exact>("d96_heuristic"),
    heuristic_of<128, attention_rescaling::lazy>("d128_lazy_rescaling"),
    heuristic_of<64, attention_rescaling::lazy>("d64_lazy_rescaling"),
    heuristic_of<96, attention_rescaling::lazy>("d96_lazy_rescaling"),
    variant_of<128, attention_shape{.consumer_warpgroups = 2, .block_n = 128}>("d128_2x128"),
    variant_of<128, attention_shape{.consumer_warpgroups = 2, .block_n = 160}>("d128_2x160"),
    variant_of<128, attention_shape{.consumer_warpgroups = 2, .block_n = 176}>("d128_2x176"),
    variant_of<64, attention_shape{.consumer_warpgroups = 2, .block_n = 128}>("d64_2x128"),
    variant_of<64, attention_shape{3, 112, 2, 32, 160}>("d64_3x112"),
    variant_of<64, attention_shape{3, 128, 2, 32, 160}>("d64_3x128"),
};
constexpr std::string_view dynamic_suffix = "_dynamic";

const std::string& names() {
    static const std::string lines = [] {
        std::string text;
        for (const variant& one : variants) {
            text += std::string(one.name) + '\n';
            if (!one.name.ends_with("_heuristic") && !one.name.ends_with("_lazy_rescaling"))
                text += std::string(one.name) + std::string(dynamic_suffix) + '\n';
        }
        return text;
    }();
    return lines;
}

void forward(std::string_view name, const problem& p, int head_dim, bool causal) {
    const tile_order work = name.ends_with(dynamic_suffix) ? tile_order::by_counter : tile_order::static_order;
    std::string_view shape = name;
    if (work == tile_order::by_counter) shape.remove_suffix(dynamic_suffix.size());
    const auto found =
        std::find_if(std::begin(variants), std::end(variants), [=](const variant& one) { return one.name == shape; });
    require(found != std::end(variants), "variant: ", std::string(name), "; the variants are:\n", names());
    require(head_dim == found->head_dim, "head_dim: ", head_dim, "; variant ", std::string(name), " has ",
            found->head_dim);
    require(p.q != nullptr && p.k != nullptr && p.v != nullptr && p.out != nullptr, "q, k, v, out: ", p.q, ", ", p.k,
            ", ", p.v, ", ", p.out, "; none may be null");
    require(p.batches > 0 && p.seqlen_q > 0 && p.seqlen_k > 0, "batch, seqlen_q, seqlen_k: ", p.batches, ", ",
            p.seqlen_q, ", ", p.seqlen_k, "; each must be positive");
    require(p.heads > 0 && p.kv_heads > 0 && p.heads % p.kv_heads == 0, "heads, kv_heads: ", p.heads, ", ", p.kv_heads,
            "; both must be positive, and the first a multiple of the second");
    (causal ? found->causal : found->full)(p, work);
}

}  // namespace

extern "C" {

// The names of the variants, one per line.
const char* imbrex_attention_variants() {
    return names().c_str();
}

const char* imbrex_attention_last_error() {
    return bench::last_error().c_str();
}

// Tensors are bf16 [batch, sequence, head, head_dim]; lse2 [batch, head, query] or null.
int imbrex_attention_forward(const char* variant, void* q, void* k, void* v, void* out, float* lse2, int batch,
                             int heads, int kv_heads, int seqlen_q, int seqlen_k, int head_dim, int causal, float scale,
                             void* stream) {
    const auto matrix = [](void* pointer) { return static_cast<bf16*>(pointer); };
    return bench::status_of([&] {
        require(variant != nullptr, "variant: null; a name is needed");
        forward(variant,
                {matrix(q), matrix(k), matrix(v), matrix(out), lse2, batch, heads, kv_heads, seqlen_q, seqlen_k, scale,
                 static_cast<cudaStream_t>(stream)},
                head_dim, causal != 0);
    });
}

}  // extern "C"
