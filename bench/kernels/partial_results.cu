// Results of some of the keys, cleared, merged and rounded: what they move, in GB/s, for 16384 tokens of 32 heads of 128 columns, beside a
// copy of as many bytes by the driver; and microseconds of a launch for the tokens of a decode. Every launch has other copies of its
// data, so many that none is in the caches when its turn comes; graphs of many launches, medians. --json FILE writes the tables for
// bench/plot.py.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/partial_results.hpp>

#include "device.hpp"
#include "report.hpp"

using namespace imbrex;
using namespace bench;

namespace {

constexpr int heads = 32, columns = 128;

// Two results of so many tokens, and places for what becomes of them; each so many times.
class arrays {
  public:
    arrays(int tokens, int copies)
        : tokens_(tokens),
          copies_(copies),
          first_(elements(), 1),
          second_(elements(), 2),
          rounded_(elements()),
          numbers_(4 * rows() * copies, 3) {}

    std::size_t rows() const { return std::size_t(tokens_) * heads; }
    attention_outputs first(int copy) const { return result(first_, copy, 0); }
    attention_outputs second(int copy) const { return result(second_, copy, 2); }
    attention_view<bf16> rounded(int copy) const {
        return batch_sequence_head(rounded_.data() + place(copy), 1, tokens_, heads, columns);
    }
    double wide_bytes() const { return 4.0 * rows() * columns; }
    double number_bytes() const { return 4.0 * rows(); }

  private:
    std::size_t elements() const { return rows() * columns * copies_; }
    std::size_t place(int copy) const { return copy % copies_ * rows() * columns; }
    attention_outputs result(const device_array<float>& wide, int copy, int which) const {
        const auto numbers = [&](int number) {
            float* const begin = numbers_.data() + (std::size_t(number) * copies_ + copy % copies_) * rows();
            return batch_head_rows(begin, heads, tokens_);
        };
        attention_outputs made{};
        made.wide = batch_sequence_head(wide.data() + place(copy), 1, tokens_, heads, columns);
        made.largest = numbers(which);
        made.sums = numbers(which + 1);
        return made;
    }

    int tokens_, copies_;
    device_array<float> first_, second_;
    device_array<bf16> rounded_;
    device_array<float> numbers_;
};

struct problem {
    contestant run;
    double bytes;
};

std::vector<problem> problems_of(const arrays& a) {
    const double wide = a.wide_bytes(), number = a.number_bytes();
    return {
        {{"copy by the driver",
          [&a, wide](cudaStream_t stream, int copy) {
              check(cudaMemcpyAsync(a.first(copy).wide.pointer, a.second(copy).wide.pointer,
                                    static_cast<std::size_t>(wide), cudaMemcpyDeviceToDevice, stream),
                    "copy");
          }},
         2 * wide},
        {{"clear",
          [&a](cudaStream_t stream, int copy) { clear_results::launch(world::device, a.first(copy), stream); }},
         wide + 2 * number},
        {{"round to bf16",
          [&a](cudaStream_t stream, int copy) {
              round_results<bf16>::launch(world::device, {.wide = a.second(copy).wide, .out = a.rounded(copy)}, stream);
          }},
         1.5 * wide},
        {{"merge in place",
          [&a](cudaStream_t stream, int copy) {
              const attention_outputs first = a.first(copy);
              merge_results<float>::launch(world::device,
                                           {.first = first,
                                            .second = a.second(copy),
                                            .out = first.wide,
                                            .largest = first.largest,
                                            .sums = first.sums},
                                           stream);
          }},
         3 * wide + 6 * number},
        {{"merge, divide and round to bf16",
          [&a](cudaStream_t stream, int copy) {
              merge_results<bf16>::launch(
                  world::device, {.first = a.first(copy), .second = a.second(copy), .out = a.rounded(copy)}, stream);
          }},
         2.5 * wide + 4 * number},
    };
}

std::vector<float> times_of(const std::vector<problem>& all, int launches) {
    std::vector<contestant> contestants;
    for (const problem& one : all) contestants.push_back(one.run);
    return take_turns(contestants, 20, launches);
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: there is no GPU to measure on\n");
        return 0;
    }
    report large("16384 tokens, 32 heads of 128 columns, fp32, caches cold", "GB/s");
    {
        constexpr int copies = 3;
        const arrays a(16384, copies);
        const auto all = problems_of(a);
        const auto times = times_of(all, 4 * copies);
        for (std::size_t i = 0; i < all.size(); ++i) {
            large.add(all[i].run.name, {{"GB/s", 1e-6 * all[i].bytes / times[i]}});
        }
        large.note("clocks: " + clocks());
    }
    report small("few tokens, 32 heads of 128 columns, fp32, caches cold", "microseconds a launch");
    const arrays one(1, 4096), some(32, 256);
    const auto of_one = problems_of(one), of_some = problems_of(some);
    const auto times_of_one = times_of(of_one, 4096), times_of_some = times_of(of_some, 256);
    for (std::size_t i = 0; i < of_one.size(); ++i) {
        small.add(of_one[i].run.name, {{"1 token", 1e3 * times_of_one[i]}, {"32 tokens", 1e3 * times_of_some[i]}});
    }
    small.note("clocks: " + clocks());
    return publish({large, small}, json_file(count, words)) ? 0 : 1;
}
