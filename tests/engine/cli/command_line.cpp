// The program from command line to output, run in this process with string streams.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine/cli/commands.hpp"
#include "engine/loading/model_folder.hpp"
#include "engine/model/cuda_runner.hpp"

namespace imbrex::engine::test {

namespace {

struct outcome {
    int code = 0;
    std::string out, err;
};

outcome run(std::vector<std::string> arguments, const std::string& input = {}) {
    std::vector<const char*> pointers{"imbrex"};
    for (const std::string& each : arguments) pointers.push_back(each.c_str());
    std::istringstream in(input);
    std::ostringstream out, err;
    outcome result;
    result.code = run_command(static_cast<int>(pointers.size()), pointers.data(), in, out, err);
    result.out = out.str();
    result.err = err.str();
    return result;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// Checks that the command line fails with this exit code and a message that contains this text.
void check_refusal(int code, const std::string& part, const std::vector<std::string>& arguments,
                   const std::string& input = {}) {
    const outcome result = run(arguments, input);
    INFO(result.err);
    CHECK(result.code == code);
    CHECK(has(result.err, part));
    CHECK(result.err.starts_with("imbrex: "));
    CHECK(result.out.empty());
}

std::vector<nlohmann::json> lines_of(const std::string& text) {
    std::vector<nlohmann::json> lines;
    std::istringstream all(text);
    for (std::string line; std::getline(all, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
}

// A stream that raises SIGINT when the first text is written.
class impatient_buffer : public std::stringbuf {
  protected:
    int sync() override {
        if (!std::exchange(has_pressed_, true)) std::raise(SIGINT);
        return std::stringbuf::sync();
    }

  private:
    bool has_pressed_ = false;
};

}  // namespace

TEST_CASE("Help texts of the program and of each command have examples") {
    for (const char* command : {"chat", "generate", "batch", "bench", "info", "tokenize"}) {
        const outcome help = run({command, "--help"});
        CHECK(help.code == 0);
        CHECK(has(help.out, "Examples:"));
        CHECK(has(help.out, "imbrex " + std::string(command) + " "));
        CHECK(help.err.empty());
        CHECK(has(run({"--help"}).out, command));
    }
    CHECK(has(run({"--version"}).out, "imbrex 0."));
    for (const char* command : {"chat", "generate", "batch"}) CHECK(has(run({command, "--help"}).out, "(default: 2G"));
    const outcome nothing = run({});
    CHECK(nothing.code == 2);
    CHECK(has(nothing.err, "Examples:"));
}

TEST_CASE("An invalid command line exits with code 2 and points to --help") {
    check_refusal(2, "imbrex --help explains", {"train"});
    check_refusal(2, "imbrex serve --help explains", {"serve", "x", "--port", "70000"});
    check_refusal(2, "imbrex chat --help explains", {"chat"});
    check_refusal(2, "--kv-cache: int8 not in {auto,f32,f16,bf16,e4m3}", {"generate", "x", "--kv-cache", "int8"});
    check_refusal(2, "--weights: int5 not in {file,f32,f16,bf16,e4m3,int8,int4,mixed}",
                  {"generate", "x", "--weights", "int5"});
    check_refusal(2, "--device: tpu not in {auto,cpu,cuda}", {"generate", "x", "--device", "tpu"});
    check_refusal(2, "--temperature", {"generate", "x", "y", "--temperature", "hot"});
    check_refusal(2, "--threads", {"generate", "x", "y", "--threads", "0"});
    check_refusal(2, "--memory", {"generate", "x", "y", "--memory", "2X"});
    check_refusal(2, "--file", {"generate", "x", "y", "--file", "z"});
    check_refusal(2, "--random", {"bench", "x", "--random", "tiny"});
}

TEST_CASE("An error exits with code 1 and a message") {
    const temporary_folder folder;
    write_tiny_model(folder);
    const std::string path = folder.path().string();
    check_refusal(1, "/nowhere: does not exist", {"generate", "/nowhere", "x"});
    check_refusal(1, "/nowhere: does not exist", {"info", "/nowhere"});
    check_refusal(1, "context: 5000; the model was made for 1024 tokens at most",
                  {"generate", path, "x", "--context", "5000"});
    check_refusal(1, "memory: 100 bytes; a block of 16 tokens", {"generate", path, "x", "--memory", "100"});
    check_refusal(1, "top_p: 2; it must be", {"generate", path, "x", "--top-p", "2"});
    check_refusal(1, "the context has at most 64", {"generate", path, "x", "--context", "64", "-n", "65"});
    check_refusal(1, "--file: /nowhere cannot be read", {"generate", path, "--file", "/nowhere"});
    check_refusal(1, "--input: /nowhere cannot be read", {"batch", path, "--input", "/nowhere"});
    check_refusal(1, "--input: " + path + " is a directory", {"batch", path, "--input", path});
    check_refusal(1, "--file: " + path + " is a directory", {"generate", path, "--file", path});
    check_refusal(1, "--template: \"chatlm\"; auto, none, llama2, llama3, chatml and the name of a file",
                  {"chat", path, "--template", "chatlm"});
    check_refusal(1, "more memory for it (--memory)",
                  {"generate", path, std::string(200, 'x'), "--memory", "20K", "-n", "5"});
    check_refusal(1, "--system: without a chat template", {"chat", path, "--system", "Be kind."});
    for (const char* const command : {"bench", "batch", "serve"})
        check_refusal(1, "there is neither a model nor --random", {command});
    check_refusal(1, "random model: huge; these are known: ", {"bench", "--random", "huge"});
    if (!has_cuda()) check_refusal(1, "--device: cuda", {"generate", path, "x", "--device", "cuda"});
}

TEST_CASE("info: describes a model file") {
    const temporary_folder folder;
    write_tiny_model(folder, {"<|im_start|>", "<|im_end|>"});
    const outcome info = run({"info", folder.path().string(), "--tensors"});
    INFO(info.out);
    CHECK(info.code == 0);
    for (const char* part :
         {"llama, tied embedding", "2 of head_dim 64, 1 KV heads", "1024 tokens", "258 tokens, 2 of them special",
          "ChatML", "bf16: 20 tensors", "a token, ", "\"model.layers.1.mlp.up_proj.weight\"", "[512, 128]"})
        CHECK_MESSAGE(has(info.out, part), part);
}

TEST_CASE("quantize: writes a model that opens") {
    const temporary_folder folder;
    write_tiny_model(folder);
    const std::string to = (folder.path() / "int8").string();
    const outcome written = run({"quantize", folder.path().string(), to, "--weights", "int8"});
    CHECK(written.code == 0);
    CHECK(has(written.err, "int8: "));
    CHECK(has(run({"info", to}).out, "q8_0: 15 tensors"));
    const std::vector<std::string> text{"generate", to, "a", "--max-tokens", "4", "--seed", "1"};
    CHECK(run(text).code == 0);
    const std::string mixed = (folder.path() / "mixed").string();
    CHECK(run({"quantize", folder.path().string(), mixed, "--weights", "mixed", "--weights-budget", "6"}).code == 0);
    const std::string mixture = run({"info", mixed}).out;
    INFO(mixture);
    CHECK(has(mixture, "q5_0: 11 tensors"));
    CHECK(has(mixture, "bits per weight  5."));
    check_refusal(1, "weights-budget: 2 bits per weight; the smallest types take 4.5",
                  {"quantize", folder.path().string(), to + "2", "--weights", "mixed", "--weights-budget", "2"});
    check_refusal(1, "--weights-budget: 6 bits per weight; it is the size of --weights mixed, and --weights is int8",
                  {"quantize", folder.path().string(), to + "2", "--weights-budget", "6"});
    CHECK(run({"generate", folder.path().string(), "a", "-n", "3", "--weights", "mixed"}).code == 0);
    check_refusal(1, "int8: exists; the output is a new file or folder", {"quantize", folder.path().string(), to});
    check_refusal(2, "--weights", {"quantize", folder.path().string(), to, "--weights", "e4m3"});
}

TEST_CASE("generate: reads the prompt from argument, file or input; equal seeds give equal texts") {
    const temporary_folder folder;
    write_tiny_model(folder);
    folder.write("prompt.txt", "Once upon\n");
    const std::string path = folder.path().string();
    const std::vector<std::string> options{"--seed", "7", "-n", "12"};
    const auto with = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), options.begin(), options.end());
        return arguments;
    };
    const outcome first = run(with({"generate", path, "Once upon"}));
    CHECK(first.code == 0);
    CHECK(first.out.size() > 1);
    CHECK(first.out.ends_with('\n'));
    CHECK(first.err.empty());
    CHECK(run(with({"generate", path}), "Once upon").out == first.out);
    CHECK(run(with({"generate", path, "--file", (folder.path() / "prompt.txt").string()})).out == first.out);
    CHECK(run(with({"generate", path, "Once upon", "--echo"})).out == "Once upon" + first.out);
    CHECK(run({"generate", path, "Once upon", "--seed", "8", "-n", "12"}).out != first.out);

