// bench --prefix-cache: how much sooner the first token comes when the prefix cache has the prompt. The KV cache has
// room for about one prompt, so that a second one sends the first to the levels below.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "engine/cli/commands.hpp"
#include "engine/serving/text_engine.hpp"

namespace imbrex::engine {

namespace {

using prompt = std::vector<int>;

class prefix_cache_bench {
  public:
    prefix_cache_bench(text_engine& model, std::ostream& out) : model_(model), out_(out) {
        ttft(random_prompt(std::min(64, model.max_sequence_length() - 8)));  // warm-up
    }

    // Two prompts in turn: each sends the other to the levels below.
    void measure_return(int tokens) {
        const prompt a = random_prompt(tokens), b = random_prompt(tokens);
        std::vector<double> recomputed, while_saving, returned;
        recomputed.push_back(ttft(a));
        model_.save_cache();
        recomputed.push_back(ttft(b));
        model_.save_cache();
        while_saving.push_back(ttft(a));
        while_saving.push_back(ttft(b));
        const statistics_summary before = model_.summary();
        for (int round = 0; round < 3; ++round) {
            returned.push_back(ttft(a));
            returned.push_back(ttft(b));
        }
        const double in_kv_cache = ttft(b);
        const statistics_summary after = model_.summary();
        print("\nreturn of a prompt of " + std::to_string(tokens) + " tokens   first token, ms   faster\n");
        line("computed", median(recomputed), median(recomputed));
        line("first return", median(while_saving), median(recomputed));
        line("later returns", median(returned), median(recomputed));
        line("from the KV cache", in_kv_cache, median(recomputed));
        found("host memory", before.host_cache, after.host_cache, before.initial_tokens, after.initial_tokens);
        found("disk", before.disk_cache, after.disk_cache, before.initial_tokens, after.initial_tokens);
    }

    // Conversations that begin with the same tokens, one after another.
    void measure_shared_prompt(int shared, int own, int conversations) {
        std::vector<double> alone, together;
        for (int i = 0; i < std::min(conversations, 10); ++i) alone.push_back(ttft(random_prompt(shared + own)));
        const prompt beginning = random_prompt(shared);
        const statistics_summary before = model_.summary();
        for (int i = 0; i < conversations; ++i) {
            prompt all = beginning;
            const prompt rest = random_prompt(own);
            all.insert(all.end(), rest.begin(), rest.end());
            together.push_back(ttft(all));
        }
        const statistics_summary after = model_.summary();
        print("\n" + std::to_string(conversations) + " conversations share " + std::to_string(shared) +
              " tokens and add " + std::to_string(own) + "   first token, ms   faster\n");
        line("nothing shared", median(alone), median(alone));
        line("the first", together.front(), median(alone));
        line("mean of all", mean(together), median(alone));
        line("median", median(together), median(alone));
        char text[100];
        std::snprintf(text, sizeof text, "found in the cache     %.1f %% of all prompt tokens\n",
                      100.0 * static_cast<double>(after.cached_tokens - before.cached_tokens) /
                          static_cast<double>(after.initial_tokens - before.initial_tokens));
        print(text);
    }

  private:
    prompt random_prompt(int tokens) {
        std::uniform_int_distribution<int> any_token(0, model_.config().vocab_size - 1);
        prompt made(static_cast<std::size_t>(tokens));
        for (int& id : made) id = any_token(chance_);
        return made;
    }

    double ttft(const prompt& tokens) {
        const double began = statistics::steady_seconds();
        model_.submit(tokens, {.max_tokens = 1, .sampling = {.temperature = 0, .bias = {}, .stop = {}}, .ends = false});
        while (!model_.idle()) model_.step();
        return statistics::steady_seconds() - began;
    }

    static double mean(const std::vector<double>& values) {
        double sum = 0;
        for (const double each : values) sum += each;
        return sum / static_cast<double>(values.size());
    }
    static double median(std::vector<double> values) {
        std::ranges::sort(values);
        return values[values.size() / 2];
    }

    void print(const std::string& text) { out_ << text << std::flush; }
    void line(const char* name, double seconds, double computed) {
        char text[100];
        std::snprintf(text, sizeof text, "%-20s %10.2f %7.1fx\n", name, seconds * 1e3, computed / seconds);
        print(text);
    }
    void found(const char* name, const cache_level_summary& before, const cache_level_summary& after,
               std::int64_t all_before, std::int64_t all_after) {
        if (!after.exists) return;
        char text[100];
        std::snprintf(
            text, sizeof text, "later returns: %.1f %% of tokens from %s\n",
            100.0 * static_cast<double>(after.tokens - before.tokens) / static_cast<double>(all_after - all_before),
            name);
        print(text);
    }

    text_engine& model_;
    std::ostream& out_;
    std::mt19937 chance_{1};
};

}  // namespace

void measure_prefix_cache(text_engine& model, const bench_command& command, std::ostream& out) {
    prefix_cache_bench bench(model, out);
    bench.measure_return(command.input);
    const int own = std::min(command.output, std::max(model.max_sequence_length() - command.shared - 1, 1));
    bench.measure_shared_prompt(command.shared, own, command.requests.front());
}

}  // namespace imbrex::engine
