// Ring attention by virtual ranks: threads with streams that share one GPU, and exchange keys by copies in its memory. Together they do what the
// single kernel does over the whole sequence, in as many parts as there are ranks and steps; how much longer they take is what the schedule, the
// merging of parts and the copies cost. 8 heads, depth 128, causal, bf16. Each run is compared with the single kernel's result. Wall time
// from all ranks ready to all ranks done, medians, in turn; each turn begins with runs that are not counted, so that all find the chip as hot. Tables: 128k, 1m. --json FILE writes them for bench/plot.py.
#include <imbrex/comm/loopback.hpp>
#include <imbrex/hw/world_copy.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/ring_attention.hpp>

#include "device.hpp"
#include "report.hpp"

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>

using namespace imbrex;
using namespace bench;

namespace {

constexpr int heads = 8, depth = 128;
constexpr std::size_t row_bytes = sizeof(bf16) * heads * depth;
using single_attention =
    attention_forward<bf16, causal_mask, plain_score, attention_result::normalised, attention_tiles<depth>>;
using attention = ring_attention<bf16, plain_score, attention_tiles<depth>>;

struct whole_tensors {
    int tokens;
    device_array<bf16> q, k, v, out;

    explicit whole_tensors(int tokens)
        : tokens(tokens),
          q(elements(tokens), 1),
          k(elements(tokens), 2),
          v(elements(tokens), 3),
          out(elements(tokens)) {
        out.poison();
    }
    static std::size_t elements(int tokens) { return std::size_t(tokens) * heads * depth; }

    void attend(cudaStream_t stream) const {
        const auto view = [&](auto* pointer) { return batch_sequence_head(pointer, 1, tokens, heads, depth); };
        const auto read = [&](const bf16* pointer) { return view(pointer); };
        single_attention::launch(
            world::device, {.q = read(q.data()), .k = read(k.data()), .v = read(v.data()), .out = view(out.data())}, {},
            {}, stream);
    }
};

struct rank_tensors {
    device_array<bf16> q, k, v, rounded;
    device_array<float> out, log2_sums;
    world_memory workspace;

    rank_tensors(const whole_tensors& whole, const ring_plan& plan)
        : q(elements(plan)),
          k(elements(plan)),
          v(elements(plan)),
          rounded(elements(plan)),
          out(elements(plan)),
          log2_sums(plan.rows_of(plan.rank()) * heads),
          workspace(world::device, attention::workspace_bytes(plan)) {
        const token_runs tokens = plan.sequences().front().tokens_of(plan.rank());
        for (const auto& [to, from] : {std::pair(&q, &whole.q), {&k, &whole.k}, {&v, &whole.v}}) {
            std::size_t row = 0;
            for (const token_run& run : tokens.runs) {
                copy_rows(
                    world::device, {reinterpret_cast<char*>(to->data()) + row * row_bytes, row_bytes},
                    {reinterpret_cast<const char*>(from->data()) + run.first * row_bytes, tokens.stride * row_bytes},
                    row_bytes, run.count);
                row += run.count;
            }
        }
        rounded.poison();
        out.poison();
        check(cudaDeviceSynchronize(), "tensors of a rank");
    }
    static std::size_t elements(const ring_plan& plan) { return plan.rows_of(plan.rank()) * heads * depth; }

