#include "engine/loading/tokenizer_files.hpp"

#include <nlohmann/json.hpp>

#include "engine/loading/gguf_builder.hpp"
#include "engine/loading/mapped_file.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

tokenizer read_json(const std::string& text) {
    return read_tokenizer_json(bytes(text), "tokenizer.json");
}

constexpr const char* byte_level = R"({"type":"ByteLevel","add_prefix_space":false})";

// A byte-level file with these members of "model" and of the root.
std::string json_file(const std::string& model, const std::string& rest = "") {
    return R"({"pre_tokenizer":)" + std::string(byte_level) + R"(,"model":{)" + model + "}" +
           (rest.empty() ? "" : ",") + rest + "}";
}

constexpr const char* small_model = R"("type":"BPE","vocab":{"a":0,"b":1,"\u0120":2,"ab":3,"\u0120ab":4},
    "merges":["a b",["\u0120","ab"]])";

}  // namespace

TEST_CASE("Reads a byte-level tokenizer.json") {
    const tokenizer tokens = read_json(json_file(small_model, R"("added_tokens":[
        {"id":5,"content":"<|end|>","special":true},{"id":6,"content":"<think>","special":false}],
        "post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
            "single":[{"SpecialToken":{"id":"<|end|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}]}]})"));
    CHECK(tokens.size() == 7);
    CHECK(tokens.encode("ab ab") == std::vector<int>{5, 3, 4});  // both notations of a merge
    CHECK(tokens.encode("ab<think>", {.add_special_tokens = false}) == std::vector<int>{3, 6});
    CHECK(tokens.encode("<|end|>", {.add_special_tokens = false, .parse_special = true}) == std::vector<int>{5});
    CHECK(tokens.at(4).bytes == " ab");
    check_error_message("has no token for", [&] { tokens.encode("<|end|>"); });
    const tokenizer whole = read_json(json_file(R"("vocab":{"a":0,"b":1,"ab":2},"merges":[],"ignore_merges":true)"));
    CHECK(whole.encode("ab") == std::vector<int>{2});
    CHECK(read_json(json_file(R"("vocab":{"a":0,"b":1,"ab":2},"merges":[])")).encode("ab") == std::vector<int>{0, 1});
}

TEST_CASE("Reads tokenizer.json with the patterns of Llama 3 and Qwen 2") {
    const auto with_expression = [](const std::string& expression, const std::string& behavior) {
        return R"({"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split",
            "pattern":{"Regex":")" +
               expression + R"("},"behavior":")" + behavior + R"(","invert":false},
            {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},
            "model":{"vocab":{"1":0,"11":1,"\u00c3":2,"\u00a4":3,"\u00c3\u00a4":4},"merges":["1 1","\u00c3 \u00a4"]}})";
    };
    const std::string qwen =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
    const std::string llama =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";
    CHECK(read_json(with_expression(qwen, "Isolated")).encode("11") == std::vector<int>{0, 0});
    CHECK(read_json(with_expression(llama, "Isolated")).encode("11") == std::vector<int>{1});
    check_error_message("pre_tokenizer Split: regular expression \".+?\", at byte 2",
                        [&] { read_json(with_expression(".+?", "Isolated")); });
    check_error_message("pre_tokenizer Split must keep the matches",
                        [&] { read_json(with_expression(qwen, "Removed")); });
}

