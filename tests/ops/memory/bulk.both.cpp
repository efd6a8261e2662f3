// Bulk copies of contiguous objects: they land unchanged, also through a ring; the checker detects an early read, wrong
// byte counts and an early refill.
#include <imbrex/ops/memory/bulk.hpp>

#include <ops/tools.hpp>
#include <synchronisation.hpp>

#include <cstdint>

using namespace imbrex;
using namespace imbrex_test;

namespace {

struct item {
    shared_vector<float, 96> numbers;
    shared_vector<std::int32_t, 32> more;
};

// Doubles the numbers of each item and adds the item's first of the others.
template <int Stages>
struct doubling {
    static constexpr int warps = 8;
    struct arguments {
        const item* in;
        item* out;
        int count;
    };
    struct shared_memory {
        pipeline<item, Stages> ring;
        shared_vector<float, 96> result;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < args.count; ++i) {
                            auto slot = filling.acquire();
                            load_object_async(self, *slot, args.in[i], slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < args.count; ++i) {
                            auto held = full.wait();
                            column_values<float, 96> numbers;
                            load(self, numbers, held->numbers);
                            const float plus = static_cast<float>(get(self, held->more, 0));
                            map(self, numbers, [=](float x) { return 2 * x + plus; });
                            store(self, args.out[i].numbers.storage, 96, numbers);
                        }
                    }));
    }
};

void fill_items(std::vector<item>& items) {
    for (std::size_t i = 0; i < items.size(); ++i) {
        for (int j = 0; j < 96; ++j) items[i].numbers.storage[j] = static_cast<float>(i * 100 + j);
        for (int j = 0; j < 32; ++j) items[i].more.storage[j] = static_cast<std::int32_t>(i + j);
    }
}

}  // namespace

TEST_CASE("objects land unchanged, one after the other") {
    const int count = 9;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<item> in(where, count), out(where, count);
        fill_items(in.values);
        run<doubling<2>>(where, {1}, {in.upload(), out.upload(), count});
        out.download();
        bool right = true;
        for (int i = 0; i < count; ++i) {
            for (int j = 0; j < 96; ++j) {
                right = right && out.values[i].numbers.storage[j] == static_cast<float>(2 * (i * 100 + j) + i);
            }
        }
        CHECK(right);
    }
}

#if !defined(__CUDACC__)
namespace {

// Reads the object without waiting for it; or copies to an address that is not aligned.
template <bool Unaligned>
struct hasty {
    static constexpr int warps = 1;
    struct alignas(8) object {
        unsigned char bytes[64];
    };
    struct arguments {
        const object* in;
    };
    struct shared_memory {
        shared_vector<unsigned char, 128> place;
        transaction_barrier landed;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.landed.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            shared.landed.expect(self, sizeof(object));
            object& to = *reinterpret_cast<object*>(shared.place.address(Unaligned ? 8 : 0));
            hw::bulk_load(self, to, *args.in, shared.landed.word);
            if (!Unaligned) get(self, shared.place, 0);
            shared.landed.wait(self, 0);
        });
    }
};

}  // namespace

TEST_CASE("the checker reports an early read and a misaligned destination") {
    const hasty<false>::object early{};
    const auto read = host::check<hasty<false>>({1}, {&early}, 20);
    REQUIRE(read);
    CHECK(read->kind == hazard_kind::read_before_landed);
    const hasty<true>::object one{};
    const auto place = host::check<hasty<true>>({1}, {&one}, 4);
    REQUIRE(place);
    CHECK(place->kind == hazard_kind::beyond_limits);
}

TEST_CASE("the checker reports a misaligned source") {
    alignas(16) unsigned char bytes[2 * sizeof(hasty<false>::object)] = {};
    const auto* const source_of = reinterpret_cast<const hasty<false>::object*>(bytes + 8);
    const auto found = host::check<hasty<false>>({1}, {source_of}, 4);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::beyond_limits);
    const std::string address = str_cat(static_cast<const void*>(source_of));
    CHECK(found->text().find("the global address " + address + " is not aligned to 16 bytes") != std::string::npos);
}

TEST_CASE("a ring of objects has no hazard, and the checker detects every mutation") {
    std::vector<item> in(5), out(5);
    fill_items(in);
    const doubling<2>::arguments arguments{in.data(), out.data(), 5};
    check_synchronisation<doubling<2>>("a ring of objects", {1}, arguments);
}
#endif
