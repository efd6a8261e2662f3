// Each kernel of kernels.hpp is correct: plain and in many schedules it computes the results of plain loops without a
// hazard. And each of its synchronisations is necessary: the checker detects every mutation. A surviving mutation means
// an unnecessary synchronisation in the kernel or a gap in the checker.
#include "kernels.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "schedules.hpp"

namespace mutations {
namespace {

const int schedules = imbrex_test::schedules_to_run(1000);
constexpr float poison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> numbers(int count) {
    std::vector<float> values(count);
    for (int i = 0; i < count; ++i) values[i] = static_cast<float>(i * 37 % 101) / 50.0f - 1.0f;
    return values;
}

// Runs the kernel plain and in every schedule; `prepare` poisons its output, `right` compares it.
template <class Kernel>
void check_right(grid_dim grid, const typename Kernel::arguments& arguments, const std::function<void()>& prepare,
                 const std::function<bool()>& right) {
    prepare();
    host::launch<Kernel>(grid, arguments);
    CHECK(right());
    int wrong = 0;
    for (int seed = 0; seed < schedules; ++seed) {
        prepare();
        const auto found = host::check<Kernel>(grid, arguments, 1, seed);
        INFO((found ? found->text() : std::string()));
        REQUIRE(!found);
        wrong += right() ? 0 : 1;
    }
    CHECK(wrong == 0);
}

template <class Kernel>
void check_every_mutant_reported(const std::string& name, grid_dim grid, const typename Kernel::arguments& arguments,
                                 const std::function<void()>& prepare) {
    const host::mutation_score score = host::mutate<Kernel>(grid, arguments, 20, prepare);
    MESSAGE(name, ": ", score.killed(), " of ", score.total(), " mutations detected");
    INFO(score.text());
    CHECK(score.total() > 0);
    CHECK(score.killed() == score.total());
}

bool near(float a, float b) {
    return std::fabs(a - b) <= 1e-4f * (1.0f + std::fabs(b));
}

// The data of most kernels: `tiles` tiles below one another, some rows of the last one missing.
struct strip {
    explicit strip(int tiles, int missing = 0) : rows(64 * tiles - missing), in(numbers(rows * 32)), out(rows * 32) {}
    int rows;
    std::vector<float> in, out;

