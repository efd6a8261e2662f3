// perplexity: how well a model predicts a text, to compare formats of weights.
#include <cstdio>
#include <imbrex/core/error.hpp>
#include <istream>
#include <iterator>
#include <ostream>

#include "engine/cli/command_model.hpp"
#include "engine/cli/interrupt_guard.hpp"
#include "engine/cli/progress_bar.hpp"
#include "engine/model/kv_cache_layout.hpp"
#include "engine/model/weight_mixture.hpp"
#include "engine/serving/perplexity.hpp"

namespace imbrex::engine {

int run_perplexity(const perplexity_command& command, const command_streams& streams) {
    model_files files = open_model(command.model.path);
    const engine_options choice = options_of(command.model);
    std::string text;
    if (command.file.empty())
        text.assign(std::istreambuf_iterator<char>(streams.in), {});
    else
        text = read_text_file(command.file, "--file");
    require(command.window <= files.config.context, "--window: ", command.window, "; the model was made for ",
            files.config.context, " tokens at most");
    perplexity_options options{.window = command.window, .prefix = files.tokens.prefix_ids()};
    options.max_batched_tokens = choice.max_num_batched_tokens;
    runner_options made{.where = choice.where,
                        .weights = choice.weights,
                        .bits_per_weight = choice.bits_per_weight,
                        .kv_cache = choice.kv_cache,
                        .block_size = options.block_size,
                        .num_kv_blocks = command.window / options.block_size + 1,
                        .max_num_batched_tokens = options.max_batched_tokens,
                        .max_num_seqs = options.max_scored,
                        .context = command.window};
    mix_weights(files, made);
    options.cache_groups = static_cast<int>(kv_cache_groups(files.config, made).size());
    const std::unique_ptr<runner> model = make_runner(files, made);
    const interrupt_guard stop;
    progress_bar bar(streams.err, is_terminal(streams.err), "scored", "tokens");
    const perplexity_result result =
        perplexity_of(*model, files.tokens.encode(text, {.add_special_tokens = false}), files.config.vocab_size,
                      options, [&](std::int64_t done, std::int64_t all) {
                          bar.update(done, all);
                          return !stop.wanted();
                      });
    bar.clear();
    char line[160];
    std::snprintf(line, sizeof line, "perplexity %.4f, standard error %.4f, %lld tokens scored\n", result.perplexity(),
                  result.standard_error(), static_cast<long long>(result.tokens));
    streams.out << line << std::flush;
    check_written(streams.out, "the output");
    return stop.wanted() ? exit_interrupted : exit_success;
}

}  // namespace imbrex::engine
