// The tile shapes of 8-bit attention by head_dim, accumulation, mask and number of keys.
#include <imbrex/kernels/attention_fp8/shape.hpp>

#include <doctest/doctest.h>

using namespace imbrex;

namespace {

constexpr auto fast = fp8_accumulation::fast, promoted = fp8_accumulation::promoted;
constexpr auto full = attention_register_demand::lowest, causal = attention_register_demand::low,
               other = attention_register_demand::medium;

}  // namespace

TEST_CASE("8-bit attention: key tiles divide a block of scales") {
    for (const int head_dim : {64, 128, 256}) {
        for (const auto sum : {fast, promoted}) {
            for (const auto demand : {full, causal, other}) {
                for (const int kv_block : {32, 64, 128, 192, 256}) {
                    const int block_n = attention_fp8_shape_for(head_dim, sum, demand, kv_block).block_n;
                    CHECK(block_n % 32 == 0);
                    CHECK(kv_block % block_n == 0);
                    CHECK(!attention_fp8_second_shape_for(head_dim, sum, demand, kv_block).exists());
                }
            }
        }
    }
}

TEST_CASE("8-bit attention: a second shape where it is faster") {
    const auto few = attention_fp8_second_shape_for(128, fast, full, 0);
    CHECK(few.shape.block_n == 128);
    CHECK(few.is_for(1));
    CHECK(few.is_for(1024));
    CHECK(!few.is_for(1025));
    const auto few_causal = attention_fp8_second_shape_for(128, fast, causal, 0);
    CHECK(few_causal.is_for(2048));
    CHECK(!few_causal.is_for(4096));
    const auto promoted_causal = attention_fp8_second_shape_for(128, promoted, causal, 0);
    CHECK(promoted_causal.shape.product_columns == 64);
    CHECK(promoted_causal.is_for(4096));
    CHECK(!promoted_causal.is_for(8192));
    CHECK(attention_fp8_second_shape_for(128, promoted, full, 0).is_for(1024));
    CHECK(!attention_fp8_second_shape_for(128, promoted, full, 0).is_for(2048));
    CHECK(!attention_fp8_second_shape_for(64, fast, full, 0).exists());
    CHECK(!attention_fp8_second_shape_for(128, fast, other, 0).exists());
}