TEST_CASE("GPT-OSS: tokenizer.json and GGUF give the same ids") {
    // Merges within words of o200k, and across them: between cases, and after three digits.
    const std::vector<std::string> words{"a", "B", "'", "s", "1", "<", "|", "a'", "aB", "11", "a's", "111", "1111"},
        merges{"a '", "a' s", "a B", "1 1", "11 1", "111 1"}, special{"<|start|>", "<|message|>"};
    nlohmann::json vocabulary, added = nlohmann::json::array();
    gguf_builder builder;
    std::vector<std::string> all = words;
    for (std::size_t id = 0; id < words.size(); ++id) vocabulary[words[id]] = id;
    for (const std::string& name : special) {
        added.push_back({{"id", all.size()}, {"content", name}, {"special", true}});
        all.push_back(name);
    }
    std::vector<std::int32_t> kinds(words.size(), 1);
    kinds.resize(all.size(), 3);
    const nlohmann::json split{{"type", "Split"},
                               {"pattern", {{"Regex", std::string(split_expressions::o200k)}}},
                               {"behavior", "Isolated"},
                               {"invert", false}};
    const nlohmann::json bytes_alone{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const tokenizer of_json =
        read_json(nlohmann::json{{"added_tokens", added},
                                 {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes_alone}}}},
                                 {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}}
                      .dump());
    builder.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "gpt-4o");
    builder.strings("tokenizer.ggml.tokens", all).strings("tokenizer.ggml.merges", merges);
    const std::string file = builder.numbers("tokenizer.ggml.token_type", 5, kinds).build();
    const tokenizer of_gguf = gguf_tokenizer(read_gguf(bytes(file), "model.gguf").metadata);
    for (const tokenizer* tokens : {&of_json, &of_gguf}) {
        CHECK(tokens->encode("a's") == std::vector<int>{10});
        CHECK(tokens->encode("aBa's") == std::vector<int>{0, 1, 10});
        CHECK(tokens->encode("11111") == std::vector<int>{11, 9});
        CHECK(tokens->encode("<|start|>a<|message|>", {.parse_special = true}) == std::vector<int>{13, 0, 14});
        CHECK_FALSE(tokens->special("a's"));
    }
}

TEST_CASE("Reads a tokenizer.json like that of Llama 2") {
    const std::string text =
        R"({"added_tokens":[{"id":0,"content":"<unk>","special":true},{"id":1,"content":"<s>","special":true}],
        "normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},
            {"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]},"pre_tokenizer":null,
        "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}]},
        "model":{"type":"BPE","unk_token":"<unk>","byte_fallback":true,"fuse_unk":true,
            "vocab":{"<unk>":0,"<s>":1,"<0xC3>":2,"<0xA4>":3,"\u2581":4,"a":5,"b":6,"ab":7,"\u2581ab":8},
            "merges":["a b","\u2581 ab"]}})";
    const tokenizer tokens = read_json(text);
    CHECK(tokens.encode("ab ab") == std::vector<int>{1, 8, 8});
    CHECK(tokens.encode("a\u00e4") == std::vector<int>{1, 4, 5, 2, 3});
    CHECK(tokens.encode("\u00f6") == std::vector<int>{1, 4, 0});  // one of its bytes has no token
    CHECK(tokens.decode(tokens.encode("ab a\u00e4b")) == "ab a\u00e4b");
    CHECK(tokens.encode("<s>", {.add_special_tokens = false, .parse_special = true}) == std::vector<int>{1});
    CHECK(tokens.encode("<s>", {.add_special_tokens = false}) == std::vector<int>{4, 0, 0, 0});
}

