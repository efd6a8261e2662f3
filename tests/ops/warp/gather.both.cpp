// warp_gather and the operations on its values: broadcast, count, maximum, sum, prefix sum and insertion.
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/warp/gather.hpp>

#include "worlds.hpp"

#include <algorithm>
#include <functional>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

struct place {
    int number;
    float weight;
};

// Each warp follows its own table.
template <int Count>
struct follow {
    static constexpr int warps = 2;
    struct arguments {
        const int* table;
        int* numbers;
        float* weights;
        int first;  // of the broadcast values
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = self.index() * Count;
            const auto found = warp_gather<Count>(self, [&](int number) {
                const int entry = args.table[own + number];
                return place{entry, 0.5f * static_cast<float>(entry)};
            });
            for (int i = args.first; i < Count; ++i) {
                const place one = warp_broadcast(self, found, i);
                hw::put_global(self, args.numbers + own + i, one.number, source::current());
                hw::put_global(self, args.weights + own + i, one.weight, source::current());
            }
        });
    }
};

template <int Count>
void check_follow() {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<int> table(where, 2 * Count), numbers(where, 2 * Count, -1);
        buffer<float> weights(where, 2 * Count, -1.0f);
        for (int i = 0; i < 2 * Count; ++i) table.values[i] = i * 37 % 101;
        run<follow<Count>>(where, {1}, {table.upload(), numbers.upload(), weights.upload(), 0});
        numbers.download();
        weights.download();
        CHECK(numbers.values == table.values);
        for (int i = 0; i < 2 * Count; ++i) CHECK(weights.values[i] == 0.5f * static_cast<float>(table.values[i]));
    }
}

}  // namespace

namespace {

// The number of entries of each warp's table below a limit.
template <int Count>
struct count_below {
    static constexpr int warps = 2;
    struct arguments {
        const int* table;
        int* counts;
        int limit;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = self.index() * Count;
            const auto found = warp_gather<Count>(self, [&](int number) { return args.table[own + number]; });
            const int count = warp_count_if(self, found, [&](int entry) { return entry < args.limit; });
            hw::put_global(self, args.counts + self.index(), count, source::current());
        });
    }
};

template <int Count>
void check_count() {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<int> table(where, 2 * Count), counts(where, 2, -1);
        for (int i = 0; i < 2 * Count; ++i) table.values[i] = i * 37 % 101 - 20;
        for (const int limit : {-100, 0, 30, 100}) {
            run<count_below<Count>>(where, {1}, {table.upload(), counts.upload(), limit});
            counts.download();
            for (int warp = 0; warp < 2; ++warp) {
                int below = 0;
                for (int i = 0; i < Count; ++i) below += table.values[warp * Count + i] < limit;
                CHECK(counts.values[warp] == below);
            }
        }
    }
}

}  // namespace

TEST_CASE("warp_count_if counts the gathered values") {
    check_count<1>();
    check_count<10>();
    check_count<32>();
}

namespace {

template <int Count>
struct add_before {
    static constexpr int warps = 2;
    struct arguments {
        const int* table;
        int* sums;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = self.index() * Count;
            const auto sums = warp_inclusive_sum(
                self, warp_gather<Count>(self, [&](int number) { return args.table[own + number]; }));
            for (int i = 0; i < Count; ++i) {
                hw::put_global(self, args.sums + own + i, warp_broadcast(self, sums, i), source::current());
            }
        });
    }
};

template <int Count>
void check_sums() {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<int> table(where, 2 * Count), sums(where, 2 * Count, -1);
        for (int i = 0; i < 2 * Count; ++i) table.values[i] = i * 37 % 101 - 20;
        run<add_before<Count>>(where, {1}, {table.upload(), sums.upload()});
        sums.download();
        for (int warp = 0; warp < 2; ++warp) {
            int sum = 0;
            for (int i = warp * Count; i < (warp + 1) * Count; ++i) CHECK(sums.values[i] == (sum += table.values[i]));
        }
    }
}

// Twice the maximum of each warp's values.
template <int Count>
struct find_largest {
    static constexpr int warps = 2;
    struct arguments {
        const float* values;
        float* largest;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = self.index() * Count;
            const auto found = warp_gather<Count>(self, [&](int number) { return args.values[own + number]; });
            const float most = warp_max(self, found, [](float value) { return 2 * value; });
            hw::put_global(self, args.largest + self.index(), most, source::current());
        });
    }
};

