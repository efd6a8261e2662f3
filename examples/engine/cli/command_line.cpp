// The command line: which options there are, and the help that explains them. What they do is in the commands.
#include <CLI/CLI.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <new>

#include "engine/cli/commands.hpp"

namespace imbrex::engine {

namespace {

constexpr const char* program_help =
    R"(Examples:
  imbrex generate examples/tales/model "It was the first day of spring."
  imbrex chat ~/models/Qwen2.5-0.5B-Instruct --weights int8
  imbrex batch model.gguf --input requests.jsonl --output results.jsonl
  imbrex bench --random qwen2.5-0.5b --weights int8 --requests 1,8
  imbrex info model.gguf

A model is a folder of Hugging Face's (config.json, *.safetensors, tokenizer.json), a .gguf file (f32, f16, bf16, q8_0, q4_0), or
a .bin file of llama2.c beside its tokenizer. Llama 1 to 3, Qwen2, Qwen2.5 and Qwen3 are known.
"imbrex <command> --help" explains a command. Exit codes: 0 done, 1 refused, 2 wrong usage, 130 stopped by Ctrl-C.)";

constexpr const char* chat_help =
    R"(Examples:
  imbrex chat model.gguf
  imbrex chat ~/models/Llama-3.1-8B-Instruct --system "Answer in rhymes." --temperature 0.6

The conversation is kept until /reset; /help lists what else can be typed. Ctrl-C stops an answer, Ctrl-D ends the program.
Without a template (--template none, or a model that has none) the model continues what is typed; the next line goes on from there.)";

constexpr const char* generate_help =
    R"(Examples:
  imbrex generate model.gguf "Once upon a time" --max-tokens 100
  imbrex generate model.gguf --file prompt.txt --temperature 0 --stop "\n\n"
  echo "The capital of France is" | imbrex generate model.gguf --logprobs 3

Without a prompt and a file the prompt is read from the input. An empty prompt ("") lets the model begin by itself. In --stop,
\n, \t and \\ stand for a line break, a tab and a backslash. A prompt that begins with a dash comes after "--".)";

constexpr const char* batch_help =
    R"(Examples:
  imbrex batch model.gguf --input requests.jsonl --output results.jsonl
  echo '{"prompt": "Once", "id": "a", "max_tokens": 20}' | imbrex batch model.gguf

Each line of the input is an object with "prompt", or with "messages" ([{"role": "user", "content": "..."}, ...]), and if
wanted "id", "max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
"frequency_penalty", "logit_bias" ({"<token>": number}), "seed", "stop", "logprobs", "priority". Options given here hold for lines
that say nothing else; a line without a seed gets --seed plus its place in the file.
Each line of the output has "id", "text", "finish" (end, stop or length), "prompt_tokens" and "tokens", in the order of the input. A
line that cannot be served gets "error", a sentence, and does not stop the others; the exit code is then 1.)";

constexpr const char* bench_help =
    R"(Examples:
  imbrex bench --random qwen2.5-0.5b --weights int8
  imbrex bench --random tiny --requests 1,4,16 --input 64 --output 64
  imbrex bench model.gguf --requests 32 --batch-tokens 1024 --stats

Random weights need no download: llama-3.1-8b (16 GB), qwen2.5-0.5b (1 GB), qwen3-0.6b (1.2 GB), tiny. Each number of --requests makes a
row. Prompt tok/s counts all tokens computed in steps that work on prompts, decode tok/s the tokens of steps that only
decode, all tok/s the generated tokens over the time of the row.)";

constexpr const char* info_help =
    R"(Examples:
  imbrex info model.gguf
  imbrex info ~/models/Qwen3-0.6B --tensors)";

// "\n" as people can type it.
std::string unescaped(const std::string& text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
        const bool is_escape = next == 'n' || next == 't' || next == '\\';
        result += !is_escape ? text[i] : next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
        if (is_escape) ++i;
    }
    return result;
}

// A range that the help does not repeat: the error tells it.
CLI::Validator between(int least, int most) {
    return CLI::Range(least, most).description("");
}

CLI::Option* add_path(CLI::App& app, std::string& path) {
    return app.add_option("model", path, "folder, .gguf file or .bin file")->type_name("MODEL");
}

void add_model_options(CLI::App& app, model_args& model) {
    constexpr const char* group = "The model";
    app.add_option("--device", model.device, "where it runs; auto: on a GPU if there is one")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
        ->capture_default_str()
        ->group(group);
    app.add_option("--weights", model.weights, "what matrices are converted to when they are loaded")
        ->check(CLI::IsMember({"file", "f32", "bf16", "e4m3", "int8", "int4"}))
        ->capture_default_str()
        ->group(group);
    app.add_option("--threads", model.threads, "cores of the CPU to use (all)")->check(between(1, 4096))->group(group);
    app.add_option("--memory", model.memory, "the most that the cache takes: 500M, 2G")
        ->transform(CLI::AsSizeValue(false).description(""))
        ->type_name("SIZE")
        ->group(group);
    app.add_option("--context", model.context,
                   "the most tokens of a text with its prompt (what the model was made for)")
        ->check(between(2, 1 << 26))
        ->group(group);
    app.add_option("--batch-tokens", model.max_num_batched_tokens, "the most tokens computed in a step")
        ->check(between(1, 1 << 20))
        ->capture_default_str()
        ->group(group);
    app.add_flag("--invariant", model.batch_invariant,
                 "on a GPU, texts do not depend on what else is served; slower with many (a CPU's never do)")
        ->group(group);
    app.add_flag("--stats", model.shows_statistics, "figures at the end, on the error stream")->group(group);
}

