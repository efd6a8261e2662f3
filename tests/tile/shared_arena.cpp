// Arenas and overlays: compile-time offsets and sizes, alignment, no overlap.
#include <imbrex/core/element_types.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

using namespace imbrex;

namespace {

using wide = shared_tile<bf16, 16, 64>;    // 2048 bytes, at multiples of 1024
using narrow = shared_tile<bf16, 8, 8>;    // 128 bytes, at multiples of 128
using vector = shared_vector<float, 100>;  // 400 bytes, in whole multiples of 128

using arena = shared_arena<transaction_barrier, wide, narrow, vector, transaction_barrier>;

static_assert(std::is_same_v<arena::part<1>, wide>);
static_assert(arena::alignment == 1024);
static_assert(arena::offset<0> == 0);
static_assert(arena::offset<1> == 1024);
static_assert(arena::offset<2> == 1024 + 2048);
static_assert(arena::offset<3> == 1024 + 2048 + 128);
static_assert(arena::offset<4> == 1024 + 2048 + 128 + 512);
static_assert(arena::bytes == 1024 + 2048 + 128 + 512 + 8);
static_assert(alignof(arena) == 1024);
static_assert(sizeof(arena) >= arena::bytes && sizeof(arena) % 1024 == 0);

static_assert(shared_arena<unsigned char>::bytes == 1);
static_assert(shared_arena<unsigned char[shared_memory_limit]>::bytes == 227 * 1024);

using choice = overlay<wide, shared_tile<float, 32, 32>, vector>;
static_assert(choice::bytes == 4096);
static_assert(alignof(choice) == 1024);
static_assert(sizeof(choice) == 4096);

TEST_CASE("the parts of an arena are at their offsets, aligned and disjoint") {
    const auto memory = std::make_unique<arena>();
    auto* base = reinterpret_cast<unsigned char*>(memory.get());
    CHECK(reinterpret_cast<unsigned char*>(&memory->get<0>()) == base + arena::offset<0>);
    CHECK(reinterpret_cast<unsigned char*>(&memory->get<1>()) == base + arena::offset<1>);
    CHECK(reinterpret_cast<unsigned char*>(&memory->get<4>()) == base + arena::offset<4>);
    CHECK(reinterpret_cast<std::uintptr_t>(&memory->get<1>()) % alignof(wide) == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(&memory->get<3>()) % alignof(vector) == 0);

    // Each part is filled with its number; no part overwrites another.
    std::memset(static_cast<void*>(&memory->get<0>()), 1, sizeof(arena::part<0>));
    std::memset(static_cast<void*>(&memory->get<1>()), 2, sizeof(arena::part<1>));
    std::memset(static_cast<void*>(&memory->get<2>()), 3, sizeof(arena::part<2>));
    std::memset(static_cast<void*>(&memory->get<3>()), 4, sizeof(arena::part<3>));
    std::memset(static_cast<void*>(&memory->get<4>()), 5, sizeof(arena::part<4>));
    const auto holds = [&](int offset, std::size_t size, int number) {
        for (std::size_t i = 0; i < size; ++i) {
            if (memory->storage[offset + i] != number) return false;
        }
        return true;
    };
    CHECK(holds(arena::offset<0>, sizeof(arena::part<0>), 1));
    CHECK(holds(arena::offset<1>, sizeof(arena::part<1>), 2));
    CHECK(holds(arena::offset<2>, sizeof(arena::part<2>), 3));
    CHECK(holds(arena::offset<3>, sizeof(arena::part<3>), 4));
    CHECK(holds(arena::offset<4>, sizeof(arena::part<4>), 5));
}

TEST_CASE("the choices of an overlay share one address") {
    const auto memory = std::make_unique<choice>();
    CHECK(static_cast<void*>(&memory->as<wide>()) == static_cast<void*>(memory.get()));
    CHECK(static_cast<void*>(&memory->as<vector>()) == static_cast<void*>(memory.get()));
    *memory->as<vector>().at(3) = 42.0f;
    CHECK(*memory->as<vector>().at(3) == 42.0f);
}

}  // namespace
