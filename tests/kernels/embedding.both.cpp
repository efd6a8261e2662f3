// Embedding lookup against loops: copies are bitwise equal, factors are rounded once, rows of any length and alignment.
// Ids outside the table throw in the host world and give zeros on the device.
#include <imbrex/kernels/embedding.hpp>

#include "kernels/elementwise.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cstring>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int entries = 37;

std::vector<int> some_ids(int count) {
    std::vector<int> ids(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) ids[i] = (i * 23 + 36) % entries;
    return ids;
}

template <class T, class Out = T>
void check_embed(int count, int columns, int gap = 0, int before = 0, float factor = 1) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(count);
        CAPTURE(columns);
        const row_shape in{entries, 1, columns, gap, before}, result{count, 1, columns, gap, before};
        buffer<T> table(where, in.elements());
        buffer<Out> out(where, result.elements());
        buffer<int> ids(where, static_cast<std::size_t>(count));
        table.values = random_rows<T>(in, 1);
        out.values = poisoned<Out>(result.elements());
        ids.values = some_ids(count);
        embedding<T, Out>::launch(where, {.table = in.view<const T>(table.upload()),
                                          .ids = ids.upload(),
                                          .out = result.view(out.upload()),
                                          .factor = factor});
        out.download();
        bool right = true;
        for (int row = 0; row < count; ++row) {
            for (int i = 0; i < columns; ++i) {
                const T one = table.values[in.index(ids.values[row], i)];
                const Out wanted = convert<Out>(factor * convert<float>(one));
                right = right && std::memcmp(&wanted, &out.values[result.index(row, i)], sizeof(Out)) == 0;
            }
        }
        CHECK(right);
        CHECK(gaps_untouched(result, out.values));
    }
}

}  // namespace

TEST_CASE("embedding lookup of rows of any length and number") {
    for (const int columns : {8, 64, 248, 256, 264, 1024, 1032, 2880}) check_embed<bf16>(7, columns);
    for (const int columns : {1, 5, 100, 257, 1030}) check_embed<bf16>(5, columns);
    for (const int count : {1, 3, 16, 67}) {
        check_embed<fp16>(count, 96, 8, 8);
        check_embed<float>(count, 320, 4, 4);
        check_embed<float>(count, 30, 3, 1);
        check_embed<bf16>(count, 520, 1);
    }
}

TEST_CASE("embedding lookup with a factor") {
    check_embed<bf16>(9, 264, 0, 0, 45.25f);
    check_embed<fp16>(9, 1024, 8, 0, 0.3f);
    check_embed<float>(9, 33, 0, 0, -2.5f);
}

TEST_CASE("embedding lookup with another output type") {
    check_embed<bf16, float>(9, 264);
    check_embed<fp16, float>(5, 33, 3, 1);
    check_embed<float, bf16>(9, 1024, 8, 0, 0.3f);
}

TEST_CASE("embedding lookup copies NaN bit by bit") {
    for (const world where : worlds()) {
        buffer<bf16> table(where, 2 * 64), out(where, 64);
        buffer<int> ids(where, 1, 1);
        for (std::size_t i = 0; i < 128; ++i) table.values[i] = bf16::from_bits(static_cast<std::uint16_t>(0x7f80 + i));
        embedding<bf16>::launch(where, {.table = as_rows<const bf16>(table.upload(), 2, 64),
                                        .ids = ids.upload(),
                                        .out = as_rows(out.upload(), 1, 64)});
        out.download();
        CHECK(std::memcmp(out.values.data(), table.values.data() + 64, 128) == 0);
    }
}

TEST_CASE("ids outside the table throw in the host world and give zeros on the device") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const int columns : {64, 33, 1024}) {
            CAPTURE(columns);
            buffer<bf16> table(where, static_cast<std::size_t>(entries) * columns);
            buffer<bf16> out(where, static_cast<std::size_t>(4) * columns);
            buffer<int> ids(where, 4);
            fill_random(table.values, 1);
            out.values = poisoned<bf16>(out.values.size());
            ids.values = {1, -1, entries - 1, entries};
            const embedding_problem<bf16> p{.table = as_rows<const bf16>(table.upload(), entries, columns),
                                            .ids = ids.upload(),
                                            .out = as_rows(out.upload(), 4, columns)};
            if (where != world::device) {
                CHECK(error_message_of([&] { embedding<bf16>::launch(where, p); }) ==
                      "ids[1]: -1; the table has 37 rows");
                ids.values[1] = 0;
                CHECK(error_message_of([&] { embedding<bf16>::launch(where, p); }) ==
                      "ids[3]: 37; the table has 37 rows");
                continue;
            }
            embedding<bf16>::launch(where, p);
            out.download();
            bool right = true;
            for (int i = 0; i < columns; ++i) {
                right = right && out.values[i].bits == table.values[columns + i].bits;
                right = right && out.values[columns + i].bits == 0 && out.values[3 * columns + i].bits == 0;
                right = right && out.values[2 * columns + i].bits == table.values[(entries - 1) * columns + i].bits;
            }
            CHECK(right);
        }
    }
}

TEST_CASE("embedding lookup of nothing does nothing; invalid problems are rejected") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        embedding<bf16>::launch(where, {});
        buffer<bf16> table(where, 4 * 64), out(where, 2 * 64);
        buffer<int> ids(where, 2);
        const embedding_problem<bf16> good{.table = as_rows<const bf16>(table.upload(), 4, 64),
                                           .ids = ids.upload(),
                                           .out = as_rows(out.upload(), 2, 64)};
        const auto refused = [&](auto change) {
            embedding_problem<bf16> bad = good;
            change(bad);
            return error_message_of([&] { embedding<bf16>::launch(where, bad); });
        };
        CHECK(refused([](auto& p) { p.table.pointer = nullptr; }) ==
              "table.pointer: null; 4 x 1 x 64 elements are needed");
        CHECK(refused([](auto& p) { p.ids = nullptr; }) == "ids: null; 2 elements are needed");
        CHECK(refused([](auto& p) { --p.out.extents.given[2]; }) ==
              "out.extents[2]: 63; table has 64 columns, and it must have as many");
        CHECK(refused([](auto& p) { p.out.strides.given[0] = 8; }) ==
              "out.strides[0]: 8; tokens of results lie at least the 64 elements of a row apart");
        CHECK(refused([](auto& p) { p.factor = INFINITY; }) == "factor: inf; must be finite");
    }
}

#if !defined(__CUDACC__)
TEST_CASE("embedding lookup has no hazard in any schedule and no synchronisation to mutate") {
    using kernel = embedding<bf16>::kernel<2, 256, row_alignment::aligned>;
    std::vector<bf16> table(entries * 256), out(6 * 256);
    const std::vector<int> ids = some_ids(6);
    fill_random(table, 1);
    const auto args = embedding<bf16>::arguments_of<kernel>({.table = as_rows<const bf16>(table.data(), entries, 256),
                                                             .ids = ids.data(),
                                                             .out = as_rows(out.data(), 6, 256)});
    check_without_synchronisation<kernel>(kernel::grid_of(args), args);
}
#endif