    const outcome statistics = run(with({"generate", path, "Once upon", "--stats"}));
    CHECK(statistics.out == first.out);
    CHECK(has(statistics.err, "12 tokens"));
    CHECK(has(statistics.err, "seed 7; finish: length"));
    const outcome chances = run(with({"generate", path, "Once upon", "--logprobs", "2"}));
    CHECK(chances.out.starts_with(first.out));
    const std::string table = chances.out.substr(first.out.size());
    CHECK(std::ranges::count(table, '\n') == 12);
}

TEST_CASE("generate: a stop string ends the text before it") {
    const temporary_folder folder;
    write_tiny_model(folder);
    const std::vector<std::string> arguments{"generate", folder.path().string(), "abc", "--seed", "1", "-n", "60"};
    const std::string whole = run(arguments).out;
    const auto letter = std::ranges::find_if(whole, [](char each) { return each > 32 && each < 127 && each != '\\'; });
    REQUIRE(letter != whole.end());
    std::vector<std::string> stopped = arguments;
    stopped.insert(stopped.end(), {"--stop", std::string(1, *letter), "--stop", "never\\n"});
    CHECK(run(stopped).out == std::string(whole.begin(), letter) + "\n");
}

TEST_CASE("chat: with and without a template, and its commands") {
    const temporary_folder folder;
    write_tiny_model(folder, {"<|im_start|>", "<|im_end|>"});
    const std::vector<std::string> arguments{"chat", folder.path().string(), "--seed", "1", "-n", "6", "--stats"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), arguments.begin(), arguments.end());
        return more;
    };
    const outcome twice = run(arguments, "Hello.\n\n/help\nAnd \\\nthen?\n/quit\nnot read\n");
    CHECK(twice.code == 0);
    CHECK(has(twice.err, "/reset"));
    CHECK(has(twice.err, "sequences       2 arrived"));
    const outcome once = run(arguments, "Hello.\n");
    CHECK(twice.out.starts_with(once.out));
    CHECK(run(with({"--template", "none"}), "Hello.\n").out != once.out);
    CHECK(run(with({"--system", "Be brief."}), "Hello.\n").out != once.out);

    // After /reset the first question gets the same answer: greedy sampling does not use the seed.
    const outcome reset = run(with({"--temperature", "0"}), "Hello.\n/reset\nHello.\n");
    const std::string answer = run(with({"--temperature", "0"}), "Hello.\n").out;
    CHECK(reset.out == answer + answer);
}

