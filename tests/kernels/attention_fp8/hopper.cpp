// The 8-bit attention kernel under adversarial schedules, in small shapes: no hazard, and every mutation detected.
#include <imbrex/kernels/attention_fp8.hpp>

#include "kernels/attention_fp8/trial.hpp"
#include "synchronisation.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr auto promoted = fp8_accumulation::promoted, fast = fp8_accumulation::fast;
constexpr auto row_major = fp8_v_layout::row_major, k_major = fp8_v_layout::k_major;

template <class Mask, class Scaling, fp8_accumulation Sum, fp8_v_layout Layout, attention_fp8_shape Shape,
          class Lengths = attention_seqlens>
void check_kernel(const char* name, const fp8_case& given) {
    using kernel = attention_fp8_hopper<bf16, 32, Mask, score_mod::identity, Scaling, Sum, Layout, Shape, Lengths>;
    fp8_trial<bf16, Scaling, Layout> there(world::host_checked, given, 1);
    const auto arguments = attention_fp8_arguments<kernel>(there.upload(), Mask{}, score_mod::identity{}, 2);
    check_synchronisation<kernel>(name, {2}, arguments);
    host::launch<kernel>({2}, arguments);
    const auto worst =
        there.compare([](const attention_extents& s, int query, int key) { return Mask{}.keep(s, query, key); },
                      [](const attention_extents&, int, int, double x) { return x; });
    CHECK(worst.out <= 1);
    CHECK(worst.lse2 <= 1e-4);
}

}  // namespace

TEST_CASE("8-bit attention has no hazard in any schedule, and the checker detects every mutation") {
    // The keys end inside a tile; blocks have several work tiles.
    fp8_case given{.batches = 2, .heads = 4, .kv_heads = 1, .seqlen_q = 270, .seqlen_k = 200, .head_dim = 32};
    given.used_k = {150, 200};
    check_kernel<causal_mask, fp8_scaling::per_block<64, 32>, promoted, row_major,
                 attention_fp8_shape{.block_n = 32, .product_columns = 16}>("promoted, blocks, V transposed", given);
    // Three warpgroups, some of them without queries. With the order barrier, a warpgroup that has passed it knows that
    // V has arrived, and one wait is redundant: without it each is necessary.
    constexpr attention_fp8_shape three{.consumer_warpgroups = 3,
                                        .block_n = 32,
                                        .producer_registers = 32,
                                        .consumer_registers = 160,
                                        .pingpong = false};
    check_kernel<full_mask, fp8_scaling::per_head, fast, k_major, three>("fast, V reordered", given);
    // Sums in shared memory, of two key tiles each: three promotions, one and none. The order barrier would make a sync
    // redundant.
    fp8_case sums{.batches = 3, .heads = 2, .kv_heads = 1, .seqlen_q = 130, .seqlen_k = 224, .head_dim = 32};
    sums.used_k = {222, 96, 30};
    check_kernel<causal_mask, fp8_scaling::per_block<64, 32>, promoted, row_major,
                 attention_fp8_shape{.block_n = 32, .pingpong = false, .promotion_interval = 2}>(
        "promoted in shared memory", sums);
    // Pages of 32 keys: two for a tile.
    fp8_case pages{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 130, .seqlen_k = 160, .head_dim = 32};
    pages.used_k = {70, 160};
    pages.page_size = 32;
    check_kernel<causal_mask, fp8_scaling::per_head, promoted, row_major, attention_fp8_shape{.block_n = 64},
                 paged_seqlens>("paged", pages);
}
