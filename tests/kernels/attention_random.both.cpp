// Random attention cases through the launcher, in all output modes, each run twice with identical bits.
#include <imbrex/kernels/attention_forward.hpp>

#include "kernels/attention/random_cases.hpp"
#include "kernels/attention/trial.hpp"

#include <map>
#include <string>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr attention_output_mode normalised = attention_output_mode::normalised;

template <class In, class Mask, class Score, attention_head_dims HeadDims, kv_layout Keys = kv_layout::contiguous>
void check_whole(unsigned seed, int cases) {
    using attention = attention_forward<In, attention_options{.head_dims = {HeadDims}, .kv = Keys}, Mask, Score>;
    constexpr masks seen = std::is_same_v<Mask, any_mask>      ? masks::any
                           : std::is_same_v<Mask, chunks_mask> ? masks::chunks
                                                               : masks::causal;
    constexpr bool scores = std::is_same_v<Score, any_score>;
    const auto mask_of = [](auto& trial) {
        if constexpr (seen == masks::any) {
            return trial.mask();
        } else if constexpr (seen == masks::chunks) {
            return trial.mask_of_chunks();
        } else {
            return Mask{};
        }
    };
    const auto score_of = [](auto& trial) {
        if constexpr (scores) {
            return trial.score();
        } else {
            return Score{};
        }
    };
    std::map<std::string, int> used;
    with_random_cases(seed, cases,
                      {.head_dims = HeadDims, .seen = seen, .scores = scores, .pages = Keys == kv_layout::paged},
                      [&](world where, const attention_test_case& c, unsigned number) {
                          attention_trial<In> trial(where, c, number);
                          const Mask mask = mask_of(trial);
                          const Score score = score_of(trial);
                          attention::launch(where, trial.upload(), mask, score);
                          const auto bits = trial.download();
                          const auto again = trial.upload();
                          attention::launch(where, again, mask, score);
                          CHECK(bits == trial.download());
                          ++used[name_of(attention::choice(where, again))];
                          return trial.worst();
                      });
    for (const auto& [kernel, times] : used) MESSAGE(kernel << " " << times);
}

// Causal attention in two parts of the keys.
template <class Attention, class Trial, class Each>
void in_parts(world where, Trial& trial, Each each) {
    auto problem = trial.upload();
    const int seqlen_k = trial.c.seqlen_k, middle = seqlen_k / 3;
    for (const auto& [first, end] : {std::pair{0, middle}, std::pair{middle, seqlen_k}}) {
        auto part = problem;
        part.k = rows_of(problem.k, first, end - first);
        part.v = rows_of(problem.v, first, end - first);
        Attention::launch(where, part, part_of_causal_mask{first, seqlen_k});
        each();
        problem.sinks = nullptr;  // added once, in the first part
    }
}

}  // namespace

TEST_CASE("random attention: bf16, small head dims, masks and score_mods") {
    check_whole<bf16, any_mask, any_score, 64>(1000, 100);
}

TEST_CASE("random attention: fp16, medium head dims, masks and score_mods") {
    check_whole<fp16, any_mask, any_score, 128>(2000, 90);
}

TEST_CASE("random attention: bf16, causal") {
    check_whole<bf16, causal_mask, score_mod::identity, 128>(3000, 90);
}

TEST_CASE("random attention: fp16, head_dim_qk larger than head_dim_v, chunks") {
    check_whole<fp16, chunks_mask, score_mod::identity, attention_head_dims(192, 128)>(4000, 70);
}

TEST_CASE("random attention: bf16, paged KV") {
    check_whole<bf16, any_mask, score_mod::identity, 128, kv_layout::paged>(5000, 120);
}

TEST_CASE("random attention: parts of the keys merged one after the other") {
    constexpr attention_output_mode merged = attention_output_mode::merged;
    using attention =
        attention_forward<fp16, attention_options{.head_dims = {128}, .output = merged}, part_of_causal_mask>;
    with_random_cases(6000, 60, {.head_dims = 128, .sequences = false},
                      [&](world where, const attention_test_case& c, unsigned number) {
                          attention_trial<fp16, merged> trial(where, c, number);
                          in_parts<attention>(where, trial, [] {});
                          const auto bits = trial.download();
                          in_parts<attention>(where, trial, [] {});
                          CHECK(bits == trial.download());
                          return trial.worst();
                      });
}

TEST_CASE("random attention: partial outputs merged by row_max and row_sum") {
    constexpr attention_output_mode partial = attention_output_mode::partial;
    using attention =
        attention_forward<bf16, attention_options{.head_dims = {64}, .output = partial}, part_of_causal_mask>;
    with_random_cases(7000, 60, {.head_dims = 64, .sinks = false, .sequences = false},
                      [&](world where, const attention_test_case& c, unsigned number) {
                          attention_trial<bf16, partial> trial(where, c, number);
                          std::vector<double> out(trial.out.values.size()), row_sum(trial.row_sum.values.size()),
                              top(row_sum.size(), -INFINITY);
                          in_parts<attention>(where, trial, [&] {
                              trial.download();
                              trial.each_row([&](std::size_t place, std::size_t row) {
                                  const double most = std::max<double>(top[row], trial.row_max.values[row]);
                                  if (most == -INFINITY) return;
                                  const double before = std::exp2(top[row] - most),
                                               now = std::exp2(trial.row_max.values[row] - most);
                                  for (int i = 0; i < c.head_dim_v; ++i) {
                                      out[place + i] = out[place + i] * before + trial.out.values[place + i] * now;
                                  }
                                  row_sum[row] = row_sum[row] * before + trial.row_sum.values[row] * now;
                                  top[row] = most;
                              });
                          });
                          trial.each_row([&](std::size_t place, std::size_t row) {
                              for (int i = 0; i < c.head_dim_v && row_sum[row] > 0; ++i) out[place + i] /= row_sum[row];
                              top[row] = row_sum[row] > 0 ? top[row] + std::log2(row_sum[row]) : -INFINITY;
                          });
                          return trial.compare(out, top);
                      });
}