TEST_CASE("chat and batch: the reasoning of an answer stands apart from its content") {
    const temporary_folder folder;
    write_tiny_model(folder, {"<|start|>", "<|channel|>", "<|message|>", "<|end|>"});
    folder.write("chat_template.jinja",
                 "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
                 "<|start|>assistant<|channel|>{{ channel }}<|message|>");
    const std::string path = folder.path().string();
    const auto chat = [&](const char* channel, std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"chat", path, "--seed", "1", "-n", "6", "--set", std::string("channel=") + channel});
        return run(more, "Hi.\n");
    };
    const outcome content = chat("final"), reasoning = chat("analysis");
    CHECK(content.err.empty());
    CHECK(content.out.size() > 2);
    CHECK(reasoning.out == "\n");
    CHECK(has(reasoning.err, "(the answer ended within its reasoning, after 6 tokens; --max-tokens allows more)"));
    const outcome hidden = chat("analysis", {"--reasoning", "hide"});
    CHECK(hidden.err.starts_with("(the answer ended within"));
    CHECK(has(reasoning.err, "\n\n" + hidden.err));
    CHECK(has(chat("commentary to=functions.f").err, "(the model calls f("));
    check_refusal(2, "--reasoning: dim not in {show,hide}", {"chat", path, "--reasoning", "dim"});

    const auto batch = [&](const char* channel) {
        return lines_of(run({"batch", path, "--set", std::string("channel=") + channel, "--seed", "1"},
                            R"({"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 6})")
                            .out)
            .at(0);
    };
    CHECK(batch("final")["text"].get<std::string>() + "\n" == content.out);
    CHECK_FALSE(batch("final").contains("reasoning_content"));
    CHECK(batch("analysis")["text"] == "");
    CHECK(reasoning.err.starts_with(batch("analysis")["reasoning_content"].get<std::string>() + "\n\n"));
    CHECK(batch("commentary to=f")["tool_calls"][0]["function"]["name"] == "f");
    CHECK(batch("analysis")["tokens"] == 6);
}

