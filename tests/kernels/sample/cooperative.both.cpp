// Cooperative sampling by a cluster: tokens and thresholds are bitwise those of a single block, whether the cluster
// settles the row or block 0 falls back.
#include <imbrex/kernels/sample.hpp>

#include "kernels/sample/trial.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cstring>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

struct sampled {
    std::vector<int> tokens;
    std::vector<sample_threshold> thresholds;

    bool operator==(const sampled& other) const {
        return tokens == other.tokens && std::memcmp(thresholds.data(), other.thresholds.data(),
                                                     thresholds.size() * sizeof(sample_threshold)) == 0;
    }
};

template <class T>
sample_arguments<T> arguments_without_logprobs(sample_trial<T>& trial) {
    sample_problem<T> p = trial.upload();
    p.logprobs = nullptr;
    p.num_top_logprobs = 0;
    return sample_tokens<T>::arguments_of(p);
}

template <class Kernel, class T>
sampled sample_by(world where, sample_trial<T>& trial) {
    const auto args = arguments_without_logprobs(trial);
    run<Kernel>(where, Kernel::grid_of(args), args, 2);
    trial.tokens.download();
    trial.thresholds.download();
    return {trial.tokens.values, trial.thresholds.values};
}

template <class T, row_alignment Known, int ClusterSize>
void check_shared(world where, sample_trial<T>& trial) {
    using shared = sample_kernel<T, Known, ClusterSize>;
    if (!can_run<shared>(where)) return;
    REQUIRE(shared::can_do(arguments_without_logprobs(trial)));
    const sampled alone = sample_by<sample_kernel<T, Known>>(where, trial);
    std::fill(trial.tokens.values.begin(), trial.tokens.values.end(), -7);
    CHECK(sample_by<shared>(where, trial) == alone);
}

template <class T, row_alignment Known, int ClusterSize>
void check_vocabulary(int vocabulary, float spread = 3, int adjustment_step = 0, int outstanding = 0) {
    for (const world where : worlds()) {
        // Too slow in the checked world, and smaller sizes take the same paths.
        if (where == world::host_checked && vocabulary > 3000) continue;
        CAPTURE(name_of(where));
        CAPTURE(vocabulary);
        CAPTURE(spread);
        sample_trial<T> trial(where, vocabulary, many_options(), spread);
        for (int row = 0; row < trial.shape.rows(); ++row) {
            for (int i = 0; i < outstanding; ++i) {
                const int token = (row * 7919 + i * 104729) % vocabulary;
                trial.at(row, token) = convert<T>(convert<float>(trial.at(row, token)) + 12);
            }
        }
        if (adjustment_step > 0) trial.adjust_tokens(where, adjustment_step);
        check_shared<T, Known, ClusterSize>(where, trial);
    }
}

}  // namespace

TEST_CASE("cooperative sampling equals single-block sampling for any vocabulary size") {
    for (const int vocabulary : {8, 1024, 2056, 20000}) check_vocabulary<float, row_alignment::aligned, 8>(vocabulary);
    for (const int vocabulary : {1, 7, 3001, 40001}) check_vocabulary<bf16, row_alignment::unaligned, 2>(vocabulary, 2);
}

TEST_CASE("cooperative sampling equals single-block sampling for large vocabularies, flat and peaked") {
    check_vocabulary<float, row_alignment::aligned, 8>(128256, 1);
    check_vocabulary<float, row_alignment::aligned, 8>(151936, 3, 0, 20);
    check_vocabulary<bf16, row_alignment::aligned, 8>(151936, 2, 0, 3);
    check_vocabulary<float, row_alignment::aligned, 8>(262144, 4);
}

TEST_CASE("cooperative sampling equals single-block sampling with bias and penalties") {
    check_vocabulary<float, row_alignment::aligned, 8>(2000, 3, 9);
    check_vocabulary<float, row_alignment::aligned, 8>(128256, 3, 700, 20);
    check_vocabulary<bf16, row_alignment::unaligned, 2>(2999, 1, 3);
}

TEST_CASE("cooperative sampling equals single-block sampling for ties, NaN and infinities") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const int vocabulary = where == world::host_checked ? 5000 : 70000;
        sample_trial<float> trial(where, vocabulary, many_options(), 0);
        check_shared<float, row_alignment::aligned, 8>(where, trial);
        for (int row = 0; row < trial.shape.rows(); ++row) {
            for (int i = 0; i < vocabulary; ++i) {
                trial.at(row, i) = i % 3 == 0 ? not_a_number : i % 1000 == row ? infinity : -infinity;
                if (row % 2 == 0 && i % 1000 < 8) trial.at(row, i) = static_cast<float>(i % 2);
            }
        }
        check_shared<float, row_alignment::aligned, 8>(where, trial);
        for (float& one : trial.logits.values) one = one > 0 ? not_a_number : -infinity;
        check_shared<float, row_alignment::aligned, 8>(where, trial);
    }
}

