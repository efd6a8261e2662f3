// wgmma: operands in every layout in shared memory, A in registers, subtiles, every element type.
#include <hw/cuda/wgmma_product.hpp>

using namespace hw_test;

namespace {

// Products of subtiles: rows and columns of A, rows of B, as in a kernel that splits its tiles.
struct parts {
    static constexpr int warps = 4;
    struct arguments {
        const bf16 *a, *b;
        float* c;
    };
    struct shared_memory {
        shared_tile<bf16, 128, 128> a;
        shared_tile<bf16, 128, 128> b;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        hw::copy_in(block, smem.a, global_tile<const bf16>{args.a, 128, 128, 128}, bf16{});
        hw::copy_in(block, smem.b, global_tile<const bf16>{args.b, 128, 128, 128}, bf16{});
        hw::async_fence(block);
        block.sync();
        block.each_warpgroup([&](auto& group) {
            hw::fragment<float, 64, 64, 4> c;
            // A: from row 64, column 32. B: from row (k) 64, column 64.
            hw::wgmma<false, false>(group, c, smem.a.template subtile<64, 32>(64, 32),
                                    smem.b.template subtile<32, 64>(64, 64), false);
            hw::wgmma_commit(group);
            hw::wgmma_wait<0>(group);
            hw::store_global(group, global_tile<float>{args.c, 64, 64, 64}, c);
        });
    }
};

}  // namespace

TEST_CASE("a warpgroup multiplies K-major and MN-major operands") {
    if (skipped()) return;
    check_product<float, bf16, bf16, 64, 128, 64, false, false>(1.0F, exact_enough);
    check_product<float, bf16, bf16, 64, 96, 128, true, false>(1.0F, exact_enough);
    check_product<float, bf16, bf16, 128, 80, 64, true, true>(1.0F, exact_enough);
    check_product<float, fp16, fp16, 128, 192, 192, false, true>(1.0F, exact_enough);
    check_product<float, bf16, bf16, 64, 8, 32, false, false>(1.0F, exact_enough);
    check_product<float, bf16, bf16, 64, 16, 48, false, false>(1.0F, exact_enough);
    check_product<float, fp16, fp16, 192, 32, 16, true, false>(1.0F, exact_enough);
}

TEST_CASE("a warpgroup multiplies with A in registers") {
    if (skipped()) return;
    check_product<float, bf16, bf16, 64, 128, 128, false, false, true>(1.0F, exact_enough);
    check_product<float, fp16, fp16, 128, 64, 96, false, true, true>(1.0F, exact_enough);
    check_product<float, e4m3, e4m3, 64, 64, 64, false, true, true>(1.0F, fp8_enough);
    check_product<std::int32_t, std::int8_t, std::int8_t, 64, 48, 64, false, true, true>(127.0F, 1e-12);
}

TEST_CASE("a warpgroup multiplies 8-bit elements") {
    if (skipped()) return;
    check_product<float, e4m3, e4m3, 64, 128, 128, false, true>(1.0F, fp8_enough);
    check_product<float, e4m3, e5m2, 64, 40, 64, false, true>(1.0F, fp8_enough);
    check_product<float, e5m2, e4m3, 64, 88, 32, false, true>(1.0F, fp8_enough);
    check_product<float, e5m2, e5m2, 128, 16, 256, false, true>(1.0F, fp8_enough);
    check_product<std::int32_t, std::int8_t, std::int8_t, 64, 128, 128, false, true>(127.0F, 1e-12);
    check_product<std::int32_t, std::int8_t, std::int8_t, 64, 24, 96, false, true>(127.0F, 1e-12);
}

TEST_CASE("a warpgroup multiplies subtiles") {
    if (skipped()) return;
    const std::vector<bf16> a = random_numbers<bf16>(128 * 128, 1.0F), b = random_numbers<bf16>(128 * 128, 1.0F);
    const device_buffer<bf16> device_a(a), device_b(b);
    const device_buffer<float> device_c(64 * 64);
    device::launch<parts>({1, 1, 1}, {device_a.data(), device_b.data(), device_c.data()});
    std::vector<bf16> left, right;
    for (int row = 64; row < 128; ++row) {
        for (int column = 32; column < 64; ++column) left.push_back(a[row * 128 + column]);
    }
    for (int row = 64; row < 96; ++row) {
        for (int column = 64; column < 128; ++column) right.push_back(b[row * 128 + column]);
    }
    CHECK(worst_error(device_c.read(), left, right, 64, 64, 32, false, false, 1.0) < exact_enough);
}
