// Models of SentencePiece against the ids that SentencePiece and Hugging Face's tokenizers give
// (sentencepiece_models.py).
#include <map>
#include <nlohmann/json.hpp>

#include "engine/loading/gguf.hpp"
#include "engine/loading/gguf_builder.hpp"
#include "engine/loading/tokenizer_files.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

const std::string folder = "tests/engine/data/sentencepiece/";

struct golden_ids {
    std::vector<std::string> texts;
    std::map<std::string, std::vector<std::vector<int>>> ids;
};

golden_ids read_golden() {
    const auto data = nlohmann::json::parse(content(folder + "ids.json"));
    return {data["texts"], data["ids"]};
}

tokenizer read_model(const std::string& name, const std::string& config = {}) {
    return read_sentencepiece(bytes(content(folder + name)), bytes(config), name);
}

std::string field(int number, const std::string& text) {
    return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(text.size()) + text;
}

}  // namespace

TEST_CASE("Encodes as SentencePiece does: unigram and BPE, with and without byte fallback") {
    const golden_ids golden = read_golden();
    for (const std::string name : {"unigram", "unigram_bytes", "bpe"}) {
        const tokenizer tokens = read_model(name + ".model");
        for (std::size_t i = 0; i < golden.texts.size(); ++i) {
            CAPTURE(name);
            CAPTURE(golden.texts[i]);
            CHECK(tokens.encode(golden.texts[i], {.add_special_tokens = false}) == golden.ids.at(name)[i]);
        }
    }
    const tokenizer bpe = read_model("bpe.model");
    for (const std::string text : {"The dog.", "caf\u00e9 \u4e2d", "x"}) CHECK(bpe.decode(bpe.encode(text)) == text);
}

TEST_CASE("Reads a Unigram model in tokenizer.json") {
    const golden_ids golden = read_golden();
    const tokenizer tokens = read_tokenizer_json(bytes(content(folder + "unigram.json")), "unigram.json");
    for (std::size_t i = 0; i < golden.texts.size(); ++i) {
        CAPTURE(golden.texts[i]);
        CHECK(tokens.encode(golden.texts[i]) == golden.ids.at("unigram.json")[i]);
    }
}

TEST_CASE("Reads the same unigram vocabulary in a GGUF file") {
    const golden_ids golden = read_golden();
    const auto from = nlohmann::json::parse(content(folder + "unigram.json"));
    std::vector<std::string> pieces;
    std::vector<float> scores;
    for (const auto& piece : from["model"]["vocab"]) {
        pieces.push_back(piece[0]);
        scores.push_back(piece[1]);
    }
    std::vector<std::int32_t> kinds(pieces.size(), 1);
    kinds[0] = 2;
    kinds[1] = kinds[2] = 3;
    const std::string map = vocabulary_files::from_base64(
        from["normalizer"]["normalizers"][0]["precompiled_charsmap"].get<std::string>(), "");
    const std::string file =
        gguf_builder()
            .string("tokenizer.ggml.model", "t5")
            .strings("tokenizer.ggml.tokens", pieces)
            .numbers("tokenizer.ggml.scores", 6, scores)
            .numbers("tokenizer.ggml.token_type", 5, kinds)
            .numbers("tokenizer.ggml.precompiled_charsmap", 0, std::vector<std::uint8_t>(map.begin(), map.end()))
            .truth("tokenizer.ggml.remove_extra_whitespaces", true)
            .whole("tokenizer.ggml.unknown_token_id", 0)
            .whole("tokenizer.ggml.eos_token_id", 2)
            .build();
    const tokenizer tokens = gguf_tokenizer(read_gguf(bytes(file), "file").metadata);
    for (std::size_t i = 0; i < golden.texts.size(); ++i) {
        CAPTURE(golden.texts[i]);
        CHECK(tokens.encode(golden.texts[i], {.add_special_tokens = false}) == golden.ids.at("unigram")[i]);
    }
    CHECK(tokens.encode("x").back() == 2);
}

TEST_CASE("tokenizer_config.json adds tokens and says what is put around a text") {
    CHECK(read_model("bpe.model").encode("x").front() == 1);
    CHECK(read_model("bpe.model", R"({"add_bos_token":false})").encode("x").front() != 1);
    CHECK(read_model("bpe.model", R"({"add_eos_token":true})").encode("x").back() == 2);
    const tokenizer more = read_model(
        "bpe.model",
        R"({"added_tokens_decoder":{"600":{"content":"<|x|>","special":true,"rstrip":true}},"legacy":false})");
    CHECK(more.size() == 601);
    CHECK(more.special("<|x|>") == 600);
    const auto ids = more.encode("<|x|>  the", {.add_special_tokens = false, .parse_special = true});
    CHECK(ids[0] == 600);
    CHECK(more.decode(std::span(ids).subspan(1)) == "the");
    check_error_message("added_tokens_decoder has \"x\"",
                        [] { read_model("bpe.model", R"({"added_tokens_decoder":{"x":{"content":"y"}}})"); });
}

TEST_CASE("Rejects invalid models of SentencePiece") {
    const auto read = [](const std::string& text) { read_sentencepiece(bytes(text), {}, "file"); };
    const std::string piece = field(1, field(1, "a") + "\x15" + raw(0.5f));
    check_error_message("file: has no pieces", [&] { read(""); });
    check_error_message("field 1 must be a message", [&] { read("\x08\x01"); });
    check_error_message("a field has 5 bytes; only 1 follow", [&] { read("\x0a\x05x"); });
    check_error_message("wire type 3", [&] { read("\x0b"); });
    check_error_message("field number 0", [&] { read(std::string(1, '\x02')); });
    check_error_message("more than 10 bytes", [&] { read(std::string(11, '\xff')); });
    check_error_message("the model type is 3", [&] { read(piece + field(2, "\x18\x03")); });
    check_error_message("treat_whitespace_as_suffix", [&] { read(piece + field(2, "\xc0\x01\x01")); });
    check_error_message("token 0 has the type 9", [&] { read(field(1, field(1, "a") + "\x18\x09")); });
    check_error_message("a byte's token is written", [&] { read(field(1, field(1, "a") + "\x18\x06")); });
    check_error_message("token id 1; there are 1 tokens", [&] { read(piece + field(2, "\x18\x02")); });
    check_error_message("the map of characters has a trie of 8 bytes",
                        [&] { read(piece + field(3, field(2, std::string("\x08\0\0\0", 4)))); });
}

}  // namespace imbrex::engine::test