TEST_CASE("chat: drops the oldest turns of a long conversation and rejects a message that cannot fit") {
    const temporary_folder folder;
    write_tiny_model(folder, {"<|im_start|>", "<|im_end|>"});
    for (const char* style : {"chatml", "none"}) {
        std::string input = std::string(300, 'x') + "\n";
        for (int i = 0; i < 6; ++i) input += "Thirty letters are in this one\n";
        const outcome result = run({"chat", folder.path().string(), "--template", style, "--context", "160", "-n", "20",
                                    "--seed", "1", "--stats"},
                                   input);
        INFO(result.err);
        CHECK(result.code == 0);
        CHECK(has(result.err, "; the context has at most 160"));
        CHECK(has(result.err, "the oldest turns are dropped"));
        CHECK(has(result.err, "sequences       6 arrived, 6 finished"));
    }
}

TEST_CASE("Ctrl-C ends a text; generate exits, chat continues") {
    const temporary_folder folder;
    write_tiny_model(folder);
    const std::string path = folder.path().string();
    for (const char* command : {"generate", "chat"}) {
        const char* arguments[] = {"imbrex", command, path.c_str(), "-n", "40", "--stats"};
        impatient_buffer buffer;
        std::ostream out(&buffer);
        std::ostringstream err;
        std::istringstream in("Hello.\nAnd?");
        const int code = run_command(6, arguments, in, out, err);
        INFO(err.str());
        CHECK(has(err.str(), "1 tokens, "));
        CHECK(has(err.str(), ", 1 cancelled"));
        CHECK(has(err.str(), "(40 tokens, ") == (std::string(command) == "chat"));
        CHECK(code == (std::string(command) == "chat" ? 0 : 130));
    }
}

TEST_CASE("Ctrl-C ends a long prompt before its end") {
    const temporary_folder folder;
    write_tiny_model(folder);
    // The signal comes as soon as the command handles it, from another thread. Otherwise it would be ignored.
    std::atomic<bool> has_ended = false;
    const auto before = std::signal(SIGINT, SIG_IGN);
    std::thread person([&] {
        struct sigaction now {};
        do {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
            sigaction(SIGINT, nullptr, &now);
        } while (now.sa_handler == SIG_IGN && !has_ended);
        std::raise(SIGINT);
    });
    const outcome result = run({"generate", folder.path().string(), std::string(1000, 'x'), "-n", "20", "--json"});
    has_ended = true;
    person.join();
    std::signal(SIGINT, before);
    CHECK(result.code == 130);
    CHECK(result.out == "\n");
    CHECK(nlohmann::json::parse(result.err)["computed_tokens"] < 1000);
}