TEST_CASE("Rejects invalid tokenizer.json") {
    check_error_message("tokenizer.json: is not JSON", [&] { read_json("nothing"); });
    check_error_message("\"model\" is missing", [&] { read_json("{}"); });
    check_error_message("is an array; it must be an object", [&] { read_json("[]"); });
    check_error_message("model.type is \"WordPiece\"; BPE and Unigram can be read",
                        [&] { read_json(json_file(R"("type":"WordPiece")")); });
    check_error_message("\"vocab\" is missing", [&] { read_json(json_file(R"("merges":[])")); });
    check_error_message("\"merges\" is missing", [&] { read_json(json_file(R"("vocab":{"a":0})")); });
    check_error_message("model.vocab is an array", [&] { read_json(json_file(R"("vocab":[],"merges":[])")); });
    check_error_message("key \"a\" is there twice",
                        [&] { read_json(json_file(R"("vocab":{"a":0,"a":1},"merges":[])")); });
    check_error_message("tokens \"a\" and \"b\" have the same id 0",
                        [&] { read_json(json_file(R"("vocab":{"a":0,"b":0},"merges":[])")); });
    check_error_message("token \"a\" has the id -1", [&] { read_json(json_file(R"("vocab":{"a":-1},"merges":[])")); });
    check_error_message("token \"a\" has the id 4000000000",
                        [&] { read_json(json_file(R"("vocab":{"a":4000000000},"merges":[])")); });
    check_error_message("token \"a\" has the id \"0\"",
                        [&] { read_json(json_file(R"("vocab":{"a":"0"},"merges":[])")); });
    check_error_message("has no tokens", [&] { read_json(json_file(R"("vocab":{},"merges":[])")); });
    const auto with_merge = [](const char* merge) {
        return read_json(json_file(R"("vocab":{"a":0,"b":1,"ab":2},"merges":[)" + std::string(merge) + "]"));
    };
    with_merge(R"("a b")");
    check_error_message("merge 0 (\"a\", \"c\") needs \"c\", which is not in the vocabulary",
                        [&] { with_merge(R"("a c")"); });
    check_error_message("merge 0 (\"c\", \"b\") needs \"c\"", [&] { with_merge(R"(["c","b"])"); });
    check_error_message("merge 1 (\"b\", \"a\") needs \"ba\"", [&] { with_merge(R"("a b","b a")"); });
    check_error_message("it must be two tokens with a space between", [&] { with_merge(R"("ab")"); });
    check_error_message("it must be two tokens with a space between", [&] { with_merge(R"("a b a")"); });
    check_error_message("a merge is an array", [&] { with_merge(R"(["a"])"); });
    check_error_message("a merge is 3", [&] { with_merge("3"); });
    const auto with_pipeline = [](const std::string& member) {
        return read_json("{" + member + R"(,"model":{"vocab":{"a":0},"merges":[]}})");
    };
    check_error_message("normalizer \"Lowercase\" is not known",
                        [&] { with_pipeline(R"("normalizer":{"type":"Lowercase"})"); });
    check_error_message("normalizer Prepend puts something other",
                        [&] { with_pipeline(R"("normalizer":{"type":"Prepend","prepend":"x"})"); });
    check_error_message("normalizer Replace must put", [&] {
        with_pipeline(R"("normalizer":{"type":"Replace","pattern":{"String":"x"},"content":"y"})");
    });
    check_error_message("normalizer: \"type\" is missing", [&] { with_pipeline(R"("normalizer":{})"); });
    check_error_message("pre_tokenizer \"Whitespace\" is not known",
                        [&] { with_pipeline(R"("pre_tokenizer":{"type":"Whitespace"})"); });
    check_error_message("ByteLevel with \"add_prefix_space\"",
                        [&] { with_pipeline(R"("pre_tokenizer":{"type":"ByteLevel"})"); });
    check_error_message("must have a pattern of the kind Regex",
                        [&] { with_pipeline(R"("pre_tokenizer":{"type":"Split","pattern":{"String":" "}})"); });
    check_error_message("Punctuation has the behavior \"Removed\"",
                        [&] { with_pipeline(R"("pre_tokenizer":{"type":"Punctuation","behavior":"Removed"})"); });
    check_error_message("Metaspace has the prepend_scheme \"last\"",
                        [&] { with_pipeline(R"("pre_tokenizer":{"type":"Metaspace","prepend_scheme":"last"})"); });
    check_error_message("a Sequence in a Sequence", [&] {
        with_pipeline(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Sequence","normalizers":[]}]})");
    });
    check_error_message("post_processor \"BertProcessing\" is not known",
                        [&] { with_pipeline(R"("post_processor":{"type":"BertProcessing"})"); });
    check_error_message("a special token of post_processor is \"<s>\", which is not in the vocabulary", [&] {
        with_pipeline(R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}]})");
    });
    check_error_message("model.dropout must be 0",
                        [&] { read_json(json_file(R"("dropout":0.1,"vocab":{"a":0},"merges":[])")); });
    check_error_message("model.end_of_word_suffix must be empty",
                        [&] { read_json(json_file(R"("end_of_word_suffix":"</w>","vocab":{"a":0},"merges":[])")); });
    check_error_message("model.unk_token is \"?\", which is not in the vocabulary",
                        [&] { read_json(json_file(R"("unk_token":"?","vocab":{"a":0},"merges":[])")); });
    const auto with_added = [](const std::string& added) {
        return read_json(json_file(R"("vocab":{"a":0},"merges":[])", "\"added_tokens\":" + added));
    };
    check_error_message("added_tokens must be an array", [&] { with_added("{}"); });
    check_error_message("\"content\" is missing or empty", [&] { with_added(R"([{"id":1}])"); });
    check_error_message("added token \"x\": \"id\" is missing", [&] { with_added(R"([{"content":"x"}])"); });
    check_error_message("have the same id 0", [&] { with_added(R"([{"id":0,"content":"x"}])"); });
    check_error_message("added token \"a\" has the id 1, but 0 in model.vocab",
                        [&] { with_added(R"([{"id":1,"content":"a"}])"); });
    check_error_message("added token \"x\" is there twice",
                        [&] { with_added(R"([{"id":1,"content":"x"},{"id":2,"content":"x"}])"); });
    check_error_message("added token \"x\" has \"single_word\"",
                        [&] { with_added(R"([{"id":1,"content":"x","single_word":true}])"); });
}

