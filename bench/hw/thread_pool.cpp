// The thread pool of the host world: what a launch of empty blocks costs, at once and after a gap in which threads may fall
// asleep, and how fast all threads together read memory that fits in their caches or does not. Medians.
//
//     bench_hw_thread_pool [threads ...]       by default 1, 2, 4, ... and all cores
#include <imbrex/hw/host/thread_pool.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using imbrex::hw::thread_pool;
using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point began) {
    return std::chrono::duration<double>(clock::now() - began).count();
}

template <class Work>
double median_seconds(int repeats, double gap, const Work& work) {
    std::vector<double> all;
    for (int i = 0; i < repeats; ++i) {
        for (const auto began = clock::now(); seconds_since(began) < gap;) {}
        const auto began = clock::now();
        work();
        all.push_back(seconds_since(began));
    }
    std::ranges::nth_element(all, all.begin() + repeats / 2);
    return all[static_cast<std::size_t>(repeats) / 2];
}

double launch_microseconds(thread_pool& pool, int blocks, double gap) {
    return 1e6 * median_seconds(gap > 0 ? 500 : 5000, gap, [&] { pool.for_each(blocks, 0, [](int) {}); });
}

double read_gigabytes(thread_pool& pool, const std::vector<float>& values, int parts) {
    constexpr std::size_t lanes = 16;
    std::vector<float> sums(static_cast<std::size_t>(parts) * lanes);
    const std::size_t size = values.size() / static_cast<std::size_t>(parts) / lanes * lanes;
    const double seconds = median_seconds(100, 0, [&] {
        pool.for_each(parts, 0, [&](int part) {
            const float* const from = values.data() + size * static_cast<std::size_t>(part);
            float sum[lanes] = {};
            for (std::size_t i = 0; i < size; i += lanes) {
                for (std::size_t lane = 0; lane < lanes; ++lane) sum[lane] += from[i + lane];
            }
            std::copy_n(sum, lanes, &sums[static_cast<std::size_t>(part) * lanes]);
        });
    });
    return 1e-9 * static_cast<double>(size * static_cast<std::size_t>(parts) * sizeof(float)) / seconds;
}

void measure(int threads) {
    thread_pool pool(threads);
    std::printf("%7d", pool.threads());
    for (const double gap : {0.0, 100e-6, 1e-3}) std::printf("%9.2f", launch_microseconds(pool, pool.threads(), gap));
    std::printf("%9.2f", launch_microseconds(pool, 256, 0));
    for (const std::size_t megabytes : {1, 16, 256})
        std::printf("%9.1f", read_gigabytes(pool, std::vector<float>(megabytes << 18), 8 * pool.threads()));
    std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
    std::vector<int> threads;
    for (int i = 1; i < count; ++i) threads.push_back(std::max(1, std::atoi(arguments[i])));
    const int all = imbrex::hw::usable_cores();
    for (int i = 1; count == 1 && i < all; i *= 2) threads.push_back(i);
    if (count == 1) threads.push_back(all);
    std::printf(
        "        launch of a block per thread, us, after   256 blocks   reading, GB/s, of\n"
        "threads     0 us   100 us     1 ms       us     1 MB    16 MB   256 MB\n");
    for (const int each : threads) measure(each);
}
