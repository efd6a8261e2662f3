// Fragment buffers: a register tile is set aside in shared memory, added to a sum in global memory by another warp, and
// read again by the same kind of scope. The checker detects every mutation.
#include <imbrex/ops/memory/bulk.hpp>
#include <imbrex/ops/memory/fragment_buffer.hpp>

#include <ops/tools.hpp>
#include <synchronisation.hpp>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int rows = 64, columns = 40;
using partial = fragment_buffer<float, rows, columns>;
using tile = warpgroup_tile<float, rows, columns>;

// Each block adds its matrix to the sum, in two steps through one buffer.
struct adds_to_sum {
    static constexpr int warps = 8;
    struct arguments {
        matrix_view<const float> in;
        partial* sum;
    };
    struct shared_memory {
        partial staged;
        transaction_barrier full, empty;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.full.init(block, 4);
        shared.empty.init(block, 1);
        fence_barriers(block);
        block.sync();
        const int first = block.index().x * 2 * rows;
        block.roles(producer([&](warp& self) {
                        for (int step = 0; step < 2; ++step) {
                            shared.full.wait(self, step);
                            reduce_add_async(self, *args.sum, shared.staged);
                            commit_stores(self);
                            wait_stores_read(self);
                            shared.empty.arrive(self);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        for (int step = 0; step < 2; ++step) {
                            tile values;
                            load(self, values, args.in.at(first + step * rows, 0));
                            shared.empty.wait(self, step - 1);
                            store(self, shared.staged, values);
                            fence_async(self);
                            shared.full.arrive(self);
                        }
                    }));
    }
};

struct reads_sum {
    static constexpr int warps = 4;
    struct arguments {
        const partial* sum;
        matrix_view<float> out;
    };
    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        block.each_warpgroup([&](warpgroup& self) {
            tile values;
            load(self, values, *args.sum);
            store(self, args.out.at(0, 0), values);
        });
    }
};

}  // namespace

TEST_CASE("blocks add their register tiles to a sum in global memory") {
    const int blocks = 3;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> in(where, 2 * blocks * rows * columns), out(where, rows * columns);
        buffer<partial> sum(where, 1);
        for (std::size_t i = 0; i < in.values.size(); ++i) in.values[i] = static_cast<float>(i % 1001);
        std::fill(std::begin(sum.values[0].values), std::end(sum.values[0].values), 5.0f);
        partial* const at = sum.upload();
        const adds_to_sum::arguments adds{matrix<const float>(in.upload(), 2 * blocks * rows, columns), at};
        run<adds_to_sum>(where, {blocks}, adds, 1);  // not repeatable
        run<reads_sum>(where, {1}, {at, matrix(out.upload(), rows, columns)});
        out.download();
        bool right = true;
        for (int i = 0; i < rows * columns; ++i) {
            float expected = 5.0f;
            for (int one = 0; one < 2 * blocks; ++one) expected += in.values[one * rows * columns + i];
            right = right && out.values[i] == expected;
        }
        CHECK(right);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("a staged sum has no hazard, and the checker detects every mutation") {
    std::vector<float> in(2 * rows * columns, 1.0f);
    std::vector<partial> sum(1);
    const adds_to_sum::arguments arguments{matrix<const float>(in.data(), 2 * rows, columns), sum.data()};
    check_synchronisation<adds_to_sum>("a staged sum", {1}, arguments);
}

namespace {

// A warpgroup stores a vector, each warp its share, syncs by an mbarrier at which its own warps arrive, and each warp reads
// the whole vector.
template <bool Arrives>
struct syncs_by_barrier {
    static constexpr int warps = 4;
    struct arguments {
        matrix_view<float> out;
    };
    struct shared_memory {
        shared_vector<float, rows> one;
        transaction_barrier full;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.full.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.each_warpgroup([&](warpgroup& self) {
            row_values<float, rows, warpgroup> values;
            fill(self, values, 1.0f);
            if (!Arrives) shared.full.arrive(self);
            store(self, shared.one, values);
            if (Arrives) shared.full.arrive(self);
            shared.full.wait(self, 0);
            column_values<float, rows> all;
            load(self, all, shared.one);
            store(self, args.out.at(0, 0).pointer, rows, all);
        });
    }
};

}  // namespace

TEST_CASE("a scope may sync its own warps by an mbarrier") {
    std::vector<float> out(rows);
    CHECK(!host::check<syncs_by_barrier<true>>({1}, {matrix(out.data(), 1, rows)}, 20));
    const auto found = host::check<syncs_by_barrier<false>>({1}, {matrix(out.data(), 1, rows)}, 20);
    REQUIRE(found);
    CHECK(found->kind == hazard_kind::unsynchronised_scope);
}
#endif