TEST_CASE("batch: returns results and errors in the order of the input") {
    const temporary_folder folder;
    write_tiny_model(folder, {"<|im_start|>", "<|im_end|>"});
    const std::string path = folder.path().string();
    folder.write("in.jsonl", R"({"prompt": "Once", "id": "long", "max_tokens": 30, "seed": 5}
this is no JSON

{"prompt": "Once", "max_tokens": 3, "logprobs": 2, "stop": ["never", "ever"], "logit_bias": {"65": -1}}
{"prompt": "Once", "temprature": 1}
{"prompt": "Once", "id": 17, "max_tokens": 5000}
{"prompt": 5}
{"id": {}, "prompt": "Once", "temperature": -1}
{"messages": [{"role": "user", "content": "Hi!"}], "id": "chat", "max_tokens": 4, "priority": 1}
{"messages": [{"role": "user"}]}
{"messages": [], "prompt": ""}
{"prompt": "Once", "logprobs": 21}
{"prompt": "Once", "logit_bias": {"512": 1}}
["Once"]
{"prompt": [1, 512]}
{"prompt": [1, "Once"]}
{"prompt": [3, 5, 7], "max_tokens": 2, "ignore_eos": true}
{"prompt": "Once", "ignore_eos": 1})");
    const outcome result = run({"batch", path, "-i", (folder.path() / "in.jsonl").string(), "-o",
                                (folder.path() / "out.jsonl").string(), "--stats", "--device", "cpu"});
    INFO(result.err);
    CHECK(result.code == 1);
    CHECK(result.out.empty());
    CHECK(has(result.err, "13 of 17 requests failed"));
    CHECK(has(result.err, "sequences       4 arrived, 4 finished"));

    const auto lines = lines_of(content(folder.path() / "out.jsonl"));
    REQUIRE(lines.size() == 17);
    const nlohmann::json ids{"long", 2, 4, 5, 17, 7, 8, "chat", 10, 11, 12, 13, 14, 15, 16, 17, 18};
    for (std::size_t i = 0; i < lines.size(); ++i) CHECK(lines[i]["id"] == ids[i]);
    CHECK(lines[0]["finish"] == "length");
    CHECK(lines[0]["tokens"] == 30);
    CHECK(lines[0]["prompt_tokens"] == 4);
    // On a CPU the text of a request does not depend on the batch. (On a GPU only with --invariant.)
    CHECK(lines[0]["text"].get<std::string>() + "\n" ==
          run({"generate", path, "Once", "--seed", "5", "-n", "30", "--device", "cpu"}).out);
    CHECK(lines[2]["logprobs"].size() == 3);
    CHECK(lines[2]["logprobs"][0]["top_logprobs"].size() == 2);
    CHECK(lines[2]["logprobs"][0]["logprob"] <= 0);
    CHECK(lines[7]["tokens"] <= 4);
    CHECK(lines[15]["prompt_tokens"] == 3);
    CHECK(lines[15]["tokens"] == 2);
    const std::pair<std::size_t, const char*> sentences[] = {
        {1, "line 2: is not JSON"},
        {3, "\"temprature\" is not a field of a request"},
        {4, "the context has at most 1024"},
        {5, "\"prompt\" is 5; a string or an array of token ids is allowed"},
        {6, "temperature: -1"},
        {8, "must have a \"role\" and a \"content\""},
        {9, "both \"prompt\" and"},
        {10, "logprobs: 21; it must be from 0 (none) to 20"},
        {11, "bias: token 512; the model has 512"},
        {12, "a request is an object"},
        {13, "token 512; the model has 512"},
        {14, "\"prompt\" has \"Once\"; token ids"},
        {16, "\"ignore_eos\" is 1; true or false"}};
    for (const auto& each : sentences) {
        const nlohmann::json& line = lines[each.first];
        CHECK_MESSAGE(has(line["error"].get<std::string>(), each.second), line);
        CHECK_FALSE(line.contains("text"));
    }
}

TEST_CASE("batch: lines without a seed get different, reproducible seeds") {
    const temporary_folder folder;
    write_tiny_model(folder);
    const std::string line = "{\"prompt\": \"Once\", \"max_tokens\": 20}\n";
    const std::vector<std::string> arguments{"batch", folder.path().string(), "--seed", "3"};
    const outcome first = run(arguments, line + line);
    CHECK(first.code == 0);
    CHECK(run(arguments, line + line).out == first.out);
    const auto lines = lines_of(first.out);
    CHECK(lines.at(0)["text"] != lines.at(1)["text"]);
    CHECK(run(arguments, "").out.empty());
}

