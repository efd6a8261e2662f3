// The command line: its options. command_help.hpp has the texts of --help; commands.hpp declares the commands.
#include <CLI/CLI.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <new>

#include "engine/cli/command_help.hpp"
#include "engine/cli/command_model.hpp"
#include "engine/cli/command_options.hpp"

namespace imbrex::engine {

namespace {

// All commands, and the one that was given.
class command_line {
  public:
    command_line() : app_("Imbrex: a small engine for language models, on a CPU or a GPU.", "imbrex") {
        app_.footer(program_help);
        app_.set_version_flag("--version", str_cat("imbrex ", IMBREX_VERSION_MAJOR, ".", IMBREX_VERSION_MINOR, ".",
                                                   IMBREX_VERSION_PATCH));
        app_.require_subcommand(0, 1);
        app_.get_formatter()->column_width(36);
        add_chat();
        add_generate();
        add_batch();
        add_serve();
        add_bench();
        add_info();
        add_quantize();
        add_tokenize();
        add_perplexity();
    }

    int run(int argc, const char* const* argv, const command_streams& streams) {
        try {
            app_.parse(argc, argv);
        } catch (const CLI::ParseError& failure) {
            return answer(failure, streams);
        }
        if (app_.get_subcommands().empty()) {
            streams.err << app_.help();
            return exit_usage;
        }
        const int code = run_subcommand(streams);
        check_written(streams.out, "the output");
        return code;
    }

  private:
    int run_subcommand(const command_streams& streams) {
        if (app_.got_subcommand(chat_app_)) return run_chat(chat_, streams);
        if (app_.got_subcommand(generate_app_)) return run_generate(generate_, streams);
        if (app_.got_subcommand(batch_app_)) return run_batch(batch_, streams);
        if (app_.got_subcommand(serve_app_)) return run_serve(serve_, streams);
        if (app_.got_subcommand(bench_app_)) {
            if (!bench_.traces.empty() && bench_app_->count("--requests") == 0) bench_.requests.clear();
            return run_bench(bench_, streams);
        }
        if (app_.got_subcommand(tokenize_app_)) return run_tokenize(tokenize_, streams);
        if (app_.got_subcommand(perplexity_app_)) return run_perplexity(perplexity_, streams);
        if (app_.got_subcommand(quantize_app_)) return run_quantize(quantize_, streams);
        return run_info(info_, streams);
    }

    int answer(const CLI::ParseError& failure, const command_streams& streams) {
        if (failure.get_exit_code() == 0) {  // --help, --version
            app_.exit(failure, streams.out, streams.err);
            return exit_success;
        }
        const auto named = app_.get_subcommands();
        streams.err << "imbrex: " << failure.what() << "\nimbrex " << (named.empty() ? "" : named[0]->get_name() + " ")
                    << "--help explains what can be given.\n";
        return exit_usage;
    }

