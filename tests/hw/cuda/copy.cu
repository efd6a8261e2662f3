// Copies between global and shared memory by the threads of a scope: synchronous and asynchronous, in bounds and past
// the edge, aligned to 16 bytes, to 4, and unaligned.
#include <imbrex/hw/memory.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <hw/cuda/support.hpp>

using namespace hw_test;

namespace {

template <class T, int Rows, int Columns, int Warps>
struct copies {
    static constexpr int warps = Warps;
    using tile = shared_tile<T, Rows, Columns>;
    struct arguments {
        global_tile<const T> from;
        global_tile<T> to;
        const T* input;
        T *seen, *seen_async;
        T fill;
    };
    struct shared_memory {
        tile at_once, asynchronous, filled;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        // A pattern that a copy without effect would leave.
        hw::visit_shared(
            block, hw::use::write, source{},
            [&](int, int, T& a, T& b) {
                a = args.input[0];
                b = args.input[0];
            },
            smem.at_once, smem.asynchronous);
        block.sync();
        hw::copy_in(block, smem.at_once, args.from, args.fill);
        hw::copy_in_async(block, smem.asynchronous, args.from);
        hw::copy_commit(block);
        hw::copy_wait<0>(block);
        hw::visit_shared(
            block, hw::use::write, source{},
            [&](int row, int column, T& value) { value = args.input[row * Columns + column]; }, smem.filled);
        block.sync();
        hw::visit_shared(
            block, hw::use::read, source{},
            [&](int row, int column, const T& a, const T& b) {
                args.seen[row * Columns + column] = a;
                args.seen_async[row * Columns + column] = b;
            },
            smem.at_once, smem.asynchronous);
        hw::copy_out(block, args.to, smem.filled);
    }
};

template <class T, int Rows, int Columns, int Warps>
void check_copies() {
    CAPTURE(sizeof(T));
    CAPTURE(Columns);
    struct rectangle {
        int offset, stride, rows, columns;
    };
    const rectangle rectangles[] = {{0, Columns, Rows, Columns},
                                    {0, Columns + 16, Rows - 5, Columns},
                                    {0, Columns + 16, 1000, Columns - 3},
                                    {1, Columns + 1, Rows, Columns},
                                    {4, Columns + 4, Rows - 1, 2000},
                                    {4, Columns + 12, 7, Columns - 2},
                                    {2, Columns + 2, Rows, 5},
                                    {0, Columns, 0, Columns},
                                    {0, Columns, Rows, -1},
                                    {16, Columns + 32, 3, Columns - 7}};
    const std::vector<T> memory = random_bits<T>((Rows + 2) * (Columns + 48));
    const std::vector<T> input = random_bits<T>(Rows * Columns);
    const T fill = convert<T>(-2.0F);
    T zero;
    std::memset(static_cast<void*>(&zero), 0, sizeof(T));
    const device_buffer<T> from(memory), given(input);
    for (const rectangle& r : rectangles) {
        CAPTURE(r.offset);
        CAPTURE(r.stride);
        CAPTURE(r.rows);
        CAPTURE(r.columns);
        std::vector<T> expected(Rows * Columns, fill), expected_async(Rows * Columns, zero),
            expected_out(memory.size(), poisoned<T>());
        for (int row = 0; row < Rows && row < r.rows; ++row) {
            for (int column = 0; column < Columns && column < r.columns; ++column) {
                const std::size_t place = static_cast<std::size_t>(r.offset + row * r.stride + column);
                expected[row * Columns + column] = memory[place];
                expected_async[row * Columns + column] = memory[place];
                expected_out[place] = input[row * Columns + column];
            }
        }
        const device_buffer<T> seen(expected.size()), seen_async(expected.size()), out(memory.size());
        device::launch<copies<T, Rows, Columns, Warps>>({1, 1, 1},
                                                        {{from.data() + r.offset, r.stride, r.rows, r.columns},
                                                         {out.data() + r.offset, r.stride, r.rows, r.columns},
                                                         given.data(),
                                                         seen.data(),
                                                         seen_async.data(),
                                                         fill});
        CHECK(differing(seen.read(), expected) == 0);
        CHECK(differing(seen_async.read(), expected_async) == 0);
        CHECK(differing(out.read(), expected_out) == 0);
    }
}

// Several groups in flight, each into its own stage, waited for in order.
struct stages {
    static constexpr int warps = 4;
    static constexpr int count = 3;
    struct arguments {
        const float* input;
        float* output;
        int tiles;
    };
    struct shared_memory {
        shared_tile<float, 16, 32> stage[count];
        shared_vector<float, 100> vector;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        const auto tile = [&](int index) { return global_tile<const float>{args.input + index * 512, 32, 16, 32}; };
        for (int i = 0; i < count - 1; ++i) {
            if (i < args.tiles) hw::copy_in_async(block, smem.stage[i], tile(i));
            hw::copy_commit(block);
        }
        for (int i = 0; i < args.tiles; ++i) {
            hw::copy_wait<count - 2>(block);
            block.sync();
            hw::copy_out(block, global_tile<float>{args.output + i * 512, 32, 16, 32}, smem.stage[i % count]);
            const int next = i + count - 1;
            if (next < args.tiles) hw::copy_in_async(block, smem.stage[next % count], tile(next));
            hw::copy_commit(block);
        }
        hw::copy_wait<0>(block);
        hw::visit_vector(
            block, hw::use::write, source{}, [&](int index, float& value) { value = static_cast<float>(index); },
            smem.vector);
        block.sync();
        hw::visit_vector(
            block, hw::use::read, source{},
            [&](int index, const float& value) { args.output[args.tiles * 512 + index] = value; }, smem.vector);
    }
};

}  // namespace

TEST_CASE("rectangles of global memory are copied to and from shared memory") {
    if (skipped()) return;
    check_copies<float, 16, 32, 1>();
    check_copies<bf16, 64, 64, 4>();
    check_copies<bf16, 40, 24, 4>();
    check_copies<e4m3, 32, 128, 1>();
    check_copies<fp16, 128, 192, 8>();
}

TEST_CASE("groups of asynchronous copies complete in order, and vectors are visited once") {
    if (skipped()) return;
    constexpr int tiles = 11;
    std::vector<float> expected = random_bits<float>(tiles * 512);
    const device_buffer<float> input(expected), output(expected.size() + 100);
    for (int i = 0; i < 100; ++i) expected.push_back(static_cast<float>(i));
    device::launch<stages>({1, 1, 1}, {input.data(), output.data(), tiles});
    CHECK(differing(output.read(), expected) == 0);
}