TEST_CASE("batch: refuses empty conversations and no tokens, and passes tools and variables to the template") {
    const temporary_folder folder;
    write_tiny_model(folder, {"<|im_start|>", "<|im_end|>"});
    folder.write(
        "tokenizer_config.json",
        R"({"chat_template":[{"name":"tools","template":"never"},{"name":"default","template":)"
        R"("{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{{ mode }}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"}]})");
    const auto tokens_of = [&](const std::string& line) {
        const outcome result =
            run({"batch", folder.path().string(), "--set", "mode=fast", "--set", "n=[1]"}, line + "\n");
        const nlohmann::json answer = lines_of(result.out).at(0);
        return answer.contains("prompt_tokens") ? answer["prompt_tokens"].dump() : answer["error"].get<std::string>();
    };
    const std::string hi = R"("messages":[{"role":"user","content":"Hi"}],"max_tokens":1)";
    CHECK(tokens_of("{" + hi + "}") == std::to_string(std::string("fastuser:Hi;").size()));
    CHECK(tokens_of("{" + hi + R"(,"chat_template_kwargs":{"mode":"x"}})") ==
          std::to_string(std::string("xuser:Hi;").size()));
    CHECK(tokens_of("{" + hi + R"(,"tools":[{"z":1,"a":2}]})") ==
          std::to_string(std::string(R"({"z": 1, "a": 2}fastuser:Hi;)").size()));
    CHECK(has(tokens_of(R"({"messages":[]})"), "must be an array with at least one message"));
    CHECK(has(tokens_of(R"({"prompt":"x","max_tokens":0})"), "\"max_tokens\" is 0; it must be at least 1"));
    CHECK(has(tokens_of(R"({"prompt":"x","tools":[]})"), "\"tools\" belongs to \"messages\""));
}

TEST_CASE("batch: random weights instead of a model") {
    const outcome result = run({"batch", "--random", "tiny", "--device", "cpu"},
                               "{\"prompt\": [1, 2, 3], \"max_tokens\": 5, \"ignore_eos\": true}\n");
    CHECK(result.code == 0);
    CHECK(lines_of(result.out).at(0)["tokens"] == 5);
    check_refusal(2, "--random", {"batch", "x", "--random", "tiny"});
    check_refusal(2, "--random", {"serve", "x", "--random", "tiny"});
}

TEST_CASE("batch: begins before its input ends") {
    const temporary_folder folder;
    write_tiny_model(folder);
    // A buffer whose second line comes only after the first result has been written.
    struct slow_buffer : std::streambuf {
        const std::ostringstream& out;
        std::string line = "{\"prompt\":\"Once\",\"max_tokens\":2}\n";
        int lines = 0;
        bool has_waited = false;
        explicit slow_buffer(const std::ostringstream& written) : out(written) {}
        int underflow() override {
            if (lines == 2) return EOF;
            for (int i = 0; lines == 1 && i < 2000 && !has_waited; ++i) {
                has_waited = done.load();
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
            ++lines;
            setg(line.data(), line.data(), line.data() + line.size());
            return line[0];
        }
        std::atomic<bool> done = false;
    };
    struct noting_buffer : std::stringbuf {
        std::atomic<bool>* done = nullptr;
        int sync() override {
            if (!str().empty()) *done = true;
            return std::stringbuf::sync();
        }
    };
    std::ostringstream unused, err;
    slow_buffer input(unused);
    noting_buffer output;
    output.done = &input.done;
    std::istream in(&input);
    std::ostream out(&output);
    const std::string path = folder.path().string();
    const char* arguments[] = {"imbrex", "batch", path.c_str()};
    CHECK(run_command(3, arguments, in, out, err) == 0);
    CHECK(input.has_waited);
    CHECK(lines_of(output.str()).size() == 2);
}

TEST_CASE("Output that cannot be written is an error") {
    const temporary_folder folder;
    write_tiny_model(folder);
    const std::string path = folder.path().string();
    for (const std::vector<std::string>& each : {std::vector<std::string>{"generate", path, "x", "-n", "3"},
                                                 {"info", path},
                                                 {"tokenize", path, "x"},
                                                 {"batch", path}}) {
        std::vector<const char*> pointers{"imbrex"};
        for (const std::string& one : each) pointers.push_back(one.c_str());
        std::istringstream in("{\"prompt\":\"x\"}\n");
        std::ofstream full("/dev/full");
        std::ostringstream err;
        CHECK(run_command(static_cast<int>(pointers.size()), pointers.data(), in, full, err) == 1);
        CHECK(has(err.str(), "cannot be written"));
    }
}

TEST_CASE("tokenize: the tokens of a text and of a conversation") {
    const temporary_folder folder;
    write_tiny_model(folder, {"<|im_start|>", "<|im_end|>"});
    const std::string path = folder.path().string();
    CHECK(run({"tokenize", path, "a\n<"}).out == "97\t\"a\"\n10\t\"\\n\"\n60\t\"<\"\n");
    CHECK(run({"tokenize", path, "--ids"}, "ab").out == "97 98\n");
    CHECK(run({"tokenize", path, "a<|im_end|>", "--special", "--ids"}).out == "97 257\n");
    CHECK(run({"tokenize", path, "", "--ids"}).out == "\n");

    folder.write("talk.json", R"([{"role":"user","content":"a<|im_end|>"}])");
    folder.write("own.jinja", "<|im_start|>{{ messages[0].content }}{{ thinks }}<|im_end|>");
    const auto of_chat = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {"tokenize", path, "--ids", "--messages", (folder.path() / "talk.json").string()});
        return run(more);
    };
    const std::string text = "97 60 124 105 109 95 101 110 100 124 62 ";
    CHECK(of_chat({"--template", (folder.path() / "own.jinja").string()}).out == "256 " + text + "257\n");
    CHECK(of_chat({"--template", (folder.path() / "own.jinja").string(), "--set", "thinks=no"}).out ==
          "256 " + text + "110 111 257\n");
    CHECK(of_chat({}).out.starts_with("256 117 115 101 114 10 " + text + "257 "));  // ChatML, by the special tokens
    check_refusal(1, "--messages: this model has no chat template",
                  {"tokenize", path, "--messages", "x", "--template", "none"});
    folder.write("chat_template.jinja", "{{ raise_exception('no chats') }}");
    CHECK(has(of_chat({}).err, "the model's chat template: line 1: no chats"));
    CHECK(has(run({"info", path}).out, "the model's own, 33 bytes"));
}