TEST_CASE("Reads GPT-2's files") {
    const auto read = [](std::string_view encoder, std::string_view merges) {
        return read_gpt2_files(bytes(encoder), bytes(merges), "encoder.json");
    };
    const tokenizer tokens = read(R"({"a":0,"b":1,"ab":2,"<|endoftext|>":3})", "#version: 0.2\r\na b\r\n");
    CHECK(tokens.encode("ab") == std::vector<int>{2});
    CHECK(tokens.special("<|endoftext|>") == 3);
    check_error_message("token \"a\" has the id 1; there are 1 tokens", [&] { read(R"({"a":1})", ""); });
    check_error_message("two tokens have the id 0", [&] { read(R"({"a":0,"b":0})", ""); });
    check_error_message("needs \"c\", which is not in the vocabulary", [&] { read(R"({"a":0,"b":1})", "a c\n"); });
    check_error_message("two tokens with a space between", [&] { read(R"({"a":0})", "a\n"); });
    check_error_message("is an array; it must be an object", [&] { read("[]", ""); });
}

TEST_CASE("Reads tiktoken's files") {
    const auto read = [](std::string_view text, const std::map<std::string, int>& special = {}) {
        return read_tiktoken(bytes(text), "file", split_expressions::o200k, special);
    };
    const tokenizer tokens = read("YQ== 0\nYg== 1\nYWI= 2\n", {{"<|x|>", 5}});
    CHECK(tokens.encode("abb") == std::vector<int>{2, 1});
    CHECK(tokens.encode("<|x|>", {.parse_special = true}) == std::vector<int>{5});
    CHECK(tokens.size() == 6);
    check_error_message("file: line 1: \"YQ\" must be a token and its rank", [&] { read("YQ\n"); });
    check_error_message("file: line 2: the rank is \"2\"; ranks must follow one another from 0",
                        [&] { read("YQ== 0\nYg== 2\n"); });
    check_error_message("is not base 64", [&] { read("Y*== 0\n"); });
    check_error_message("special token \"<|x|>\" has the id 0", [&] { read("YQ== 0\n", {{"<|x|>", 0}}); });
    check_error_message("special token \"y\" has the id 1", [&] { read("YQ== 0\n", {{"x", 1}, {"y", 1}}); });
    check_error_message("has no tokens", [&] { read(""); });
}

