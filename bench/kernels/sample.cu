// Sampling: microseconds per launch over rows of float logits. Logits are normally distributed, with or without a few
// tokens that stand out, as those of a model do. The same logits are used by every launch: few rows stay in L2, as they
// do after the GEMM that produces them. CUDA graphs of many launches, medians. --json FILE writes the tables for
// bench/plot.py.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/sample.hpp>

#include "device.hpp"
#include "report.hpp"

using namespace imbrex;
using namespace bench;

namespace {

struct kind {
    const char* name;
    sample_options options;
};

const std::vector<kind> kinds{{"greedy", {.temperature = 0}},
                              {"temperature 0.8", {.temperature = 0.8f}},
                              {"top-k 40, top-p 0.9", {.temperature = 0.8f, .top_k = 40, .top_p = 0.9f}},
                              {"top-p 0.9", {.temperature = 0.8f, .top_p = 0.9f}},
                              {"min-p 0.05", {.temperature = 0.8f, .min_p = 0.05f}}};

device_array<float> logits_of(int rows, int vocabulary, bool stand_out) {
    std::mt19937 generator(1);
    std::normal_distribution<float> number(0, 3);
    std::vector<float> some((std::size_t{1} << 20) + 7);
    for (float& one : some) one = number(generator);
    std::vector<float> all(std::size_t(rows) * vocabulary);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = some[i % some.size()];
    for (int row = 0; stand_out && row < rows; ++row) {
        for (int i = 0; i < 20; ++i) {
            const int token = static_cast<int>(generator() % static_cast<unsigned>(vocabulary));
            all[std::size_t(row) * vocabulary + token] = 20 + number(generator);
        }
    }
    device_array<float> logits(all.size());
    check(cudaMemcpy(logits.data(), all.data(), logits.bytes(), cudaMemcpyHostToDevice), "copy");
    return logits;
}

// One options per row, each with its own seed.
device_array<sample_options> options_of(const kind& one, int rows) {
    std::vector<sample_options> all(rows, one.options);
    for (int row = 0; row < rows; ++row) all[row].seed = static_cast<std::uint64_t>(row);
    device_array<sample_options> options(all.size());
    check(cudaMemcpy(options.data(), all.data(), options.bytes(), cudaMemcpyHostToDevice), "copy");
    return options;
}

std::vector<float> times_of(int rows, int vocabulary, bool stand_out) {
    const device_array<float> logits = logits_of(rows, vocabulary, stand_out);
    const device_array<int> tokens(rows);
    std::vector<device_array<sample_options>> options;
    for (const kind& one : kinds) options.push_back(options_of(one, rows));
    std::vector<contestant> contestants;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        contestants.push_back({kinds[i].name, [&, i](cudaStream_t stream, int) {
                                   sample_tokens<float>::launch(
                                       world::device,
                                       {.logits = as_rows<const float>(logits.data(), rows, vocabulary),
                                        .options = options[i].data(),
                                        .tokens = tokens.data()},
                                       stream);
                               }});
    }
    return take_turns(contestants, 20, 50);
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: no GPU\n");
        return 0;
    }
    std::vector<report> reports;
    for (const bool stand_out : {true, false}) {
        for (const int vocabulary : {128256, 151936}) {
            report& table = reports.emplace_back(std::to_string(vocabulary) + " logits, normal with spread 3" +
                                                     (stand_out ? " and 20 that stand out" : ""),
                                                 "microseconds per launch");
            std::vector<std::vector<float>> times;
            for (const int rows : {1, 8, 64, 256}) times.push_back(times_of(rows, vocabulary, stand_out));
            for (std::size_t i = 0; i < kinds.size(); ++i) {
                table.add(kinds[i].name, {{"1 row", 1e3 * times[0][i]},
                                          {"8 rows", 1e3 * times[1][i]},
                                          {"64 rows", 1e3 * times[2][i]},
                                          {"256 rows", 1e3 * times[3][i]}});
            }
            table.note("clocks: " + clocks());
        }
    }
    return publish(reports, json_file(count, words)) ? 0 : 1;
}
