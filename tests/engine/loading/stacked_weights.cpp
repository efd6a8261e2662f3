// Stacked weights read as one matrix.
#include "engine/loading/stacked_weights.hpp"

#include <doctest/doctest.h>

#include "engine/model/random_weights.hpp"

using namespace imbrex::engine;

namespace {

weight_set three_weights(weight_type last) {
    weight_set all;
    const auto add = [&](const std::string& name, std::int64_t rows, weight_type type, float first) {
        std::vector<float> values;
        for (std::int64_t i = 0; i < rows * 4; ++i) values.push_back(first + static_cast<float>(i));
        test::add_weight(all, {name, {rows, 4}}, type, values);
    };
    add("a", 2, weight_type::f32, 0);
    add("b", 1, weight_type::f32, 100);
    add("c", 3, last, 200);
    return all;
}

}  // namespace

TEST_CASE("Reads rows across the borders of stacked weights") {
    const weight_set all = three_weights(weight_type::f32);
    const stacked_weights stacked(all, {"a", "b", "c"});
    CHECK(stacked.rows() == 6);
    CHECK(stacked.columns() == 4);
    CHECK(stacked.bytes() == 6 * 4 * 4);
    const std::vector<float> firsts{0, 4, 100, 200, 204, 208};
    for (std::int64_t first = 0; first <= 6; ++first) {
        for (std::int64_t count = 0; first + count <= 6; ++count) {
            CAPTURE(first);
            CAPTURE(count);
            std::vector<float> values(static_cast<std::size_t>(count * 4), -1.0f);
            stacked.read(first, count, values);
            bool right = true;
            for (std::int64_t i = 0; i < count * 4; ++i) {
                const float wanted = firsts[static_cast<std::size_t>(first + i / 4)] + static_cast<float>(i % 4);
                right = right && values[static_cast<std::size_t>(i)] == wanted;
            }
            CHECK(right);
        }
    }
}

TEST_CASE("Stacked weights have the common type, or f32") {
    const weight_set same = three_weights(weight_type::f32), mixed = three_weights(weight_type::bf16);
    CHECK(stacked_weights(same, {"a", "c"}).type() == weight_type::f32);
    CHECK(stacked_weights(mixed, {"c"}).type() == weight_type::bf16);
    CHECK(stacked_weights(mixed, {"a", "c"}).type() == weight_type::f32);
}
