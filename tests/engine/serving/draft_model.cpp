// Speculative decoding with models on a CPU, n-gram drafts and draft models: the texts without drafts, bit by bit, and
// the distribution of the model.
#include "engine/serving/draft_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/structured_output.hpp"
#include "engine/grammar/token_trie.hpp"
#include "engine/loading/random_model.hpp"
#include "engine/model/kv_cache_layout.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/model/steered_runner.hpp"
#include "engine/serving/engine.hpp"
#include "engine/serving/ngram_proposer.hpp"
#include "engine/serving/text_engine.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

model_config letters_config() {
    model_config config = small_config(model_family::llama);
    config.layers = 1;
    config.vocab_size = 26;
    config.hidden_size = 32;
    config.intermediate_size = 48;
    return config;
}

struct outcome {
    std::vector<sampled_token> tokens;
    std::string text;
    finish_reason reason = finish_reason::none;
};

bool same(const outcome& a, const outcome& b) {
    const auto equal = [](const sampled_token& one, const sampled_token& other) {
        const auto equal_logprobs = [](const token_logprob& x, const token_logprob& y) {
            return x.token == y.token && x.value == y.value;
        };
        return one.token == other.token && one.logprob == other.logprob &&
               std::ranges::equal(one.top_logprobs, other.top_logprobs, equal_logprobs);
    };
    return std::ranges::equal(a.tokens, b.tokens, equal) && a.text == b.text && a.reason == b.reason;
}

// Requests with all sampling parameters, greedy and not, some with constraints, with repetitions in the prompts.
std::vector<text_options> random_options(unsigned seed, bool constrained) {
    std::mt19937 random(seed);
    std::vector<text_options> all;
    const auto trie = std::make_shared<const token_trie>(letters(), 26);
    for (int i = 0; i < 10; ++i) {
        text_options one{
            .max_tokens = 1 + static_cast<int>(random() % 40), .sampling = {.bias = {}, .stop = {}}, .ends = false};
        sampling_params& how = one.sampling;
        how.temperature = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 1.0f : 0.3f;
        how.seed = random();
        if (i % 4 == 1) how.repetition_penalty = 1.3f;
        if (i % 4 == 2) how.frequency_penalty = 0.4f, how.presence_penalty = 0.2f;
        if (i % 5 == 3) how.bias = {{3, 4.0f}, {7, -100.0f}};
        if (i % 2 == 1) how.logprobs = 3;
        if (i % 5 == 4) how.stop = {"e", "qx"};
        if (i % 7 == 6) how.top_k = 5, how.top_p = 0.9f;
        if (constrained && i % 5 == 1) how.constraint = constrain_to_regex("(abc|bcd|[d-h]x*)*", trie);
        all.push_back(std::move(one));
    }
    return all;
}

std::map<int, outcome> outcomes_of(text_engine& model, unsigned seed, bool constrained = false) {
    const std::vector<text_options> options = random_options(seed, constrained);
    std::map<sequence_id, int> numbers;
    for (std::size_t i = 0; i < options.size(); ++i) {
        std::vector<int> prompt = random_tokens(3 + static_cast<int>(i), 26, seed + static_cast<unsigned>(i % 4));
        prompt.insert(prompt.end(), prompt.begin(), prompt.end());
        numbers[model.submit(std::move(prompt), options[i])] = static_cast<int>(i);
    }
    std::map<int, outcome> found;
    while (!model.idle()) {
        for (text_event& each : model.step()) {
            outcome& it = found[numbers.at(each.id)];
            it.text += each.text;
            it.tokens.push_back(each.sampled);
            it.reason = each.reason;
        }
    }
    return found;
}

engine_options with(speculation_options drafts, std::int64_t kv_cache_bytes = 0) {
    return {.kv_cache_bytes = kv_cache_bytes,
            .context = 120,
            .max_num_batched_tokens = 40,
            .max_num_seqs = 5,
            .speculation = std::move(drafts)};
}

std::shared_ptr<model_files> drafting_model(unsigned seed) {
    return std::make_shared<model_files>(random_model(letters_config(), weight_type::f32, seed));
}

}  // namespace

TEST_CASE("Speculation on a CPU: texts, log-probabilities and ends are those without it") {
    for (unsigned seed = 0; seed < 3; ++seed) {
        CAPTURE(seed);
        const std::int64_t memory = seed == 0 ? 14000 : 0;  // little: with preemptions
        text_engine without(random_model(letters_config()), with({}, memory));
        const bool constrained = seed == 1;  // drafts are not constrained: fewer are accepted
        const auto expected = outcomes_of(without, seed, constrained);
        CHECK(expected.size() == 10);
        const auto check = [&](speculation_options drafts, double least) {
            drafts.depth = seed == 2 ? speculation::depth::adapted : speculation::depth::fixed;
            text_engine model(random_model(letters_config()), with(std::move(drafts), memory));
            const auto found = outcomes_of(model, seed, constrained);
            for (const auto& [number, one] : expected) {
                CAPTURE(number);
                CHECK(same(found.at(number), one));
            }
            const statistics_summary figures = model.summary();
            if (seed == 2) return;
            CHECK(figures.drafted_tokens > 30);
            CHECK(figures.acceptance_rate > (constrained ? least / 5 : least));
            CHECK(figures.tokens_per_step > 1);
            if (seed == 0) CHECK(figures.preemptions > 0);
        };
        check({.source = draft_source::ngram, .draft_tokens = 5}, 0.01);
        // The same model drafts its own tokens, at any temperature: both draw with the same random numbers.
        check({.source = draft_source::model, .draft_tokens = 4, .draft_model = drafting_model(1)}, 0.9);
        check({.source = draft_source::model, .draft_tokens = 3, .draft_model = drafting_model(2)}, 0.01);
    }
}