TEST_CASE("Reads vocabularies of GGUF files") {
    const auto read = [](const gguf_builder& builder) {
        const std::string text = builder.build();
        return gguf_tokenizer(read_gguf(bytes(text), "file").metadata);
    };
    const auto scored = [] {
        gguf_builder builder;
        builder.string("tokenizer.ggml.model", "llama");
        builder.strings("tokenizer.ggml.tokens",
                        {"<unk>", "<s>", "</s>", "<0x41>", "\u2581", "a", "\u2581a", "<added>"});
        builder.numbers<float>("tokenizer.ggml.scores", 6, {0, 0, 0, 0, -3, -2, -1, 0});
        return builder.numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {2, 3, 3, 6, 1, 1, 1, 4});
    };
    const tokenizer tokens = read(scored()
                                      .whole("tokenizer.ggml.bos_token_id", 1)
                                      .whole("tokenizer.ggml.unknown_token_id", 0)
                                      .whole("tokenizer.ggml.padding_token_id", 0xffffffffu));
    CHECK(tokens.encode("a aA?") == std::vector<int>{1, 6, 6, 3, 0});
    CHECK(tokens.encode("<s><added>", {.add_special_tokens = false, .parse_special = true}) == std::vector<int>{1, 7});
    CHECK(read(scored().truth("tokenizer.ggml.add_space_prefix", false)).encode("a") == std::vector<int>{5});
    CHECK(read(scored().whole("tokenizer.ggml.eos_token_id", 2).truth("tokenizer.ggml.add_eos_token", true))
              .encode("a") == std::vector<int>{6, 2});

    const auto paired = [](const char* pattern) {
        gguf_builder builder;
        builder.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", pattern);
        builder.strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|x|>"});
        builder.numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 3});
        return builder.whole("tokenizer.ggml.bos_token_id", 3);
    };
    const auto with_merge = [&](const char* merge) {
        return paired("gpt-2").strings("tokenizer.ggml.merges", {merge});
    };
    CHECK(read(with_merge("a b")).encode("abb") == std::vector<int>{2, 1});
    CHECK(read(paired("llama-bpe").strings("tokenizer.ggml.merges", {})).encode("ab") == std::vector<int>{3, 2});

    check_error_message("tokenizer.ggml.model is missing", [&] { read(gguf_builder{}); });
    check_error_message("tokenizer.ggml.model is \"bert\"",
                        [&] { read(gguf_builder{}.string("tokenizer.ggml.model", "bert")); });
    check_error_message("tokenizer.ggml.tokens is missing",
                        [&] { read(gguf_builder{}.string("tokenizer.ggml.model", "llama")); });
    check_error_message("tokenizer.ggml.tokens must be an array of strings", [&] {
        read(gguf_builder{}.string("tokenizer.ggml.model", "llama").whole("tokenizer.ggml.tokens", 3));
    });
    check_error_message("tokenizer.ggml.scores is missing", [&] {
        read(gguf_builder{}.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", {"a"}));
    });
    check_error_message("tokenizer.ggml.scores has 2 elements; there are 1 tokens", [&] {
        read(gguf_builder{}
                 .string("tokenizer.ggml.model", "llama")
                 .strings("tokenizer.ggml.tokens", {"a"})
                 .numbers<float>("tokenizer.ggml.scores", 6, {0, 0}));
    });
    check_error_message("tokenizer.ggml.bos_token_id is 8; there are 8 tokens",
                        [&] { read(scored().whole("tokenizer.ggml.bos_token_id", 8)); });
    check_error_message("tokenizer.ggml.eos_token_id is 4294967294",
                        [&] { read(scored().whole("tokenizer.ggml.eos_token_id", ~1u)); });
    check_error_message("tokenizer.ggml.padding_token_id is 9",
                        [&] { read(scored().whole("tokenizer.ggml.padding_token_id", 9)); });
    check_error_message("tokenizer.ggml.pre is \"kimi-k2\"; these are known: gpt-2, ",
                        [&] { read(paired("kimi-k2").strings("tokenizer.ggml.merges", {})); });
    check_error_message("tokenizer.ggml.merges is missing", [&] { read(paired("gpt-2")); });
    check_error_message("needs \"c\", which is not in the vocabulary", [&] { read(with_merge("a c")); });
    check_error_message("token 0 has the type 9", [&] {
        read(gguf_builder{}
                 .string("tokenizer.ggml.model", "gpt2")
                 .strings("tokenizer.ggml.tokens", {"a"})
                 .numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {9}));
    });
    check_error_message("token 0 is \"a\"; a byte's token is written <0x0A>", [&] {
        read(gguf_builder{}
                 .string("tokenizer.ggml.model", "gpt2")
                 .strings("tokenizer.ggml.tokens", {"a"})
                 .numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {6}));
    });
}

