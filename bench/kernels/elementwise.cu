// RMSNorm, LayerNorm, SwiGLU, embedding lookup and RoPE: GB/s for 16384 rows of 4096 columns of bf16, against a driver
// copy of the same bytes; and microseconds per launch for 1 and 32 rows, as in decode. Launches rotate over copies of the data that
// exceed the caches; CUDA graphs of many launches, medians. --json FILE writes the tables for bench/plot.py.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/embedding.hpp>
#include <imbrex/kernels/layer_norm.hpp>
#include <imbrex/kernels/rms_norm.hpp>
#include <imbrex/kernels/rope.hpp>
#include <imbrex/kernels/swiglu.hpp>

#include "device.hpp"
#include "report.hpp"

using namespace imbrex;
using namespace bench;

namespace {

constexpr int columns = 4096, depth = 128, vocabulary = 128256;

// Several arrays of one size, used in rotation.
class copies_of {
  public:
    copies_of(int copies, std::size_t count, unsigned seed)
        : copies_(copies), count_(count), all_(copies * count, seed) {}
    bf16* at(int copy) const { return all_.data() + copy % copies_ * count_; }
    std::size_t bytes() const { return count_ * sizeof(bf16); }

  private:
    int copies_;
    std::size_t count_;
    device_array<bf16> all_;
};

// Inputs and outputs; `wide` has twice the columns (gate and up).
struct arrays {
    int rows;
    copies_of wide, x, residual, out;
    device_array<bf16> weight, bias, table;
    device_array<int> ids;
    device_array<std::uint64_t> inv_freq;

    arrays(int rows, int copies)
        : rows(rows),
          wide(copies, std::size_t(rows) * columns * 2, 1),
          x(copies, std::size_t(rows) * columns, 20),
          residual(copies, std::size_t(rows) * columns, 40),
          out(copies, std::size_t(rows) * columns, 60),
          weight(columns, 80),
          bias(columns, 82),
          table(std::size_t(vocabulary) * columns, 81),
          ids(std::size_t(rows) * copies),
          inv_freq(depth / 2) {
        std::vector<int> numbers(std::size_t(rows) * copies);
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i * 7919 % vocabulary);
        check(cudaMemcpy(ids.data(), numbers.data(), ids.bytes(), cudaMemcpyHostToDevice), "copy");
        const auto all_inv_freq = rope_frequencies{.theta = 500000, .rotary_dim = depth}.fixed_point_inv_freq();
        check(cudaMemcpy(inv_freq.data(), all_inv_freq.data(), inv_freq.bytes(), cudaMemcpyHostToDevice), "copy");
    }
};

struct problem {
    contestant run;
    double bytes;
};