TEST_CASE("generate: --special parses special tokens in the prompt; --json prints statistics as JSON") {
    const temporary_folder folder;
    write_tiny_model(folder, {"<|im_start|>", "<|im_end|>"});
    const std::vector<std::string> arguments{"generate", folder.path().string(), "a<|im_start|>b", "-n", "2", "--json"};
    const auto figures = [&](std::vector<std::string> more) {
        more.insert(more.begin(), arguments.begin(), arguments.end());
        return nlohmann::json::parse(run(more).err);
    };
    CHECK(figures({})["computed_tokens"] == 2 + 12 + 1);
    CHECK(figures({"--special"})["computed_tokens"] == 3 + 1);
    CHECK(figures({})["generated_tokens"] == 2);
}

TEST_CASE("generate, batch and bench: speculation gives the same texts, and statistics") {
    const auto text_of = [&](std::vector<std::string> more) {
        std::vector<std::string> all{"generate",
                                     "examples/tales/model",
                                     "It was the first day of spring. ",
                                     "--seed",
                                     "3",
                                     "-n",
                                     "60",
                                     "--device",
                                     "cpu"};
        all.insert(all.end(), more.begin(), more.end());
        return run(all);
    };
    const outcome plain = text_of({}), ngram = text_of({"--speculate", "ngram", "--stats"});
    const outcome model = text_of({"--draft-model", "examples/tales/model", "--draft-tokens", "3", "--stats"});
    CHECK(ngram.out == plain.out);
    CHECK(model.out == plain.out);
    CHECK(has(model.err, "tokens a step and sequence"));
    const outcome steered = run({"bench", "--random", "tiny", "--requests", "2", "--input", "9", "--output", "40",
                                 "--speculate", "ngram", "--draft-acceptance", "0.8", "--stats", "--device", "cpu"});
    CHECK(steered.code == 0);
    CHECK(has(steered.err, "drafts  "));
    const outcome drafting = run({"bench", "--random", "tiny", "--random-draft", "tiny", "--draft-acceptance", "1",
                                  "--output", "40", "--stats", "--device", "cpu"});
    CHECK(has(drafting.err, "(100.0 %)"));

    check_refusal(1, "--speculate model: there is no --draft-model",
                  {"generate", "examples/tales/model", "a", "--speculate", "model"});
    check_refusal(1, "--speculate ngram: there is a --draft-model",
                  {"generate", "examples/tales/model", "a", "--speculate", "ngram", "--draft-model", "x"});
    check_refusal(1, "--draft-acceptance: 0.5; it steers --speculate",
                  {"bench", "--random", "tiny", "--draft-acceptance", "0.5"});
    check_refusal(1, "--random-draft: tiny; it belongs to --random",
                  {"bench", "--random", "tiny", "--random-draft", "tiny", "--draft-model", "examples/tales/model"});
    check_refusal(2, "--draft-tokens", {"generate", "examples/tales/model", "a", "--draft-tokens", "0"});
}