    ring_problem<bf16> problem() const {
        return {.q = q.data(),
                .k = k.data(),
                .v = v.data(),
                .out = out.data(),
                .log2_sums = log2_sums.data(),
                .workspace = workspace.at(),
                .rounded = rounded.data()};
    }
};

double milliseconds(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// All ranks once; what rank 0 saw between all being ready and all being done.
double run_ring(const sequence_schedule& schedule, const std::vector<std::unique_ptr<rank_tensors>>& tensors) {
    double took = 0;
    loopback_group group(world::device, schedule.ranks);
    run_ranks(group, [&](loopback& link) {
        const ring_plan plan = agreed_plan(link, {schedule});
        const world_stream stream(world::device);
        const char mine = 0;
        std::vector<char> all(schedule.ranks);
        link.gather(&mine, all.data(), 1);
        const double here = milliseconds([&] {
            attention::launch(link, plan, tensors[link.rank()]->problem(), stream.get());
            link.finish(stream.get());
            link.gather(&mine, all.data(), 1);
        });
        if (link.rank() == 0) took = here;
    });
    return took;
}

// The largest difference of a few thousand rows from the single kernel's.
double difference(const whole_tensors& whole, const sequence_schedule& schedule,
                  const std::vector<std::unique_ptr<rank_tensors>>& tensors) {
    double worst = 0;
    std::vector<bf16> right(heads * depth), found(heads * depth);
    for (int i = 0; i < 4096; ++i) {
        const int position = static_cast<int>(std::int64_t{i} * 2654435761 % whole.tokens);
        const token_place place = schedule.place_of(position);
        check(cudaMemcpy(right.data(), whole.out.data() + std::size_t(position) * heads * depth, row_bytes,
                         cudaMemcpyDeviceToHost),
              "a row");
        check(cudaMemcpy(found.data(), tensors[place.rank]->rounded.data() + std::size_t(place.row) * heads * depth,
                         row_bytes, cudaMemcpyDeviceToHost),
              "a row");
        for (int j = 0; j < heads * depth; ++j) {
            const double apart = std::abs(double(float(right[j])) - double(float(found[j])));
            worst = std::isnan(apart) || apart > worst ? apart : worst;
        }
    }
    return worst;
}

// The last of some runs that follow each other: the chip is as hot for all of them.
template <class Run>
float after_warming_up(int runs, const Run& run) {
    double last = 0;
    for (int i = 0; i < runs; ++i) last = run();
    return static_cast<float>(last);
}

report table_of(int tokens, int rounds, int runs, const std::vector<sequence_schedule>& schedules,
                const std::vector<std::string>& names) {
    report made(std::to_string(tokens) + " tokens, 8 heads, depth 128, causal, bf16; virtual ranks on one GPU",
                "milliseconds");
    const whole_tensors whole(tokens);
    std::vector<std::vector<float>> times(schedules.size() + 1);
    std::vector<double> apart(schedules.size());
    for (int round = 0; round < rounds; ++round) {
        times[0].push_back(after_warming_up(runs, [&] {
            return milliseconds([&] {
                whole.attend(nullptr);
                check(cudaStreamSynchronize(nullptr), "the single kernel");
            });
        }));
        for (std::size_t i = 0; i < schedules.size(); ++i) {
            std::vector<std::unique_ptr<rank_tensors>> tensors;
            for (int rank = 0; rank < schedules[i].ranks; ++rank) {
                tensors.push_back(std::make_unique<rank_tensors>(whole, ring_plan({schedules[i]}, rank)));
            }
            times[i + 1].push_back(after_warming_up(runs, [&] { return run_ring(schedules[i], tensors); }));
            if (round == 0) apart[i] = difference(whole, schedules[i], tensors);
        }
    }
    const float alone = median(times[0]);
    const double flop = 2.0 * tokens * tokens * heads * depth;
    std::printf("single kernel: %.2f ms, %.0f TFLOP/s\n", alone, 1e-9 * flop / alone);
    for (std::size_t i = 0; i < schedules.size(); ++i) {
        made.add(names[i], {{"single kernel", alone}, {"ranks", median(times[i + 1])}});
        std::printf("%s: largest difference %.5f\n", names[i].c_str(), apart[i]);
    }
    made.note("clocks: " + clocks());
    return made;
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: there is no GPU to measure on\n");
        return 0;
    }
    const auto schedule = [](int tokens, int ranks, token_placement placement, int query_chunks = 1) {
        return sequence_schedule{.tokens = tokens,
                                 .ranks = ranks,
                                 .query_chunks = query_chunks,
                                 .placement = placement,
                                 .sizes = {.heads = heads, .key_heads = heads, .depth = depth, .value_depth = depth}};
    };
    std::vector<report> all;
    for (const auto& [name, tokens, rounds, runs] : {std::tuple("128k", 131072, 9, 8), {"1m", 1048576, 3, 1}}) {
        if (!wanted(count, words, name)) continue;
        std::vector<sequence_schedule> schedules;
        std::vector<std::string> names;
        for (const int ranks : {1, 2, 4, 8}) {
            schedules.push_back(schedule(tokens, ranks, token_placement::zigzag));
            names.push_back(std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks, zigzag"));
        }
        if (tokens < 1000000) {
            schedules.push_back(schedule(tokens, 8, token_placement::striped));
            names.push_back("8 ranks, striped");
            schedules.push_back(schedule(tokens, 8, token_placement::zigzag, 2));
            names.push_back("8 ranks, mesh of 2 x 4, zigzag");
        }
        all.push_back(table_of(tokens, rounds, runs, schedules, names));
    }
    return publish(all, json_file(count, words)) ? 0 : 1;
}
