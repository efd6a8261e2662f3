// Tensors for TMA: make_tma_tensor rejects views that the hardware cannot copy, with a message that names the argument,
// its value and the allowed range; others are addressed in tiles and in elements.
#include <imbrex/tile/global_view.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

using namespace imbrex;

namespace {

template <class T>
struct aligned_memory {
    alignas(128) T values[4096];
};

template <class Tile, class View>
std::string error_text(const View& view) {
    try {
        make_tma_tensor<Tile>(view);
    } catch (const invalid_argument& reported) {
        return reported.what();
    }
    return "";
}

// Every word must be in the message.
void check_message(const std::string& reported, std::initializer_list<std::string> words) {
    CAPTURE(reported);
    CHECK(!reported.empty());
    for (const std::string& word : words) {
        CAPTURE(word);
        CHECK(reported.find(word) != std::string::npos);
    }
}

using tile = shared_tile<bf16, 16, 32>;
using free_view = global_view<bf16, dimensions<dynamic, dynamic>, dimensions<dynamic, dynamic>>;
using free_batches = global_view<bf16, dimensions<dynamic, dynamic, dynamic>, dimensions<dynamic, dynamic, dynamic>>;

TEST_CASE("rejects pointers that TMA cannot take") {
    static aligned_memory<bf16> memory;
    check_message(error_text<tile>(matrix(static_cast<bf16*>(nullptr), 16, 32)), {"view.pointer", "null", "memory"});
    for (const int shift : {1, 2, 4, 7}) {
        const bf16* pointer = memory.values + shift;
        check_message(error_text<tile>(matrix(pointer, 16, 32)),
                      {"view.pointer", str_cat(static_cast<const void*>(pointer)), "16 bytes"});
    }
    CHECK(error_text<tile>(matrix(memory.values + 8, 16, 32)) == "");
}

TEST_CASE("rejects strides that TMA cannot take") {
    static aligned_memory<bf16> memory;
    check_message(error_text<tile>(free_view{memory.values, {16, 32}, {64, 2}}), {"view.strides[1]", "2", "(1)"});
    check_message(error_text<tile>(free_view{memory.values, {16, 32}, {64, 0}}), {"view.strides[1]", "0", "(1)"});
    for (const int stride : {33, 36, 47}) {
        check_message(error_text<tile>(matrix(memory.values, 16, 32, stride)),
                      {"view.strides[0]", std::to_string(stride), std::to_string(2 * stride), "multiple of 16"});
    }
    check_message(error_text<tile>(free_view{memory.values, {16, 32}, {-64, 1}}),
                  {"view.strides[0]", "-64", "multiple of 16"});
    check_message(error_text<tile>(free_view{memory.values, {16, 32}, {std::int64_t{1} << 39, 1}}),
                  {"view.strides[0]", std::to_string(std::int64_t{1} << 39), "2^40"});
    check_message(error_text<tile>(free_batches{memory.values, {2, 16, 32}, {1001, 32, 1}}),
                  {"view.strides[0]", "1001", "2002", "multiple of 16"});
    check_message(error_text<tile>(free_batches{memory.values, {2, 16, 32}, {1024, 33, 1}}),
                  {"view.strides[1]", "33", "66", "multiple of 16"});
    CHECK(error_text<tile>(matrix(memory.values, 16, 32, 40)) == "");
    CHECK(error_text<tile>(free_view{memory.values, {16, 32}, {(std::int64_t{1} << 39) - 8, 1}}) == "");
    // A batch stride of zero.
    CHECK(error_text<tile>(free_batches{memory.values, {2, 16, 32}, {0, 32, 1}}) == "");
}

TEST_CASE("rejects extents that TMA cannot take") {
    static aligned_memory<bf16> memory;
    const std::int64_t most = (std::int64_t{1} << 31) - 1;
    check_message(error_text<tile>(matrix(memory.values, 0, 32)), {"view.extents[0]", "0", "1 to 2147483647"});
    check_message(error_text<tile>(matrix(memory.values, 16, 0, 32)), {"view.extents[1]", "0", "1 to 2147483647"});
    check_message(error_text<tile>(matrix(memory.values, -3, 32)), {"view.extents[0]", "-3", "1 to 2147483647"});
    check_message(error_text<tile>(matrix(memory.values, most + 1, 32)),
                  {"view.extents[0]", std::to_string(most + 1), "1 to 2147483647"});
    check_message(error_text<tile>(free_batches{memory.values, {0, 16, 32}, {512, 32, 1}}), {"view.extents[0]", "0"});
    CHECK(error_text<tile>(matrix(memory.values, most, 32)) == "");
    CHECK(error_text<tile>(matrix(memory.values, 1, 1, 32)) == "");
}

TEST_CASE("throws imbrex::error") {
    CHECK_THROWS_AS(make_tma_tensor<tile>(matrix(static_cast<bf16*>(nullptr), 16, 32)), invalid_argument);
    CHECK_THROWS_AS(make_tma_tensor<tile>(matrix(static_cast<bf16*>(nullptr), 16, 32)), error);
}

TEST_CASE("the coordinates of a tile are innermost first") {
    static aligned_memory<bf16> memory;
    const auto made = make_tma_tensor<tile>(free_batches{memory.values, {4, 30, 70}, {30 * 72, 72, 1}});
    static_assert(decltype(made)::rank == 3);
    CHECK(made.pointer == memory.values);
    CHECK(made.extents[0] == 4);
    CHECK(made.extents[1] == 30);
    CHECK(made.extents[2] == 70);
    CHECK(made.strides[0] == 30 * 72);
    CHECK(made.strides[1] == 72);
    CHECK(made.strides[2] == 1);

    const auto by_tile = made.tile(3, 1, 2);
    CHECK(by_tile.of == &made);
    CHECK(by_tile.where.at[0] == 64);  // column
    CHECK(by_tile.where.at[1] == 16);  // row
    CHECK(by_tile.where.at[2] == 3);   // batch
    CHECK(by_tile.where.at[3] == 0);
    CHECK(by_tile.where.at[4] == 0);

    const auto by_element = made.at(2, 5, 7);
    CHECK(by_element.where.at[0] == 7);
    CHECK(by_element.where.at[1] == 5);
    CHECK(by_element.where.at[2] == 2);
}

TEST_CASE("the rectangle that the host world copies for a coordinate") {
    static aligned_memory<bf16> memory;
    const auto made = make_tma_tensor<tile>(free_batches{memory.values, {1, 30, 70}, {30 * 72, 72, 1}});
    const auto corner = made.rectangle(made.tile(0, 1, 2).where);
    CHECK(corner.pointer == memory.values + 16 * 72 + 64);
    CHECK(corner.row_stride == 72);
    CHECK(corner.rows == 14);
    CHECK(corner.columns == 6);
    CHECK(made.inside(made.at(0, 29, 69).where));
    CHECK_FALSE(made.inside(made.at(1, 0, 0).where));
    CHECK_FALSE(made.inside(made.at(0, 30, 0).where));
    CHECK_FALSE(made.inside(made.at(0, 0, 70).where));
    CHECK_FALSE(made.inside(made.at(0, -1, 0).where));
    CHECK_FALSE(made.inside(made.at(-1, 0, 0).where));
}

TEST_CASE("a tensor may copy fewer rows than a tile has") {
    static aligned_memory<bf16> memory;
    using tall = shared_tile<bf16, 32, 32>;
    const auto view = matrix(memory.values, 16, 32);
    CHECK(make_tma_tensor<tall>(view).copied_rows == 32);
    CHECK(make_tma_tensor<tall>(view, tma_use::load, 8).copied_rows == 8);
    for (const int rows : {0, -8, 12, 40}) {
        CHECK_THROWS_AS(make_tma_tensor<tall>(view, tma_use::load, rows), invalid_argument);
    }
}

TEST_CASE("a tensor of const elements is a tensor of the elements") {
    static aligned_memory<float> memory;
    const float* constant = memory.values;
    const auto made = make_tma_tensor<shared_tile<float, 8, 32>>(matrix(constant, 8, 32));
    CHECK(made.pointer == memory.values);
}

}  // namespace