TEST_CASE("bench: prints one row per number of requests") {
    const outcome result = run({"bench", "--random", "tiny", "--requests", "1,3", "--input", "20", "--output", "5",
                                "--batch-tokens", "16", "--stats"});
    INFO(result.out);
    CHECK(result.code == 0);
    CHECK(has(result.out, "tiny, random weights"));
    CHECK(has(result.out, "\n       1      20       5 "));
    CHECK(has(result.out, "\n       3      20       5 "));
    CHECK(has(result.err, "sequences       5 arrived, 5 finished"));
    const temporary_folder folder;
    write_tiny_model(folder);
    CHECK(run({"bench", folder.path().string(), "--input", "4", "--output", "2"}).code == 0);
}

TEST_CASE("bench: a trace by the wall clock, its latencies, and the cost of each step") {
    const temporary_folder folder;
    folder.write("trace.jsonl", R"({"arrival":0,"turns":[{"input":20,"output":5}]})"
                                "\n"
                                R"({"arrival":0.01,"turns":[{"input":8,"output":3},{"input":4,"output":2}]})");
    const std::string trace = (folder.path() / "trace.jsonl").string();
    const std::string latencies = (folder.path() / "latencies.jsonl").string();
    const std::string steps = (folder.path() / "steps.jsonl").string();
    const outcome result = run({"bench", "--random", "tiny", "--trace", trace, "--latencies", latencies, "--step-costs",
                                steps, "--batch-tokens", "256"});
    INFO(result.out);
    CHECK(result.code == 0);
    CHECK(has(result.out, ": 3 requests, 10 tokens in "));
    CHECK_FALSE(has(result.out, "prompt tok/s"));  // no rows without --requests
    std::ifstream file(latencies);
    const auto figures = nlohmann::json::parse(file);
    CHECK(figures["finished"] == 3);
    CHECK(figures["ttft"]["p50"] > 0);

    std::ifstream lines(steps);
    std::string line;
    std::getline(lines, line);
    CHECK(nlohmann::json::parse(line)["replica"]["max_num_seqs"] == 256);
    int prompt_tokens = 0, decodes = 0;
    while (std::getline(lines, line)) {
        const auto step = nlohmann::json::parse(line);
        CHECK(step["seconds"] > 0);
        if (step["source"] != trace) continue;
        prompt_tokens += step["prompt_tokens"].get<int>();
        decodes += step["decodes"].get<int>();
    }
    CHECK(prompt_tokens == 20 + 8 + (8 + 3 + 4));  // no block is full, so the second turn finds none
    CHECK(decodes == 4 + 2 + 1);
    check_refusal(1, "--latencies: x; latencies are those of a trace",
                  {"bench", "--random", "tiny", "--latencies", "x"});
    check_refusal(1, "trace: /no/such/file cannot be read", {"bench", "--random", "tiny", "--trace", "/no/such/file"});
}

}  // namespace imbrex::engine::test