    std::function<void()> poisoned() {
        return [this] { out.assign(out.size(), poison); };
    }
    std::function<bool()> each(std::function<float(float)> expected) {
        return [this, expected] {
            bool right = true;
            for (std::size_t i = 0; i < in.size(); ++i) right = right && near(out[i], expected(in[i]));
            return right;
        };
    }
    matrices views() { return {matrix(in.data(), rows, 32), matrix(out.data(), rows, 32)}; }
    tensors as_tensors(int tiles) {
        return {make_tma_tensor<float_tile>(matrix(in.data(), rows, 32)),
                make_tma_tensor<float_tile>(matrix(out.data(), rows, 32), tma_use::store), tiles};
    }
};

TEST_CASE("map") {
    strip data(2, 20);
    check_right<map_kernel>({2}, data.views(), data.poisoned(), data.each([](float x) { return 2.0f * x + 1.0f; }));
    check_every_mutant_reported<map_kernel>("map", {2}, data.views(), data.poisoned());
}

TEST_CASE("row softmax") {
    strip data(2, 20);
    const auto right = [&] {
        for (int row = 0; row < data.rows; ++row) {
            double sum = 0;
            for (int column = 0; column < 32; ++column) sum += std::exp(double{data.in[row * 32 + column]});
            for (int column = 0; column < 32; ++column) {
                const int i = row * 32 + column;
                if (!near(data.out[i], static_cast<float>(std::exp(double{data.in[i]}) / sum))) return false;
            }
        }
        return true;
    };
    check_right<softmax_kernel>({2}, data.views(), data.poisoned(), right);
    check_every_mutant_reported<softmax_kernel>("row softmax", {2}, data.views(), data.poisoned());
}

TEST_CASE("TMA pipelined copy") {
    strip data(7, 20);
    const auto arguments = data.as_tensors(7);
    check_right<copy_kernel>({1}, arguments, data.poisoned(), data.each([](float x) { return x + 1.0f; }));
    check_every_mutant_reported<copy_kernel>("TMA pipelined copy", {1}, arguments, data.poisoned());
}

TEST_CASE("pipelined GEMM") {
    constexpr int rows = 60, columns = 72, depth = 160;
    std::vector<bf16> a(rows * depth), b(depth * columns);
    std::vector<float> c(rows * columns), expected(rows * columns);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = bf16(static_cast<float>(i * 29 % 61) / 30.0f - 1.0f);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = bf16(static_cast<float>(i * 31 % 67) / 33.0f - 1.0f);
    for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) {
            double sum = 0;
            for (int k = 0; k < depth; ++k) {
                sum += double{convert<float>(a[row * depth + k])} * convert<float>(b[k * columns + column]);
            }
            expected[row * columns + column] = static_cast<float>(sum);
        }
    }
    const gemm_kernel::arguments arguments{make_tma_tensor<gemm_kernel::a_tile>(matrix(a.data(), rows, depth)),
                                           make_tma_tensor<gemm_kernel::b_tile>(matrix(b.data(), depth, columns)),
                                           matrix(c.data(), rows, columns), depth / 32};
    const auto prepare = [&] { c.assign(c.size(), poison); };
    const auto right = [&] {
        bool same = true;
        for (std::size_t i = 0; i < c.size(); ++i) same = same && near(c[i], expected[i]);
        return same;
    };
    check_right<gemm_kernel>({2}, arguments, prepare, right);
    check_every_mutant_reported<gemm_kernel>("pipelined GEMM", {2}, arguments, prepare);
}

TEST_CASE("cp.async multistage") {
    strip data(6);
    std::vector<float> out(64 * 32);
    const multistage_kernel::arguments arguments{matrix(data.in.data(), data.rows, 32), matrix(out.data(), 64, 32), 6};
    const auto prepare = [&] { out.assign(out.size(), poison); };
    const auto right = [&] {
        for (int i = 0; i < 64 * 32; ++i) {
            float sum = 0;
            for (int tile = 0; tile < 6; ++tile) sum += data.in[tile * 64 * 32 + i];
            if (!near(out[i], sum)) return false;
        }
        return true;
    };
    check_right<multistage_kernel>({1}, arguments, prepare, right);
    check_every_mutant_reported<multistage_kernel>("cp.async multistage", {1}, arguments, prepare);
}

TEST_CASE("ping-pong by named barriers") {
    std::vector<float> out(64 * 32);
    const ping_pong_kernel::arguments arguments{matrix(out.data(), 64, 32), 6};
    const auto prepare = [&] { out.assign(out.size(), poison); };
    float expected = 1.0f;
    for (int i = 0; i < 6; ++i) expected = 2.0f * expected + static_cast<float>(i % 2);
    const auto right = [&] {
        bool same = true;
        for (const float x : out) same = same && x == expected;
        return same;
    };
    check_right<ping_pong_kernel>({1}, arguments, prepare, right);
    check_every_mutant_reported<ping_pong_kernel>("ping-pong", {1}, arguments, prepare);
}

TEST_CASE("cluster multicast copy") {
    strip data(10);
    std::vector<float> second(data.out.size());
    const multicast_kernel::arguments arguments{
        make_tma_tensor<float_tile>(matrix(data.in.data(), data.rows, 32)),
        {matrix(data.out.data(), data.rows, 32), matrix(second.data(), data.rows, 32)},
        10};
    const auto prepare = [&] {
        data.out.assign(data.out.size(), poison);
        second.assign(second.size(), poison);
    };
    const auto right = [&] { return data.out == data.in && second == data.in; };
    check_right<multicast_kernel>({2}, arguments, prepare, right);
    check_every_mutant_reported<multicast_kernel>("cluster multicast copy", {2}, arguments, prepare);
}

