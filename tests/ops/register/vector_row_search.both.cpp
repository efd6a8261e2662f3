// Searches in segments of rows: functions of columns, changes of one element, the maximum and its column, exact sums,
// and bins of several warps, against plain loops.
#include <imbrex/ops/register/vector_row_search.hpp>

#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

struct found_in_row {
    float largest;
    int column;
    int none;  // the result for a value that does not occur
    std::uint64_t sum;
};

// In each warp's segment one element is changed, and its column is added to every element.
template <class T, int Columns>
struct search_rows {
    static constexpr int warps = 2;
    struct arguments {
        const T* in;
        float* out;
        found_in_row* found;
        int changed;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            vector_row_tile<T, 1, Columns> in;
            load_rows_from<row_alignment::aligned>(
                self, in, [&](int) { return args.in + self.index() * Columns; }, Columns);
            vector_row_tile<float, 1, Columns> piece;
            map_columns(
                self, piece, [](int column, float x) { return x + static_cast<float>(column % 5); }, in);
            map_columns(
                self, piece, [](int column, float x) { return column == 7 ? -1000.0f : x; }, piece);
            change(self, piece, args.changed, [](float x) { return x + 0.5f; });
            found_in_row found{};
            found.largest = row_max(self, piece);
            found.column = first_column_of(self, piece, found.largest);
            found.none = first_column_of(self, piece, 12345.0f);
            found.sum = sum_of(self, piece, [](int column, float x) {
                return x > 0 ? static_cast<std::uint64_t>(x) << 33 : static_cast<std::uint64_t>(column);
            });
            hw::put_global(self, args.found + self.index(), found, source::current());
            store_rows_to<row_alignment::aligned>(
                self, [&](int) { return args.out + self.index() * Columns; }, piece, Columns);
        });
    }
};

template <class T, int Columns>
void check_search(int changed) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(Columns);
        CAPTURE(changed);
        buffer<T> in(where, 2 * Columns);
        buffer<float> out(where, 2 * Columns);
        buffer<found_in_row> found(where, 2);
        for (int i = 0; i < 2 * Columns; ++i) in.values[i] = convert<T>(static_cast<float>(i * 37 % 64 - 60));
        run<search_rows<T, Columns>>(where, {1}, {in.upload(), out.upload(), found.upload(), changed});
        out.download();
        found.download();
        for (int warp = 0; warp < 2; ++warp) {
            std::vector<float> wanted(Columns);
            std::uint64_t sum = 0;
            for (int i = 0; i < Columns; ++i) {
                wanted[i] = convert<float>(in.values[warp * Columns + i]) + static_cast<float>(i % 5);
                if (i == 7) wanted[i] = -1000;
                if (i == changed) wanted[i] += 0.5f;
                sum += wanted[i] > 0 ? static_cast<std::uint64_t>(wanted[i]) << 33 : static_cast<std::uint64_t>(i);
            }
            const auto most = std::max_element(wanted.begin(), wanted.end());
            CHECK(std::equal(wanted.begin(), wanted.end(), out.values.begin() + warp * Columns));
            CHECK(found.values[warp].largest == *most);
            CHECK(found.values[warp].column == most - wanted.begin());
            CHECK(found.values[warp].none == Columns);
            CHECK(found.values[warp].sum == sum);
        }
    }
}

struct bin_result {
    int bin;
    std::uint64_t before, content;
};

// Elements from 0 to 63 of two warps in bins, and the bins where their sum reaches targets. Sums exceed 32 bits.
struct divide_rows {
    static constexpr int warps = 2;
    static constexpr int columns = 512;
    struct shared_memory {
        shared_vector<std::uint64_t, 64> bins[warps];
    };
    struct arguments {
        const float* in;
        bin_result* results;
        const std::uint64_t* targets;
        int count;
    };
    struct everybody {};

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            vector_row_tile<float, 1, columns> piece;
            load_rows_from<row_alignment::aligned>(
                self, piece, [&](int) { return args.in + self.index() * columns; }, columns);
            auto& own = shared.bins[self.index()];
            fill_indexed(self, own, [](int) { return std::uint64_t{0}; });
            add_to_bins(
                self, own, piece, [](int, float x) { return x < 60 ? static_cast<int>(x) : -1; },
                [](int column, float x) { return (std::uint64_t{0x7fffffff} << static_cast<int>(x) / 8) + column; });
            named_barriers<everybody>::of<everybody>().sync(self, warps);
            for (int i = 0; i < args.count; ++i) {
                const hw::bin_found at = find_bin(self, shared.bins, 1000, args.targets[i]);
                if (self.index() == 0) {
                    hw::put_global(self, args.results + i, bin_result{at.bin, at.before, at.content},
                                   source::current());
                }
            }
        });
    }
};

}  // namespace

TEST_CASE("the maximum of a row, its column, and sums") {
    check_search<float, 256>(0);
    check_search<bf16, 512>(300);
    check_search<float, 1024>(1023);
    check_search<fp16, 1024>(-1);
    check_search<float, 256>(256);
}

TEST_CASE("bins of several warps, and the bin at which a sum reaches a target") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        constexpr int all = 2 * divide_rows::columns;
        buffer<float> in(where, all);
        std::vector<std::uint64_t> bins(64, 0);
        for (int i = 0; i < all; ++i) {
            const int value = i * 37 % 64;
            in.values[i] = static_cast<float>(value);
            if (value < 60) bins[value] += (std::uint64_t{0x7fffffff} << value / 8) + i % divide_rows::columns;
        }
        std::vector<std::uint64_t> targets{0, 1000, 1001};
        std::uint64_t sum = 1000;
        for (const std::uint64_t one : bins) {
            sum += one;
            targets.insert(targets.end(), {sum - 1, sum, sum + 1});
        }
        buffer<std::uint64_t> asked(where, targets.size());
        asked.values = targets;
        buffer<bin_result> results(where, targets.size());
        const int count = static_cast<int>(targets.size());
        run<divide_rows>(where, {1}, {in.upload(), results.upload(), asked.upload(), count});
        results.download();
        for (std::size_t i = 0; i < targets.size(); ++i) {
            CAPTURE(i);
            std::uint64_t before = 1000;
            int bin = 0;
            while (bin < 64 && before + bins[bin] < targets[i]) before += bins[bin++];
            CHECK(results.values[i].bin == bin);
            CHECK(results.values[i].before == before);
            CHECK(results.values[i].content == (bin < 64 ? bins[bin] : 0));
        }
    }
}

#if !defined(__CUDACC__)
TEST_CASE("the checker reports bins that are read before all warps have added") {
    buffer<float> in(world::host, 2 * divide_rows::columns);
    buffer<bin_result> results(world::host, 1);
    buffer<std::uint64_t> targets(world::host, 1);
    const divide_rows::arguments args{in.upload(), results.upload(), targets.upload(), 1};
    check_synchronisation<divide_rows>("bins", {1}, args);
}
#endif