TEST_CASE("Speculation with windows, and with a draft model of a shorter context") {
    model_config config = letters_config();
    config.layers = 2;
    config.set_windows(9, [](int layer) { return layer == 0; });
    const auto files = [&] { return random_model(config); };
    text_engine without(files(), with({}));
    const auto expected = outcomes_of(without, 5);
    const auto drafting = [&](int context) {
        auto draft = std::make_shared<model_files>(files());
        draft->config.context = context;
        return draft;
    };
    for (const int context : {256, 40}) {
        text_engine model(files(), with({.source = draft_source::model,
                                         .draft_tokens = 4,
                                         .draft_model = drafting(context),
                                         .depth = speculation::depth::fixed}));
        const auto found = outcomes_of(model, 5);
        for (const auto& [number, one] : expected) CHECK(same(found.at(number), one));
        CHECK(model.summary().acceptance_rate > 0.9);
    }
}

TEST_CASE("The second and third token have the distribution of the model") {
    const model_config config = letters_config();
    const model_files files = random_model(config), other = random_model(config, weight_type::f32, 2);
    const std::vector<int> prompt = random_tokens(12, 26, 3);
    const auto vocabulary = static_cast<std::size_t>(config.vocab_size);
    constexpr double temperature = 0.7;

    // Exact probabilities of the token after these.
    const auto asked = runner_of(files, weight_format::f32, kv_cache_format::f16);
    const auto probabilities = [&](const std::vector<int>& tokens) {
        batch work;
        work.entries.push_back({sequence_in(tokens, blocks_from(0, 4)), 0, static_cast<int>(tokens.size()), true});
        const rows logits = run_logits(*asked, work, config.vocab_size);
        std::vector<double> all;
        for (const double each : logits.front()) all.push_back(std::exp(each / temperature));
        const double sum = std::accumulate(all.begin(), all.end(), 0.0);
        for (double& each : all) each /= sum;
        return all;
    };
    std::vector<double> second(vocabulary), third(vocabulary);
    const std::vector<double> first = probabilities(prompt);
    for (int a = 0; a < config.vocab_size; ++a) {
        std::vector<int> tokens = prompt;
        tokens.push_back(a);
        const std::vector<double> after_one = probabilities(tokens);
        tokens.push_back(0);
        for (int b = 0; b < config.vocab_size; ++b) {
            const double both = first[static_cast<std::size_t>(a)] * after_one[static_cast<std::size_t>(b)];
            second[static_cast<std::size_t>(b)] += both;
            if (both < 5e-4) continue;  // together less than 2% of the third token's probability
            tokens.back() = b;
            const std::vector<double> after_two = probabilities(tokens);
            for (std::size_t c = 0; c < vocabulary; ++c) third[c] += both * after_two[c];
        }
    }

    constexpr int samples = 2000;
    const runner_options options{
        .num_kv_blocks = 256, .max_num_batched_tokens = 256, .max_num_seqs = 64, .max_num_draft_tokens = 192};
    const auto target = make_runner(files, options);
    engine<runner> all(*target, block_manager(kv_cache_groups(config, options)),
                       {.context = 60, .max_num_batched_tokens = 256, .max_num_seqs = 64, .max_draft_tokens = 3});
    all.speculate(speculation(
        std::make_unique<draft_model>(
            make_runner(other, options), block_manager(kv_cache_groups(config, options)),
            draft_model_options{.context = 60, .max_num_batched_tokens = 256, .vocab_size = config.vocab_size}),
        speculation::depth::fixed));
    all.add({.prompt = prompt,
             .max_new_tokens = 4,
             .eos_tokens = {},
             .sampling = {.temperature = temperature, .bias = {}, .stop = {}},
             .samples = samples});
    std::map<sequence_id, std::vector<int>> texts;
    while (!all.idle()) {
        for (const event& each : all.step()) texts[each.id].push_back(each.sampled.token);
    }
    CHECK(all.summary().acceptance_rate > 0.05);
    CHECK(all.summary().acceptance_rate < 0.95);
    CHECK(all.blocks().used_bytes() == 0);

    const auto chi_square = [&](std::size_t position, const std::vector<double>& expected) {
        std::vector<double> seen(vocabulary);
        for (const auto& [id, tokens] : texts) ++seen[static_cast<std::size_t>(tokens.at(position))];
        double sum = 0, rare_seen = 0, rare_expected = 0;
        int cells = 0;
        const auto add = [&](double count, double wanted) {
            sum += (count - wanted) * (count - wanted) / wanted;
            ++cells;
        };
        for (std::size_t i = 0; i < vocabulary; ++i) {
            const double wanted = expected[i] * samples;
            if (wanted >= 8) {
                add(seen[i], wanted);
            } else {
                rare_seen += seen[i];
                rare_expected += wanted;
            }
        }
        if (rare_expected >= 8) add(rare_seen, rare_expected);
        CHECK(cells > 5);
        // Standard deviations from the mean of the distribution.
        return (sum - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
    };
    CHECK(chi_square(1, second) < 4);
    CHECK(chi_square(2, third) < 4);
}

TEST_CASE("A draft model must have the vocabulary of the model") {
    const auto vocabulary_of = [](std::vector<std::string> tokens) {
        vocabulary words;
        words.name = "few";
        for (std::string& each : tokens) words.tokens.push_back({std::move(each), {}, 0});
        return tokenizer(std::move(words));
    };
    const tokenizer ab = vocabulary_of({"a", "b"});
    require_same_vocabulary(ab, vocabulary_of({"a", "b"}));
    check_error_message("draft model: its vocabulary has 3 tokens, the model's 2; both must have the same", [&] {
        require_same_vocabulary(ab, vocabulary_of({"a", "b", "c"}));
    });
    check_error_message("draft model: token 1 is \"c\", and \"b\" in the model", [&] {
        require_same_vocabulary(ab, vocabulary_of({"a", "c"}));
    });
    check_error_message("draft model: none; speculation with a model needs one",
                        [] { text_engine(random_model(letters_config()), with({.source = draft_source::model})); });
    check_error_message("draft tokens: 0; must be from 1 to 128", [] {
        text_engine(random_model(letters_config()), with({.source = draft_source::ngram, .draft_tokens = 0}));
    });
}

TEST_CASE("A draft model without room for a sequence drafts nothing, and works for the others") {
    const model_config config = letters_config();
    const model_files files = random_model(config);
    const auto made = [&](int blocks) {
        const runner_options options{.num_kv_blocks = blocks, .max_num_batched_tokens = 64, .max_num_seqs = 4};
        return draft_model(make_runner(files, options), block_manager(kv_cache_groups(config, options)),
                           {.context = 200, .max_num_batched_tokens = 64, .vocab_size = config.vocab_size});
    };
    const auto wish = [](sequence_id id, int length) {
        auto one = sequence_in(random_tokens(length, 26, static_cast<unsigned>(id)), {});
        one->id = id;
        return batch_entry{.sequence = one, .first = length - 1, .count = 1, .samples = true, .max_draft = 3};
    };
    draft_model small = made(3);
    batch work;
    work.entries = {wish(1, 20), wish(2, 100), wish(3, 10)};
    small.propose(work);
    CHECK(work.entries[0].draft.size() == 3);
    CHECK(work.entries[1].draft.empty());
    CHECK(work.entries[2].draft.size() == 3);
    // A sequence that is not in the batch gives way.
    batch later;
    later.entries = {wish(4, 40)};
    small.propose(later);
    CHECK(later.entries[0].draft.size() == 3);
    for (const sequence_id id : {1, 2, 3, 4}) small.ended(id);
    CHECK(small.blocks().used_bytes() == 0);

    // Longer than a batch: in chunks, with the draft of one batch.
    draft_model large = made(40);
    batch all;
    all.entries = {wish(1, 20), wish(2, 150), wish(3, 50)};
    large.propose(all);
    for (const batch_entry& each : all.entries) CHECK(each.draft.size() == 3);
    work.entries = {wish(2, 150)};
    made(40).propose(work);
    CHECK(work.entries[0].draft == all.entries[1].draft);
}

TEST_CASE("A steered runner accepts the given fraction of the drafts") {
    for (const double rate : {0.0, 0.7, 1.0}) {
        CAPTURE(rate);
        text_engine model(random_model(letters_config()), with({.source = draft_source::ngram,
                                                                .draft_tokens = 1,
                                                                .depth = speculation::depth::fixed,
                                                                .steered_acceptance = rate}));
        for (int i = 0; i < 10; ++i)
            model.submit(std::vector<int>{1, 2, 3},
                         {.max_tokens = 100, .sampling = {.bias = {}, .stop = {}}, .ends = false});
        while (!model.idle()) model.step();
        CHECK(model.summary().acceptance_rate == doctest::Approx(rate).epsilon(0.1));
        CHECK(model.summary().generated_tokens == 1000);
    }
    check_error_message("acceptance: 2; it must be from 0 to 1", [] { steered_runner(nullptr, 2); });
}

}  // namespace imbrex::engine::test
