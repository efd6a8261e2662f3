// read_element: values inside and outside of kernels; the checker sees the loads of a gather, of two blocks and of a
// kernel that starts before its predecessor has ended.
#include <imbrex/ops/memory/read_element.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// out[i] = values[table[i]], by a gather. With `Writes` block 1 changes the table meanwhile.
template <bool Writes>
struct lookup_kernel {
    static constexpr int warps = 1;
    struct arguments {
        int* table;
        const int* values;
        int* out;
    };
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            if (Writes && block.index().x == 1) return put(self, args.table + 3, 0);
            const auto found = warp_gather<8>(
                self, [&](int number) { return read_element(args.values, read_element(args.table, number)); });
            for (int i = 0; i < 8; ++i) put(self, args.out + i, warp_broadcast(self, found, i));
        });
    }
};

}  // namespace

TEST_CASE("read_element reads global memory, in a kernel and outside") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<int> table(where, 8), values(where, 10), out(where, 8);
        for (int i = 0; i < 8; ++i) table.values[i] = 9 - i;
        for (int i = 0; i < 10; ++i) values.values[i] = i * i;
        run<lookup_kernel<false>>(where, {1}, {table.upload(), values.upload(), out.upload()});
        out.download();
        for (int i = 0; i < 8; ++i) CHECK(out.values[i] == (9 - i) * (9 - i));
        CHECK(read_element(table.values.data(), 2) == 7);
    }
}

#if !defined(__CUDACC__)
namespace {

// Reads the length that its predecessor writes, before or after pdl_wait.
struct write_length {
    static constexpr int warps = 1;
    static constexpr bool uses_pdl = true;
    using arguments = int*;
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& length, Shared&) {
        pdl_launch_dependents(block);
        put(block, length, 5);
    }
};
template <bool Waits>
struct use_length {
    static constexpr int warps = 1;
    static constexpr bool uses_pdl = true;
    using arguments = int*;
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const arguments& length, Shared&) {
        if constexpr (Waits) pdl_wait(block);
        put(block, length + 1, read_element(length, 0));
    }
};

}  // namespace

TEST_CASE("the checker sees read_element") {
    std::vector<int> table(8), values(8), out(8);
    const typename lookup_kernel<true>::arguments arguments{table.data(), values.data(), out.data()};
    const auto race = host::check<lookup_kernel<true>>({2}, arguments, 4);
    REQUIRE(race);
    CHECK(race->kind == hazard_kind::race);
    CHECK(race->text().find("load of one element, at tests/ops/memory/read_element.both.cpp:") != std::string::npos);

    const host::check_options marked{.schedules = 1, .uninitialised = {{&values[5], sizeof(int)}}};
    CHECK(!host::check<lookup_kernel<false>>({1}, {table.data(), values.data(), out.data()}, marked));
    table[2] = 5;
    const auto found = host::check<lookup_kernel<false>>({1}, {table.data(), values.data(), out.data()}, marked);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::uninitialised_read);
}

TEST_CASE("the checker sees read_element before pdl_wait") {
    std::vector<int> length(2);
    const auto stream = [&]<class Second>(Second) {
        return host::check_launches(
            [&] {
                launch<write_length>(world::host_checked, {1}, length.data());
                launch<Second>(world::host_checked, {1}, length.data());
            },
            {.schedules = 4});
    };
    CHECK(text_of(stream(use_length<true>{})) == "");
    const auto found = stream(use_length<false>{});
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::before_pdl_wait);
}
#endif
