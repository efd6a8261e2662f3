// Ring attention with virtual ranks: threads with streams that share one GPU and exchange K and V by copies in its
// memory. Together they do the work of one kernel over the whole sequence, split by ranks and steps; the extra time is
// the cost of the schedule, the LSE merges and the copies. 8 heads, head_dim 128, causal, bf16. Each run is checked
// against the single kernel. Wall time from all ranks ready to all ranks done, medians, interleaved; each measurement
// follows warm-up runs, so that the GPU is equally hot. Tables: 128k, 1m. --json FILE writes them for bench/plot.py.
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

constexpr int heads = 8, head_dim = 128;
constexpr std::size_t row_bytes = sizeof(bf16) * heads * head_dim;
using single_attention = attention_forward<bf16, attention_options{.head_dims = {head_dim}}, causal_mask>;
using attention = ring_attention<bf16, attention_head_dim_set{head_dim}>;

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
    static std::size_t elements(int tokens) { return std::size_t(tokens) * heads * head_dim; }

    void attend(cudaStream_t stream) const {
        const auto view = [&](auto* pointer) { return batch_sequence_head(pointer, 1, tokens, heads, head_dim); };
        const auto read = [&](const bf16* pointer) { return view(pointer); };
        single_attention::launch(
            world::device, {.q = read(q.data()), .k = read(k.data()), .v = read(v.data()), .out = view(out.data())}, {},
            {}, stream);
    }
};

struct rank_tensors {
    device_array<bf16> q, k, v, rounded;
    device_array<float> out, lse2;
    world_memory workspace;

    rank_tensors(const whole_tensors& whole, const ring_plan& plan)
        : q(elements(plan)),
          k(elements(plan)),
          v(elements(plan)),
          rounded(elements(plan)),
          out(elements(plan)),
          lse2(plan.rows_of(plan.rank()) * heads),
          workspace(world::device, attention::workspace_bytes(plan)) {
        const token_ranges tokens = plan.sequences().front().tokens_of(plan.rank());
        for (const auto& [to, from] : {std::pair(&q, &whole.q), {&k, &whole.k}, {&v, &whole.v}}) {
            std::size_t row = 0;
            for (const token_range& range : tokens.ranges) {
                copy_2d(
                    world::device, {reinterpret_cast<char*>(to->data()) + row * row_bytes, row_bytes},
                    {reinterpret_cast<const char*>(from->data()) + range.first * row_bytes, tokens.stride * row_bytes},
                    row_bytes, range.count);
                row += range.count;
            }
        }
        rounded.poison();
        out.poison();
        check(cudaDeviceSynchronize(), "tensors of a rank");
    }
    static std::size_t elements(const ring_plan& plan) { return plan.rows_of(plan.rank()) * heads * head_dim; }

    ring_problem<bf16> problem() const {
        return {.q = q.data(),
                .k = k.data(),
                .v = v.data(),
                .out = out.data(),
                .lse2 = lse2.data(),
                .workspace = workspace.at(),
                .rounded = rounded.data()};
    }
};

double milliseconds(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// Runs all ranks once; returns rank 0's time from all ready to all done.
double run_ring(const ring_schedule& schedule, const std::vector<std::unique_ptr<rank_tensors>>& tensors) {
    double took = 0;
    loopback_group group(world::device, schedule.ranks);
    run_ranks(group, [&](loopback& comm) {
        const ring_plan plan = make_ring_plan(comm, {schedule});
        const world_stream stream(world::device);
        const char mine = 0;
        std::vector<char> all(schedule.ranks);
        comm.all_gather(&mine, all.data(), 1);
        const double here = milliseconds([&] {
            attention::launch(comm, plan, tensors[comm.rank()]->problem(), stream.get());
            comm.synchronise(stream.get());
            comm.all_gather(&mine, all.data(), 1);
        });
        if (comm.rank() == 0) took = here;
    });
    return took;
}

// Max difference from the single kernel over a few thousand rows.
double difference(const whole_tensors& whole, const ring_schedule& schedule,
                  const std::vector<std::unique_ptr<rank_tensors>>& tensors) {
    double worst = 0;
    std::vector<bf16> right(heads * head_dim), found(heads * head_dim);
    for (int i = 0; i < 4096; ++i) {
        const int position = static_cast<int>(std::int64_t{i} * 2654435761 % whole.tokens);
        const token_location place = schedule.location_of(position);
        check(cudaMemcpy(right.data(), whole.out.data() + std::size_t(position) * heads * head_dim, row_bytes,
                         cudaMemcpyDeviceToHost),
              "a row");
        check(cudaMemcpy(found.data(), tensors[place.rank]->rounded.data() + std::size_t(place.row) * heads * head_dim,
                         row_bytes, cudaMemcpyDeviceToHost),
              "a row");
        for (int j = 0; j < heads * head_dim; ++j) {
            const double apart = std::abs(double(float(right[j])) - double(float(found[j])));
            worst = std::isnan(apart) || apart > worst ? apart : worst;
        }
    }
    return worst;
}

// The last of several consecutive runs, so that the GPU is equally hot for all contestants.
template <class Run>
float after_warming_up(int runs, const Run& run) {
    double last = 0;
    for (int i = 0; i < runs; ++i) last = run();
    return static_cast<float>(last);
}

report table_of(int tokens, int rounds, int runs, const std::vector<ring_schedule>& schedules,
                const std::vector<std::string>& names) {
    report made(std::to_string(tokens) + " tokens, 8 heads, head_dim 128, causal, bf16; virtual ranks on one GPU",
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
    const double flop = 2.0 * tokens * tokens * heads * head_dim;
    std::printf("single kernel: %.2f ms, %.0f TFLOP/s\n", alone, 1e-9 * flop / alone);
    for (std::size_t i = 0; i < schedules.size(); ++i) {
        made.add(names[i], {{"single kernel", alone}, {"ranks", median(times[i + 1])}});
        std::printf("%s: max difference %.5f\n", names[i].c_str(), apart[i]);
    }
    made.note("clocks: " + clocks());
    return made;
}

}  // namespace

int main(int count, char** words) {
    if (!device_available()) {
        std::printf("skipped: no GPU\n");
        return 0;
    }
    const auto schedule = [](int tokens, int ranks, token_placement placement, int q_chunks = 1) {
        return ring_schedule{
            .tokens = tokens,
            .ranks = ranks,
            .q_chunks = q_chunks,
            .placement = placement,
            .sizes = {.heads = heads, .kv_heads = heads, .head_dim = head_dim, .head_dim_v = head_dim}};
    };
    std::vector<report> all;
    for (const auto& [name, tokens, rounds, runs] : {std::tuple("128k", 131072, 9, 8), {"1m", 1048576, 3, 1}}) {
        if (!wanted(count, words, name)) continue;
        std::vector<ring_schedule> schedules;
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
