// Random attentions through the launcher, whole results and parts of them, each twice, to the same bits.
#include <imbrex/kernels/attention_forward.hpp>

#include "kernels/attention/random_cases.hpp"
#include "kernels/attention/trial.hpp"

#include <map>
#include <string>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr attention_result normalised = attention_result::normalised;

template <class In, class Mask, class Score, attention_depths Depths, attention_keys Keys = attention_keys::in_rows>
void check_whole(unsigned seed, int cases) {
    using attention = attention_forward<In, Mask, Score, normalised, attention_tiles<Depths>, Keys>;
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
                      {.depths = Depths, .seen = seen, .scores = scores, .pages = Keys == attention_keys::in_pages},
                      [&](world where, const attention_test_case& c, unsigned number) {
                          attention_trial<In> trial(where, c, number);
                          const Mask mask = mask_of(trial);
                          const Score score = score_of(trial);
                          attention::launch(where, trial.send(), mask, score);
                          const auto bits = trial.fetch();
                          const auto again = trial.send();
                          attention::launch(where, again, mask, score);
                          CHECK(bits == trial.fetch());
                          ++used[name_of(attention::choice(where, again))];
                          return trial.worst();
                      });
    for (const auto& [kernel, times] : used) MESSAGE(kernel << " " << times);
}

// Causal attention in two parts of the keys.
template <class Attention, class Trial, class Each>
void in_parts(world where, Trial& trial, Each each) {
    auto problem = trial.send();
    const int keys = trial.c.keys, middle = keys / 3;
    for (const auto& [first, end] : {std::pair{0, middle}, std::pair{middle, keys}}) {
        auto part = problem;
        part.k = rows_of(problem.k, first, end - first);
        part.v = rows_of(problem.v, first, end - first);
        Attention::launch(where, part, part_of_causal_mask{first, keys});
        each();
        problem.sinks = nullptr;  // they have their weight in the first part
    }
}

}  // namespace

TEST_CASE("random attentions: bf16, small depths, masks and scores") {
    check_whole<bf16, any_mask, any_score, 64>(1000, 100);
}

TEST_CASE("random attentions: fp16, middle depths, masks and scores") {
    check_whole<fp16, any_mask, any_score, 128>(2000, 90);
}

TEST_CASE("random attentions: bf16, causal") {
    check_whole<bf16, causal_mask, plain_score, 128>(3000, 90);
}

TEST_CASE("random attentions: fp16, keys deeper than values, chunks") {
    check_whole<fp16, chunks_mask, plain_score, attention_depths(192, 128)>(4000, 70);
}

TEST_CASE("random attentions: bf16, keys and values in pages") {
    check_whole<bf16, any_mask, plain_score, 128, attention_keys::in_pages>(5000, 120);
}

TEST_CASE("random attentions: parts of the keys merged one after the other") {
    constexpr attention_result merged = attention_result::merged;
    using attention = attention_forward<fp16, part_of_causal_mask, plain_score, merged, attention_tiles<128>>;
    with_random_cases(6000, 60, {.depths = 128, .sequences = false},
                      [&](world where, const attention_test_case& c, unsigned number) {
                          attention_trial<fp16, merged> trial(where, c, number);
                          in_parts<attention>(where, trial, [] {});
                          const auto bits = trial.fetch();
                          in_parts<attention>(where, trial, [] {});
                          CHECK(bits == trial.fetch());
                          return trial.worst();
                      });
}

TEST_CASE("random attentions: partial results put together by their largest scores and sums") {
    constexpr attention_result partial = attention_result::partial;
    using attention = attention_forward<bf16, part_of_causal_mask, plain_score, partial, attention_tiles<64>>;
    with_random_cases(7000, 60, {.depths = 64, .sinks = false, .sequences = false},
                      [&](world where, const attention_test_case& c, unsigned number) {
                          attention_trial<bf16, partial> trial(where, c, number);
                          std::vector<double> out(trial.out.values.size()), sums(trial.sums.values.size()),
                              top(sums.size(), -INFINITY);
                          in_parts<attention>(where, trial, [&] {
                              trial.fetch();
                              trial.each_row([&](std::size_t place, std::size_t row) {
                                  const double most = std::max<double>(top[row], trial.largest.values[row]);
                                  if (most == -INFINITY) return;
                                  const double before = std::exp2(top[row] - most),
                                               now = std::exp2(trial.largest.values[row] - most);
                                  for (int i = 0; i < c.value_depth; ++i) {
                                      out[place + i] = out[place + i] * before + trial.out.values[place + i] * now;
                                  }
                                  sums[row] = sums[row] * before + trial.sums.values[row] * now;
                                  top[row] = most;
                              });
                          });
                          trial.each_row([&](std::size_t place, std::size_t row) {
                              for (int i = 0; i < c.value_depth && sums[row] > 0; ++i) out[place + i] /= sums[row];
                              top[row] = sums[row] > 0 ? top[row] + std::log2(sums[row]) : -INFINITY;
                          });
                          return trial.compare(out, top);
                      });
}
