// LSE merge of partial attention results (clear, merge, round): GB/s for 16384 tokens of 32 heads of 128 columns,
// against a driver copy of the same bytes; and microseconds per launch for the tokens of a decode step. Launches rotate
// over copies of the data that exceed the caches; CUDA graphs of many launches, medians. --json FILE writes the tables
// for bench/plot.py.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/merge_lse.hpp>

#include "device.hpp"
#include "report.hpp"

using namespace imbrex;
using namespace bench;

namespace {

constexpr int heads = 32, columns = 128;

// Two partial results and an output, in several copies.
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
    attention_aux_outputs first(int copy) const { return result(first_, copy, 0); }
    attention_aux_outputs second(int copy) const { return result(second_, copy, 2); }
    attention_view<bf16> rounded(int copy) const {
        return batch_sequence_head(rounded_.data() + place(copy), 1, tokens_, heads, columns);
    }
    double wide_bytes() const { return 4.0 * rows() * columns; }
    double number_bytes() const { return 4.0 * rows(); }

  private:
    std::size_t elements() const { return rows() * columns * copies_; }
    std::size_t place(int copy) const { return copy % copies_ * rows() * columns; }
    attention_aux_outputs result(const device_array<float>& o_accum, int copy, int which) const {
        const auto numbers = [&](int number) {
            float* const begin = numbers_.data() + (std::size_t(number) * copies_ + copy % copies_) * rows();
            return batch_head_rows(begin, heads, tokens_);
        };
        attention_aux_outputs made{};
        made.o_accum = batch_sequence_head(o_accum.data() + place(copy), 1, tokens_, heads, columns);
        made.row_max = numbers(which);
        made.row_sum = numbers(which + 1);
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
    const double o_accum = a.wide_bytes(), number = a.number_bytes();
    return {
        {{"copy by the driver",
          [&a, o_accum](cudaStream_t stream, int copy) {
              check(cudaMemcpyAsync(a.first(copy).o_accum.pointer, a.second(copy).o_accum.pointer,
                                    static_cast<std::size_t>(o_accum), cudaMemcpyDeviceToDevice, stream),
                    "copy");
          }},
         2 * o_accum},
        {{"clear", [&a](cudaStream_t stream,
                        int copy) { clear_attention_outputs::launch(world::device, a.first(copy), stream); }},
         o_accum + 2 * number},
        {{"round to bf16",
          [&a](cudaStream_t stream, int copy) {
              downconvert_output<bf16>::launch(world::device,
                                               {.o_accum = a.second(copy).o_accum, .out = a.rounded(copy)}, stream);
          }},
         1.5 * o_accum},
        {{"merge in place",
          [&a](cudaStream_t stream, int copy) {
              const attention_aux_outputs first = a.first(copy);
              merge_lse<float>::launch(world::device,
                                       {.first = first,
                                        .second = a.second(copy),
                                        .out = first.o_accum,
                                        .row_max = first.row_max,
                                        .row_sum = first.row_sum},
                                       stream);
          }},
         3 * o_accum + 6 * number},
        {{"merge, divide and round to bf16",
          [&a](cudaStream_t stream, int copy) {
              merge_lse<bf16>::launch(
                  world::device, {.first = a.first(copy), .second = a.second(copy), .out = a.rounded(copy)}, stream);
          }},
         2.5 * o_accum + 4 * number},
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
        std::printf("skipped: no GPU\n");
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
    report small("few tokens, 32 heads of 128 columns, fp32, caches cold", "microseconds per launch");
    const arrays one(1, 4096), some(32, 256);
    const auto of_one = problems_of(one), of_some = problems_of(some);
    const auto times_of_one = times_of(of_one, 4096), times_of_some = times_of(of_some, 256);
    for (std::size_t i = 0; i < of_one.size(); ++i) {
        small.add(of_one[i].run.name, {{"1 token", 1e3 * times_of_one[i]}, {"32 tokens", 1e3 * times_of_some[i]}});
    }
    small.note("clocks: " + clocks());
    return publish({large, small}, json_file(count, words)) ? 0 : 1;
}