void add_text_options(CLI::App& app, generation_args& text) {
    constexpr const char* group = "The text";
    sampling_params& sampling = text.sampling;
    const auto add = [&](const char* name, auto& value, const char* meaning) {
        return app.add_option(name, value, meaning)->group(group);
    };
    add("-n,--max-tokens", text.max_tokens, "the most new tokens")->check(between(1, 1 << 26));
    add("-t,--temperature", sampling.temperature, "0: always the likeliest token")->capture_default_str();
    add("--top-k", sampling.top_k, "only the k likeliest tokens; 0: all")->capture_default_str();
    add("--top-p", sampling.top_p, "only the likeliest tokens with this probability together")->capture_default_str();
    add("--min-p", sampling.min_p, "only tokens with this part of the likeliest one's probability")
        ->capture_default_str();
    add("--repetition-penalty", sampling.repetition_penalty, "of tokens that are there; 1: none")
        ->capture_default_str();
    add("--presence-penalty", sampling.presence_penalty, "of tokens generated before")->capture_default_str();
    add("--frequency-penalty", sampling.frequency_penalty, "the same, times how often")->capture_default_str();
    add("--seed", text.seed, "the same seed gives the same text");
    app.add_option_function<std::vector<std::string>>(
           "--stop",
           [&sampling](const std::vector<std::string>& all) {
               for (const std::string& each : all) sampling.stop.push_back(unescaped(each));
           },
           "the text ends before this string; may be given more than once")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->type_name("TEXT")
        ->group(group);
    add("--logprobs", sampling.logprobs, "log-probabilities of each token and of so many of the likeliest")
        ->check(between(0, max_logprobs));
}

// All commands, and which of them was named.
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
        add_bench();
        add_info();
    }

    int run(int argc, const char* const* argv, const command_streams& streams) {
        try {
            app_.parse(argc, argv);
        } catch (const CLI::ParseError& failure) {
            return answer(failure, streams);
        }
        if (app_.got_subcommand(chat_app_)) return run_chat(chat_, streams);
        if (app_.got_subcommand(generate_app_)) return run_generate(generate_, streams);
        if (app_.got_subcommand(batch_app_)) return run_batch(batch_, streams);
        if (app_.got_subcommand(bench_app_)) return run_bench(bench_, streams);
        if (app_.got_subcommand(info_app_)) return run_info(info_, streams);
        streams.err << app_.help();
        return exit_usage;
    }

  private:
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
        chat_app_->add_option("--system", chat_.system, "what the model is told before the conversation");
        chat_app_
            ->add_option("--template", chat_.style, "how turns are marked; auto: as the vocabulary tells, none: not")
            ->check(CLI::IsMember({"auto", "none", "llama2", "llama3", "chatml"}))
            ->capture_default_str();
        add_model_options(*chat_app_, chat_.model);
        add_text_options(*chat_app_, chat_.text);
    }
    void add_generate() {
        generate_app_ = app_.add_subcommand("generate", "Continue a prompt")->footer(generate_help);
        add_path(*generate_app_, generate_.model.path)->required();
        const auto prompt = generate_app_->add_option("prompt", generate_.prompt, "the text to continue");
        generate_app_->add_option("--file", generate_.file, "a file with the prompt")->excludes(prompt);
        generate_app_->add_flag("--echo", generate_.repeats_prompt, "prints the prompt before the text");
        add_model_options(*generate_app_, generate_.model);
        add_text_options(*generate_app_, generate_.text);
    }
    void add_batch() {
        batch_app_ = app_.add_subcommand("batch", "Serve requests from a file")->footer(batch_help);
        batch_.model.sequences = 64;
        add_path(*batch_app_, batch_.model.path)->required();
        batch_app_->add_option("-i,--input", batch_.input, "a file of requests, one to a line (the standard input)");
        batch_app_->add_option("-o,--output", batch_.output, "a file for the results (the standard output)");
        add_sequences(*batch_app_, batch_.model, "the most requests that run at a time (64)");
        add_model_options(*batch_app_, batch_.model);
        add_text_options(*batch_app_, batch_.text);
    }
    void add_bench() {
        bench_app_ = app_.add_subcommand("bench", "Measure a model's speed")->footer(bench_help);
        bench_.model.memory = 0;  // what the requests need
        bench_.model.sequences = 0;
        const auto path = add_path(*bench_app_, bench_.model.path);
        bench_app_->add_option("--random", bench_.random, "random weights of this architecture")->excludes(path);
        bench_app_->add_option("--requests", bench_.requests, "how many at once; a row for each number")
            ->delimiter(',')
            ->capture_default_str();
        bench_app_->add_option("--input", bench_.input, "tokens of a prompt")->capture_default_str();
        bench_app_->add_option("--output", bench_.output, "tokens generated for each")->capture_default_str();
        add_sequences(*bench_app_, bench_.model, "the most requests that run at a time (all)");
        add_model_options(*bench_app_, bench_.model);
    }
    void add_info() {
        info_app_ = app_.add_subcommand("info", "Tell what a model file holds")->footer(info_help);
        add_path(*info_app_, info_.path)->required();
        info_app_->add_flag("--tensors", info_.lists_tensors, "lists all tensors");
    }
    static void add_sequences(CLI::App& app, model_args& model, const char* meaning) {
        app.add_option("--sequences", model.sequences, meaning)->check(between(1, 1 << 16));
    }

    CLI::App app_;
    CLI::App *chat_app_ = nullptr, *generate_app_ = nullptr, *batch_app_ = nullptr, *bench_app_ = nullptr,
             *info_app_ = nullptr;
    chat_command chat_;
    generate_command generate_;
    batch_command batch_;
    bench_command bench_;
    info_command info_;
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