    void add_chat() {
        chat_app_ = app_.add_subcommand("chat", "Talk with a model")->footer(chat_help);
        add_path(*chat_app_, chat_.model.path)->required();
        chat_app_->add_option("--system", chat_.system, "system message");
        chat_app_
            ->add_option("--reasoning", chat_.reasoning,
                         "reasoning of the model before its answer: show it, dimmed, on standard error, or hide it")
            ->check(CLI::IsMember({"show", "hide"}))
            ->capture_default_str();
        add_template_options(*chat_app_, chat_.format);
        add_model_options(*chat_app_, chat_.model);
        add_text_options(*chat_app_, chat_.text);
    }
    void add_generate() {
        generate_app_ = app_.add_subcommand("generate", "Continue a prompt")->footer(generate_help);
        add_path(*generate_app_, generate_.model.path)->required();
        const auto prompt = generate_app_->add_option("prompt", generate_.prompt, "the text to continue");
        generate_app_->add_option("--file", generate_.file, "read the prompt from this file")->excludes(prompt);
        generate_app_->add_flag("--special", generate_.parses_special,
                                "names of special tokens in the prompt become those tokens");
        generate_app_->add_flag("--echo", generate_.repeats_prompt, "print the prompt before the text");
        add_model_options(*generate_app_, generate_.model);
        add_text_options(*generate_app_, generate_.text);
    }
    void add_batch() {
        batch_app_ = app_.add_subcommand("batch", "Serve requests from a file")->footer(batch_help);
        batch_.model.sequences = 64;
        add_random_options(*batch_app_, batch_.model, add_path(*batch_app_, batch_.model.path));
        batch_app_->add_option("-i,--input", batch_.input, "file of requests, one per line (standard input)");
        batch_app_->add_option("-o,--output", batch_.output, "file for the results (standard output)");
        add_template_options(*batch_app_, batch_.format);
        add_sequences(*batch_app_, batch_.model, "maximum running requests (64)");
        add_model_options(*batch_app_, batch_.model);
        add_text_options(*batch_app_, batch_.text);
    }
    void add_serve() {
        serve_app_ = app_.add_subcommand("serve", "Serve a model over HTTP, with OpenAI's API")->footer(serve_help);
        serve_.model.sequences = 64;
        serve_.text.sampling.temperature = 1;  // as in OpenAI's API
        add_random_options(*serve_app_, serve_.model, add_path(*serve_app_, serve_.model.path));
        add_address();
        add_limits();
        add_template_options(*serve_app_, serve_.format);
        add_model_options(*serve_app_, serve_.model);
        add_text_options(*serve_app_, serve_.text);
    }
    void add_address() {
        constexpr const char* group = "The server";
        CLI::App& app = *serve_app_;
        app.add_option("--host", serve_.host, "address to listen at; 0.0.0.0: all")
            ->capture_default_str()
            ->group(group);
        app.add_option("--port", serve_.port, "port to listen at; 0: any free one")
            ->check(between(0, 65535))
            ->capture_default_str()
            ->group(group);
        app.add_option("--name", serve_.name, "the model's name in the API (its file's)")->group(group);
        app.add_option("--pooling", serve_.pooling, "embeddings: the mean of all tokens, or the last token")
            ->check(CLI::IsMember({"mean", "last"}))
            ->capture_default_str()
            ->group(group);
        app.add_option("--api-key", serve_.api_keys, "a key that clients must send; repeatable")
            ->expected(1)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
            ->group(group);
        app.add_option("--cors", serve_.cors_origin, "origin of web pages that may use the API; *: all")->group(group);
    }
    void add_limits() {
        constexpr const char* group = "Limits";
        CLI::App& app = *serve_app_;
        app.add_option("--sequences", serve_.model.sequences, "maximum running sequences (64)")
            ->check(between(1, 1 << 16))
            ->group(group);
        app.add_option("--queue", serve_.queue, "maximum waiting sequences; more requests get status 429")
            ->check(between(0, 1 << 20))
            ->capture_default_str()
            ->group(group);
        app.add_option("--max-body", serve_.max_body, "maximum size of a request, such as 1M (8M)")
            ->transform(CLI::AsSizeValue(false).description(""))
            ->type_name("SIZE")
            ->group(group);
        app.add_option("--max-prompt", serve_.max_prompt, "maximum tokens of a prompt (as many as fit)")
            ->check(between(1, 1 << 26))
            ->group(group);
        const auto seconds = CLI::Range(0.0, 1e6).description("");
        app.add_option("--time-limit", serve_.time_limit, "maximum seconds of a request (none)")
            ->check(seconds)
            ->type_name("SECONDS")
            ->group(group);
        app.add_option("--drain-time", serve_.drain_time, "maximum seconds to finish requests at the end")
            ->check(seconds)
            ->type_name("SECONDS")
            ->capture_default_str()
            ->group(group);
    }
    void add_bench() {
        bench_app_ = app_.add_subcommand("bench", "Measure a model's speed")->footer(bench_help);
        bench_.model.memory = 0;  // as much as the requests need
        bench_.model.sequences = 0;
        add_random_options(*bench_app_, bench_.model, add_path(*bench_app_, bench_.model.path));
        bench_app_->add_option("--requests", bench_.requests, "number of concurrent requests; one row per number")
            ->delimiter(',')
            ->capture_default_str();
        bench_app_->add_option("--input", bench_.input, "prompt tokens per request")->capture_default_str();
        bench_app_->add_option("--output", bench_.output, "generated tokens per request")->capture_default_str();
        bench_app_
            ->add_option("--draft-acceptance", bench_.draft_acceptance,
                         "with --speculate: accept each draft token with this probability, whatever the model samples")
            ->check(CLI::Range(0.0, 1.0).description(""))
            ->type_name("RATE");
        bench_app_->add_option("--random-draft", bench_.random_draft,
                               "a draft model with random weights of this architecture");
        bench_app_->add_flag("--prefix-cache", bench_.measures_prefix_cache,
                             "instead: the time to the first token when the prompt is in the cache, by level");
        bench_app_->add_option("--shared", bench_.shared, "with it: tokens of the prompt that conversations share")
            ->check(between(1, 1 << 24))
            ->capture_default_str();
        add_trace_options(*bench_app_);
        add_sequences(*bench_app_, bench_.model, "maximum running requests (all)");
        add_model_options(*bench_app_, bench_.model);
    }
    void add_trace_options(CLI::App& app) {
        constexpr const char* group = "A trace";
        app.add_option("--trace", bench_.traces,
                       "files of conversations, which arrive by the wall clock; without --requests there are no rows")
            ->delimiter(',')
            ->group(group);
        app.add_option("--ttft-limit", bench_.limits.ttft, "goodput: time to first token, in seconds")
            ->capture_default_str()
            ->group(group);
        app.add_option("--itl-limit", bench_.limits.itl, "goodput: mean inter-token latency of a request, in seconds")
            ->capture_default_str()
            ->group(group);
        app.add_option("--latencies", bench_.latencies, "output file: a line of JSON per trace")
            ->type_name("FILE")
            ->group(group);
        app.add_option("--step-costs", bench_.step_costs,
                       "output file: a line of JSON per step, its tokens and seconds (docs/results/fleet.md)")
            ->type_name("FILE");
    }
    void add_info() {
        info_app_ = app_.add_subcommand("info", "Describe a model file")->footer(info_help);
        add_path(*info_app_, info_.path)->required();
        info_app_->add_flag("--tensors", info_.lists_tensors, "list all tensors");
    }
    void add_quantize() {
        quantize_app_ = app_.add_subcommand("quantize", "Write a model with converted weights")->footer(quantize_help);
        add_path(*quantize_app_, quantize_.from)->required();
        quantize_app_->add_option("output", quantize_.to, "new .gguf file or folder")->required();
        quantize_app_->add_option("--weights", quantize_.weights, "format of the matrices")
            ->check(CLI::IsMember({"f32", "f16", "bf16", "int8", "int4", "mixed"}))
            ->capture_default_str();
        add_budget(*quantize_app_, quantize_.weights_budget);
    }
    void add_tokenize() {
        tokenize_app_ = app_.add_subcommand("tokenize", "Show the tokens of a text")->footer(tokenize_help);
        add_path(*tokenize_app_, tokenize_.path)->required();
        const auto text = tokenize_app_->add_option("text", tokenize_.text, "the text (standard input)");
        const auto file =
            tokenize_app_->add_option("--file", tokenize_.file, "read the text from this file")->excludes(text);
        tokenize_app_->add_option("--messages", tokenize_.messages, "file with a conversation, instead of a text")
            ->excludes(text)
            ->excludes(file);
        tokenize_app_->add_flag("--special", tokenize_.parses_special,
                                "names of special tokens in the text become those tokens");
        tokenize_app_->add_flag("!--plain", tokenize_.adds_special,
                                "without the special tokens that the vocabulary puts around a text");
        tokenize_app_->add_flag("--ids", tokenize_.prints_ids, "print the ids alone, on one line");
        add_template_options(*tokenize_app_, tokenize_.format);
    }
    void add_perplexity() {
        perplexity_app_ =
            app_.add_subcommand("perplexity", "Measure how well a model predicts a text")->footer(perplexity_help);
        add_path(*perplexity_app_, perplexity_.model.path)->required();
        perplexity_app_->add_option("--file", perplexity_.file, "the text (standard input)");
        perplexity_app_->add_option("--window", perplexity_.window, "tokens of a window; the second half is scored")
            ->check(between(4, 1 << 20))
            ->capture_default_str();
        add_device_options(*perplexity_app_, perplexity_.model);
    }
    static void add_sequences(CLI::App& app, model_args& model, const char* meaning) {
        app.add_option("--sequences", model.sequences, meaning)->check(between(1, 1 << 16));
    }

    CLI::App app_;
    CLI::App *chat_app_ = nullptr, *generate_app_ = nullptr, *batch_app_ = nullptr, *serve_app_ = nullptr,
             *bench_app_ = nullptr, *info_app_ = nullptr, *quantize_app_ = nullptr, *tokenize_app_ = nullptr,
             *perplexity_app_ = nullptr;
    chat_command chat_;
    generate_command generate_;
    batch_command batch_;
    serve_command serve_;
    bench_command bench_;
    info_command info_;
    quantize_command quantize_;
    tokenize_command tokenize_;
    perplexity_command perplexity_;
};

}  // namespace

int run_command(int argc, const char* const* argv, std::istream& in, std::ostream& out, std::ostream& err) {
    try {
        return command_line().run(argc, argv, {in, out, err});
    } catch (const std::bad_alloc&) {
        err << "imbrex: there is not enough memory; --context, --memory and --weights make a model smaller\n";
    } catch (const std::exception& failure) {
        err << "imbrex: " << failure.what() << "\n";
    }
    return exit_error;
}

}  // namespace imbrex::engine