template <int Count>
void check_largest() {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> values(where, 2 * Count), largest(where, 2, -1.0f);
        for (int i = 0; i < 2 * Count; ++i) values.values[i] = static_cast<float>(i * 37 % 101) / 7;
        run<find_largest<Count>>(where, {1}, {values.upload(), largest.upload()});
        largest.download();
        for (int warp = 0; warp < 2; ++warp) {
            const auto first = values.values.begin() + warp * Count;
            CHECK(largest.values[warp] == 2 * *std::max_element(first, first + Count));
        }
    }
}

}  // namespace

TEST_CASE("warp_max finds the maximum of the gathered values") {
    check_largest<1>();
    check_largest<10>();
    check_largest<32>();
}

namespace {

// The sum of the squares of each warp's values, in every lane.
template <int Count>
struct sum_squares {
    static constexpr int warps = 2;
    struct arguments {
        const int* table;
        float* sums;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const int own = self.index() * Count;
            const auto found = warp_gather<Count>(self, [&](int number) { return args.table[own + number]; });
            const float sum = warp_sum(self, found, [](int value) { return static_cast<float>(value * value); });
            vector_row_tile<float, 1, 256> tile;
            vector_row_values<vector_row_tile<float, 1, 256>> all;
            fill(self, all, sum);
            transform(
                self, tile, [](float value) { return value; }, all);
            store_rows_to<row_alignment::aligned>(
                self, [&](int) { return args.sums + self.index() * 256; }, tile, 256);
        });
    }
};

template <int Count>
void check_squares() {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<int> table(where, 2 * Count);
        buffer<float> sums(where, 2 * 256, -1.0f);
        for (int i = 0; i < 2 * Count; ++i) table.values[i] = i * 37 % 101 - 20;
        run<sum_squares<Count>>(where, {1}, {table.upload(), sums.upload()});
        sums.download();
        for (int warp = 0; warp < 2; ++warp) {
            int sum = 0;
            for (int i = warp * Count; i < (warp + 1) * Count; ++i) sum += table.values[i] * table.values[i];
            const auto first = sums.values.begin() + warp * 256;
            CHECK(std::count(first, first + 256, static_cast<float>(sum)) == 256);
        }
    }
}

}  // namespace

TEST_CASE("warp_sum adds functions of the gathered values, for every lane") {
    check_squares<1>();
    check_squares<10>();
    check_squares<32>();
}

TEST_CASE("warp_inclusive_sum adds each value to those before it") {
    check_sums<1>();
    check_sums<10>();
    check_sums<32>();
}

TEST_CASE("warp_gather and warp_broadcast follow a table") {
    check_follow<1>();
    check_follow<10>();
    check_follow<32>();
}

#if !defined(__CUDACC__)
TEST_CASE("the checker reports a broadcast of a value that no lane has") {
    std::vector<int> table(20, 1), numbers(20);
    std::vector<float> weights(20);
    const auto found = host::check<follow<10>>({1}, {table.data(), numbers.data(), weights.data(), -1}, 1);
    REQUIRE(found);
    CHECK(found->text().find("value -1 requested; the lanes have 10") != std::string::npos);
}
#endif

namespace {

// A list of the largest values of a table, in descending order.
template <int Count>
struct insert_sorted {
    static constexpr int warps = 2;
    struct arguments {
        const int* table;
        int* sorted;
        int length;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            auto list = warp_gather<Count>(self, [](int) { return place{-1, 0.0f}; });
            const int* const own = args.table + self.index() * args.length;
            for (int i = 0; i < args.length; ++i) {
                const int value = own[i];
                const int before = warp_count_if(self, list, [=](const place& one) { return one.number >= value; });
                warp_insert(self, list, before, place{value, 0.0f});
            }
            for (int i = 0; i < Count; ++i) {
                hw::put_global(self, args.sorted + self.index() * Count + i, warp_broadcast(self, list, i).number,
                               source::current());
            }
        });
    }
};

template <int Count>
void check_inserted(int length) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(length);
        buffer<int> table(where, 2 * static_cast<std::size_t>(length)), sorted(where, 2 * Count, -7);
        for (int i = 0; i < 2 * length; ++i) table.values[i] = i * 37 % 101;
        run<insert_sorted<Count>>(where, {1}, {table.upload(), sorted.upload(), length});
        sorted.download();
        for (int warp = 0; warp < 2; ++warp) {
            std::vector<int> wanted(table.values.begin() + warp * length, table.values.begin() + (warp + 1) * length);
            std::sort(wanted.begin(), wanted.end(), std::greater<>());
            wanted.resize(Count, -1);
            CHECK(std::equal(wanted.begin(), wanted.end(), sorted.values.begin() + warp * Count));
        }
    }
}

}  // namespace

TEST_CASE("warp_insert inserts a value and drops the last") {
    check_inserted<1>(5);
    check_inserted<20>(3);
    check_inserted<20>(60);
    check_inserted<32>(50);
}