std::vector<problem> problems_of(const arrays& a, int copies) {
    const double one = static_cast<double>(a.x.bytes());
    const int rows = a.rows;
    const auto norm_of = [&a, rows](int copy) {
        return rms_norm_problem<bf16>{.x = as_rows<const bf16>(a.x.at(copy), rows, columns),
                                      .weight = a.weight.data(),
                                      .out = as_rows(a.out.at(copy), rows, columns)};
    };
    const auto layer_norm_of = [&a, rows](int copy) {
        return layer_norm_problem<bf16>{.x = as_rows<const bf16>(a.x.at(copy), rows, columns),
                                        .weight = a.weight.data(),
                                        .bias = a.bias.data(),
                                        .out = as_rows(a.out.at(copy), rows, columns)};
    };
    // The ids also serve as positions.
    const auto apply = [&a, rows, copies](const bf16* x, bf16* out, rope_style style, cudaStream_t stream, int copy) {
        apply_rope<bf16>::launch(world::device,
                                 {.x = as_rows_of_heads(x, rows, columns / depth, depth),
                                  .positions = a.ids.data() + std::size_t(copy % copies) * rows,
                                  .rope = {a.inv_freq.data(), depth, style},
                                  .out = as_rows_of_heads(out, rows, columns / depth, depth)},
                                 stream);
    };
    return {
        {{"copy by the driver",
          [&a](cudaStream_t stream, int copy) {
              check(cudaMemcpyAsync(a.out.at(copy), a.x.at(copy), a.x.bytes(), cudaMemcpyDeviceToDevice, stream),
                    "copy");
          }},
         2 * one},
        {{"RMSNorm",
          [=](cudaStream_t stream, int copy) { rms_norm<bf16>::launch(world::device, norm_of(copy), stream); }},
         2 * one},
        {{"RMSNorm with residual",
          [=, &a](cudaStream_t stream, int copy) {
              auto p = norm_of(copy);
              p.residual = as_rows(a.residual.at(copy), rows, columns);
              rms_norm<bf16>::launch(world::device, p, stream);
          }},
         4 * one},
        {{"RMSNorm of heads of 128",
          [=, &a](cudaStream_t stream, int copy) {
              auto p = norm_of(copy);
              p.x = as_rows_of_heads<const bf16>(a.x.at(copy), rows, columns / depth, depth);
              p.out = as_rows_of_heads(a.out.at(copy), rows, columns / depth, depth);
              rms_norm<bf16>::launch(world::device, p, stream);
          }},
         2 * one},
        {{"LayerNorm",
          [=](cudaStream_t stream, int copy) { layer_norm<bf16>::launch(world::device, layer_norm_of(copy), stream); }},
         2 * one},
        {{"LayerNorm with residual",
          [=, &a](cudaStream_t stream, int copy) {
              auto p = layer_norm_of(copy);
              p.residual = as_rows(a.residual.at(copy), rows, columns);
              layer_norm<bf16>::launch(world::device, p, stream);
          }},
         4 * one},
        {{"SwiGLU",
          [=, &a](cudaStream_t stream, int copy) {
              swiglu_activation<bf16>::launch(world::device,
                                              {.gate = gate_of<const bf16>(a.wide.at(copy), rows, columns),
                                               .up = up_of<const bf16>(a.wide.at(copy), rows, columns),
                                               .out = as_rows(a.out.at(copy), rows, columns)},
                                              stream);
          }},
         3 * one},
        {{"embedding lookup",
          [=, &a](cudaStream_t stream, int copy) {
              embedding<bf16>::launch(world::device,
                                      {.table = as_rows<const bf16>(a.table.data(), vocabulary, columns),
                                       .ids = a.ids.data() + std::size_t(copy % copies) * rows,
                                       .out = as_rows(a.out.at(copy), rows, columns)},
                                      stream);
          }},
         2 * one},
        {{"RoPE, 32 heads of 128",
          [=, &a](cudaStream_t stream, int copy) {
              apply(a.x.at(copy), a.out.at(copy), rope_style::half_split, stream, copy);
          }},
         2 * one},
        {{"RoPE, in place",
          [=, &a](cudaStream_t stream, int copy) {
              apply(a.out.at(copy), a.out.at(copy), rope_style::half_split, stream, copy);
          }},
         2 * one},
        {{"RoPE, interleaved",
          [=, &a](cudaStream_t stream, int copy) {
              apply(a.x.at(copy), a.out.at(copy), rope_style::interleaved, stream, copy);
          }},
         2 * one},
    };
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: no GPU\n");
        return 0;
    }
    report large("16384 rows of 4096 columns, bf16, caches cold", "GB/s");
    {
        constexpr int copies = 3;
        const arrays a(16384, copies);
        const auto all = problems_of(a, copies);
        std::vector<contestant> contestants;
        for (const problem& one : all) contestants.push_back(one.run);
        const auto times = take_turns(contestants, 20, 4 * copies);
        for (std::size_t i = 0; i < all.size(); ++i) {
            large.add(all[i].run.name, {{"GB/s", 1e-6 * all[i].bytes / times[i]}});
        }
        large.note("clocks: " + clocks());
    }
    report small("few rows of 4096 columns, bf16, caches cold", "microseconds per launch");
    std::vector<std::vector<float>> times;
    std::vector<std::string> names;
    for (const int rows : {1, 32}) {
        const int copies = rows == 1 ? 4096 : 256;
        const arrays a(rows, copies);
        std::vector<contestant> contestants;
        for (const problem& one : problems_of(a, copies)) contestants.push_back(one.run);
        times.push_back(take_turns(contestants, 20, copies));
        names.clear();
        for (const contestant& one : contestants) names.push_back(one.name);
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
        small.add(names[i], {{"1 row", 1e3 * times[0][i]}, {"32 rows", 1e3 * times[1][i]}});
    }
    small.note("clocks: " + clocks());
    return publish({large, small}, json_file(count, words)) ? 0 : 1;
}
