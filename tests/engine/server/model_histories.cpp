// Random histories of requests with a small model: a KV cache that is too small, grammars, stop strings, speculation, host
// memory for evicted blocks, failing steps, time limits. request_histories.hpp says what clients do.
#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/grammar/structured_output.hpp"
#include "engine/loading/random_model.hpp"
#include "engine/model/kv_cache_layout.hpp"
#include "engine/server/request_histories.hpp"

using namespace imbrex::engine;
using namespace imbrex::engine::server;

namespace {

constexpr int histories_of_server = 25;
constexpr int longest_prompt = 56, most_new_tokens = 24;

model_files small_model(std::uint64_t seed) {
    model_config config = config_of_known_model("tiny");
    config.layers = 1;
    config.hidden_size = 64;
    config.intermediate_size = 64;
    config.heads = config.kv_heads = 1;
    config.vocab_size = 320;
    return random_model(config, seed);
}

class random_requests {
  public:
    explicit random_requests(unsigned seed)
        : random_(seed), alone_(small_model(1), {.context = 128, .max_num_seqs = 1}) {
        for (std::vector<int>& each : stems_) each = random_tokens(longest_prompt - 8);
    }

    std::vector<known_request> make(int count) {
        std::vector<known_request> all;
        while (static_cast<int>(all.size()) < count) all.push_back(known(random_request()));
        return all;
    }

    // An empty prompt, an unknown token, too long a text.
    generation_request bad() {
        generation_request request = random_request();
        const int kind = below(3);
        if (kind == 0) request.prompt.clear();
        if (kind == 1) request.prompt.push_back(100000);
        if (kind == 2) request.prompt = random_tokens(500);
        return request;
    }

  private:
    int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

    std::vector<int> random_tokens(int count) {
        std::vector<int> tokens(static_cast<std::size_t>(count));
        for (int& token : tokens) token = below(320);
        return tokens;
    }

    generation_request random_request() {
        const std::vector<int>& stem = stems_[below(3)];
        generation_request request{.prompt = {stem.begin(), stem.begin() + below(longest_prompt - 8)}};
        for (const int token : random_tokens(1 + below(8))) request.prompt.push_back(token);
        text_options& options = request.options;
        options.max_tokens = 1 + below(most_new_tokens);
        options.priority = below(3);
        sampling_params& sampling = options.sampling;
        sampling.seed = static_cast<std::uint64_t>(below(5));
        sampling.temperature = static_cast<float>(below(3)) / 2;
        if (below(4) == 0) sampling.stop = {std::string(1, static_cast<char>('a' + below(26)))};
        if (below(4) == 0) sampling.frequency_penalty = 1;
        if (below(4) == 0) sampling.bias = {{below(320), 20.0f}};
        if (below(4) == 0) sampling.logprobs = 2;
        if (below(4) == 0) options.eos_tokens = random_tokens(10);
        if (below(5) == 0) {
            const char* const schemas[] = {R"({"type": "object"})",
                                           R"({"type": "array", "items": {"type": "integer"}})",
                                           R"({"enum": ["yes", "no"]})"};
            sampling.constraint = constrain_to_json_schema(schemas[below(3)], alone_.token_trie());
        }
        return request;
    }

    known_request known(generation_request request) {
        known_request made{.request = std::move(request), .text = {}};
        alone_.submit(made.request.prompt, made.request.options);
        while (!alone_.idle()) {
            for (const text_event& each : alone_.step()) {
                made.text += each.text;
                made.reason = each.reason;
            }
        }
        return made;
    }

    std::mt19937 random_;
    std::vector<int> stems_[3];
    text_engine alone_;
};

engine_options random_options(std::mt19937& random) {
    const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
    const std::int64_t block = kv_cache_groups(small_model(1).config, {})[0].block_bytes;
    engine_options options{.kv_cache_bytes = (6 + below(10)) * block + 1,
                           .context = 128,
                           .max_num_batched_tokens = 8 + below(40),
                           .max_num_seqs = 1 + below(6)};
    const int drafts = below(3);
    if (drafts == 1) options.speculation = {.source = draft_source::ngram, .draft_tokens = 1 + below(5)};
    if (drafts == 2) {
        options.speculation = {
            .source = draft_source::model,
            .draft_tokens = 1 + below(5),
            .draft_model = std::make_shared<model_files>(small_model(static_cast<unsigned>(below(2)) + 1))};
    }
    if (drafts != 0 && below(2) == 0) options.speculation.depth = speculation::depth::fixed;
    if (below(2) == 0) options.cache = {.host_bytes = (1 + below(20)) * block};
    return options;
}

struct engine_figures {
    std::int64_t preemptions = 0, cached = 0, host = 0, drafted = 0, accepted = 0;

    void add(const statistics_summary& all) {
        preemptions += all.preemptions;
        cached += all.cached_tokens;
        host += all.host_cache.tokens;
        drafted += all.drafted_tokens;
        accepted += all.accepted_tokens;
    }
};

// Some histories with one server; then it drains.
void serve(unsigned seed, int histories, random_requests& requests, outcomes_met& met, engine_figures& figures) {
    std::mt19937 random(seed);
    const std::vector<known_request> known = requests.make(24);
    text_engine model(small_model(1), random_options(random));
    model_generation_engine inner(model);
    failing_engine engine(inner, random() % 3 == 0 ? 40 : 0, seed);
    service_limits limits{.running = 1 + static_cast<int>(random() % 6), .queue = static_cast<int>(random() % 4) + 2};
    if (random() % 4 == 0) limits.time_limit = std::chrono::milliseconds(1 + random() % 20);
    generation_service service(engine, limits);
    for (int i = 0; i < histories; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        request_history(service, known, requests.bad(), seed + static_cast<unsigned>(i), met).run();
        CHECK(model.idle());
        CHECK(model.cache().used_bytes() == 0);
    }
    figures.add(service.figures().engine);
    CHECK(service.drain(std::chrono::seconds(10)));
}

}  // namespace

TEST_CASE("Random histories of requests: every text is the one that the request gets alone, and no block is lost") {
    outcomes_met met;
    engine_figures figures;
    const int histories = histories_to_run(200);
    std::optional<random_requests> requests;
    for (int done = 0; done < histories; done += histories_of_server) {
        const auto seed = static_cast<unsigned>(first_history() + done);
        if (done % 500 == 0) requests.emplace(seed);
        serve(seed, std::min(histories_of_server, histories - done), *requests, met, figures);
    }
    CHECK(met.wrong == 0);
    if (histories < 200) return;
    for (const auto* const count : {&met.complete, &met.left, &met.bad}) CHECK(*count > 0);
    for (const auto* const count : {&met.disconnected, &met.late, &met.failed, &met.full})
        CHECK((*count > 0 || histories < 1000));  // a matter of time
    CHECK(figures.preemptions > 0);
    CHECK(figures.cached > 0);
    CHECK(figures.host > 0);
    CHECK(figures.drafted > figures.accepted);
    CHECK(figures.accepted > 0);
}