TEST_CASE("cooperative sampling cuts ties among the candidates as a single block does") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const int vocabulary = where == world::host_checked ? 12 * 1024 : 70 * 1024;
        sample_trial<float> trial(where, vocabulary, {{.top_k = 3}, {.top_k = 10, .top_p = 0.5f}, {.top_p = 0.6f}}, 0);
        for (int row = 0; row < 3; ++row) {
            // One token per tile stands out, a few of them more than the others.
            for (int i = 0; i < vocabulary / 1024; ++i)
                trial.at(row, 1024 * i + i * 7 % 1000) = i % 5 == 2 ? 20.0f : 18.0f;
        }
        check_shared<float, row_alignment::aligned, 8>(where, trial);
        CHECK(trial.tokens.values[0] >= 0);
    }
}

TEST_CASE("a draw without filters equals that of a single block for every seed") {
    for (const world where : worlds()) {
        if (where == world::host_checked) continue;
        CAPTURE(name_of(where));
        std::vector<sample_options> all(64);
        for (int i = 0; i < 64; ++i) {
            all[i] = {.temperature = i % 2 == 0 ? 1.0f : 0.7f, .min_p = i % 4 == 0 ? 0.02f : 0.0f};
            all[i].seed = static_cast<std::uint64_t>(i);
        }
        sample_trial<float> trial(where, 32768, all, 2);
        check_shared<float, row_alignment::aligned, 8>(where, trial);
    }
}

#if !defined(__CUDACC__)
namespace {

// Reports whether the cluster settles a row.
struct settle_kernel {
    static constexpr int warps = 16, cluster = 8;
    using row_type = detail::logits_row<float, row_alignment::aligned, warps>;
    struct arguments {
        sample_arguments<float> sampling;
        int* settled;
    };
    struct shared_memory {
        row_type::tile_maxima maxima;
        detail::shared_cooperative<warps, cluster> cooperative;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.cooperative.init(block);
        fence_barriers(block);
        block.cluster_sync();
        const int number = block.index().x / cluster, rank = block.cluster_rank();
        block.each_warp([&](warp& self) {
            const row_type row(args.sampling, number, shared.maxima);
            detail::cooperative_sampling<row_type, warps, cluster> sampling(row, shared.cooperative, rank);
            const int settled = sampling.find(self).settled;
            if (rank == 0 && self.index() == 0) {
                hw::put_global(self, args.settled + number, settled, source::current());
            }
        });
        block.cluster_sync();
    }
};

}  // namespace

TEST_CASE("the cluster settles common options without the fallback") {
    const std::vector<sample_options> kinds{{.temperature = 0}, {},
                                            {.min_p = 0.05f},   {.top_k = 1},
                                            {.top_k = 40},      {.temperature = 0.6f, .top_k = 64, .top_p = 0.9f},
                                            {.top_k = 65},      {.top_p = 0.9f}};
    for (const bool stand_out : {false, true}) {
        sample_trial<float> trial(world::host, 128256, kinds, 1);
        for (int row = 0; stand_out && row < trial.shape.rows(); ++row) {
            for (int i = 0; i < 20; ++i) trial.at(row, i * 5003) += 12;
        }
        std::vector<int> settled(kinds.size(), -1);
        run<settle_kernel>(world::host, {8 * trial.shape.rows()}, {arguments_without_logprobs(trial), settled.data()});
        CHECK(settled == std::vector<int>{1, 1, 1, 1, 1, 1, 0, stand_out ? 1 : 0});
    }
}

TEST_CASE("the cluster path rejects token masks, logprobs and long rows") {
    sample_trial<float> there(world::host, 64, {{}});
    using shared = sample_tokens<float>::kernel<row_alignment::aligned, 8>;
    auto args = sample_tokens<float>::arguments_of(there.upload());
    CHECK(!shared::can_do(args));
    args.logprobs = nullptr;
    CHECK(shared::can_do(args));
    args.vocab_size = 262144;
    CHECK(shared::can_do(args));
    args.token_masks = reinterpret_cast<const std::uint32_t*>(args.tokens);
    CHECK(!shared::can_do(args));
    CHECK(!sample_tokens<float>::kernel<row_alignment::aligned>::can_do(args));
    CHECK(sample_tokens<float>::kernel<row_alignment::aligned, 1, true>::can_do(args));
    args.token_masks = nullptr;
    args.vocab_size = 262145;
    CHECK(!shared::can_do(args));
    CHECK(sample_tokens<float>::kernel<row_alignment::aligned>::can_do(args));
}

TEST_CASE("cooperative sampling has no hazard in any schedule, and every mutation is detected") {
    using kernel = sample_tokens<bf16>::kernel<row_alignment::unaligned, 2>;
    // A draw without filters, one from candidates, and the fallback: together they reach every synchronisation.
    const std::vector<sample_options> kinds{
        {}, {.top_k = 3, .top_p = 0.8f}, {.temperature = 2, .top_k = 70, .top_p = 0.8f, .min_p = 0.01f}};
    sample_trial<bf16> there(world::host, 4400, kinds, 0.3f);
    there.adjust_tokens(world::host, 400);
    const auto args = arguments_without_logprobs(there);
    const grid_dim grid = kernel::grid_of(args);
    check_synchronisation<kernel>("cooperative sampling", grid, args, 300);
}
#endif