TEST_CASE("Reads llama2.c's tokenizer file") {
    const auto entry = [](float score, const std::string& text) {
        return raw(score) + raw(static_cast<std::uint32_t>(text.size())) + text;
    };
    const std::string text = raw(6u) + entry(0, "<unk>") + entry(0, "\n<s>\n") + entry(0, "\n</s>\n") +
                             entry(0, "<0x41>") + entry(-2, " ") + entry(-3, "a") + entry(-1, " a");
    const auto read = [](const std::string& all, int count) {
        return read_llama2c_tokenizer(bytes(all), count, "file");
    };
    const tokenizer tokens = read(text, 7);
    CHECK(tokens.encode("aA a") == std::vector<int>{1, 6, 3, 6});
    CHECK(tokens.special("<s>") == 1);
    CHECK(tokens.decode(std::vector{1, 6, 6}) == "a a");
    check_error_message("within token descriptions; the model has 8 tokens", [&] { read(text, 8); });
    check_error_message("bytes after the model's 6 tokens", [&] { read(text, 6); });
    check_error_message("token 0 has 9 bytes; only 5 follow",
                        [&] { read(raw(6u) + raw(0.0f) + raw(9u) + "<unk>", 7); });
    check_error_message("it must have at least 3", [&] { read(raw(6u) + entry(0, "x"), 1); });
}

TEST_CASE("Gives the known ids of other tokenizers") {
    if (const auto path = shared_file("tokenizers/neox/20B_tokenizer.json")) {
        const mapped_file file(*path);
        const tokenizer tokens = read_tokenizer_json(file.bytes(), file.name());
        CHECK(tokens.encode("Hello, world!") == std::vector<int>{12092, 13, 1533, 2});
        CHECK(tokens.encode("\tx        y") ==
              std::vector<int>{186, 89, 50270, 90});  // consecutive spaces are one token
        CHECK(tokens.encode("e\u0301") == tokens.encode("\u00e9"));
        CHECK(tokens.encode("<|endoftext|>", {.parse_special = true}) == std::vector<int>{0});
        CHECK(tokens.encode("<|endoftext|>").size() > 1);
    }
    const auto encoder = shared_file("tokenizers/gpt2/encoder.json"), merges = shared_file("tokenizers/gpt2/vocab.bpe");
    if (encoder && merges) {
        const mapped_file first(*encoder), second(*merges);
        const tokenizer tokens = read_gpt2_files(first.bytes(), second.bytes(), first.name());
        CHECK(tokens.encode("Hello, world!") == std::vector<int>{15496, 11, 995, 0});
        CHECK(tokens.encode("<|endoftext|>", {.parse_special = true}) == std::vector<int>{50256});
    }
    if (const auto path = shared_file("tokenizers/o200k/o200k_base.tiktoken")) {
        const mapped_file file(*path);
        const tokenizer tokens =
            read_tiktoken(file.bytes(), file.name(), split_expressions::o200k, {{"<|endoftext|>", 199999}});
        CHECK(tokens.encode("Hello, world!") == std::vector<int>{13225, 11, 2375, 0});
        CHECK(tokens.size() == 200000);
        CHECK(tokens.encode("<|endoftext|>", {.parse_special = true}) == std::vector<int>{199999});
    }
}

}  // namespace imbrex::engine::test