TEST_CASE("persistent kernel with a dynamic tile scheduler") {
    strip data(6);
    int counter = 0;
    const queue_kernel::arguments arguments{make_tma_tensor<float_tile>(matrix(data.in.data(), data.rows, 32)),
                                            matrix(data.out.data(), data.rows, 32), &counter, 6};
    const auto prepare = [&] {
        data.out.assign(data.out.size(), poison);
        counter = 0;
    };
    check_right<queue_kernel>({2}, arguments, prepare, data.each([](float x) { return -x; }));
    check_every_mutant_reported<queue_kernel>("dynamic tile scheduler", {2}, arguments, prepare);
}

TEST_CASE("tiles passed between blocks by TMA stores, ordinary stores and flags") {
    strip data(2);
    std::vector<float> copied(data.out.size()), mapped(data.out.size());
    std::vector<int> flags(2);
    const auto view = [&](std::vector<float>& memory) { return matrix(memory.data(), data.rows, 32); };
    const relay_kernel::arguments arguments{view(data.in),
                                            make_tma_tensor<float_tile>(view(copied), tma_use::store),
                                            make_tma_tensor<float_tile>(view(mapped)),
                                            view(mapped),
                                            view(data.out),
                                            flags.data()};
    const auto prepare = [&] {
        for (auto* memory : {&data.out, &copied, &mapped}) memory->assign(memory->size(), poison);
        flags.assign(2, 0);
    };
    const auto right = [&] {
        bool same = true;
        for (std::size_t i = 0; i < data.in.size(); ++i) {
            same = same && data.out[i] == data.in[(i + 64 * 32) % data.in.size()] + 1.0f;
        }
        return same;
    };
    check_right<relay_kernel>({2}, arguments, prepare, right);
    check_every_mutant_reported<relay_kernel>("relay", {2}, arguments, prepare);
    // What only another access makes necessary is mutated, too.
    const std::string text = host::mutate<relay_kernel>({2}, arguments, 20, prepare).text();
    for (const std::string one :
         {"wait for written stores by warp at ", ", for reads only", "missing proxy fence: async fence by warp at ",
          "atomic release by warp at ", ", relaxed", "scope of an atomic operation by warp at ", ", block"}) {
        CAPTURE(one);
        CHECK(text.find(one) != std::string::npos);
    }
}

// Tests the method: a redundant synchronisation survives its removal, and the score shows it.
struct redundant_kernel {
    static constexpr int warps = 4;
    using arguments = matrices;
    struct shared_memory {
        float_tile tile;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        load(block, smem.tile, args.in.at(0, 0));
        block.sync();
        block.sync();
        map(block, smem.tile, [](float x) { return x; });
        block.sync();
        store(block, args.out.at(0, 0), smem.tile);
    }
};

TEST_CASE("a mutation of a redundant synchronisation survives") {
    strip data(1);
    const host::mutation_score score = host::mutate<redundant_kernel>({1}, data.views());
    CHECK(score.total() == 3);
    CHECK(score.killed() == 1);
    CHECK(score.text().find("SURVIVED: scope sync by block at ") != std::string::npos);
    CHECK(score.text().find("1 / 3 mutations detected") == 0);
}

struct wrong_kernel {
    static constexpr int warps = 4;
    using arguments = matrices;
    using shared_memory = redundant_kernel::shared_memory;
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        load(block, smem.tile, args.in.at(0, 0));
        map(block, smem.tile, [](float x) { return x; });
    }
};

TEST_CASE("does not mutate a kernel with a hazard") {
    strip data(1);
    CHECK_THROWS_AS(host::mutate<wrong_kernel>({1}, data.views()), hazard_error);
}

}  // namespace
}  // namespace mutations
