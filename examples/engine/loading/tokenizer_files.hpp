// Readers of tokenizer files. Each checks its file (ids unique and in range, both halves of each merge in the
// vocabulary, known patterns) and throws with the name of the file otherwise.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/loading/gguf.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

// Hugging Face's tokenizer.json: byte-level BPE, BPE over code points with byte fallback (Llama 1 and 2, Gemma), unigram.
tokenizer read_tokenizer_json(std::span<const std::byte> bytes, const std::string& name);

// GPT-2's two files, encoder.json (or vocab.json) and vocab.bpe (or merges.txt).
tokenizer read_gpt2_files(std::span<const std::byte> encoder, std::span<const std::byte> merges,
                          const std::string& name);

// A tiktoken file: a base64 token and its rank per line. Its pattern (a regular expression) and its special tokens are not
// in the file.
tokenizer read_tiktoken(std::span<const std::byte> bytes, const std::string& name, std::string_view pattern,
                        const std::map<std::string, int>& special);

// SentencePiece's tokenizer.model: BPE with scores, or unigram. tokenizer_config.json, which may be empty, says which special
// tokens are put around a text and which tokens were added.
tokenizer read_sentencepiece(std::span<const std::byte> bytes, std::span<const std::byte> config,
                             const std::string& name);

// The vocabulary in a GGUF file: model "gpt2" with merges, model "llama" with scores, model "t5" (unigram).
tokenizer gguf_tokenizer(const gguf_metadata& metadata);

// A llama2.c tokenizer file. It does not store the number of tokens: the model's vocabulary size applies.
tokenizer read_llama2c_tokenizer(std::span<const std::byte> bytes, int vocabulary_size, const std::string& name);

// Shared by the readers.
namespace vocabulary_files {

std::string from_base64(std::string_view text, const std::string& where);

// The token of a SentencePiece piece: its type (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte) as GGUF and
// SentencePiece number it.
token sentencepiece_token(std::string_view text, std::int64_t type, float score, const std::string& where);

// Byte-level vocabularies map each byte to a printable character: printable bytes to themselves, others to U+0100 and
// up. Returns nothing if the text has another character.
std::optional<std::string> bytes_of_byte_level(std::string_view text);

// The byte of a token such as "<0x0A>".
std::optional<char> byte_token(std::string_view text);

// Adds merges to a vocabulary that has its tokens. It looks tokens up by their names in the file, which must outlive
// the builder.
class merge_builder {
  public:
    explicit merge_builder(vocabulary& words) : words_(words) {}
    void name_token(std::string_view text, int id) { by_text_.try_emplace(text, id); }
    void add(std::string_view left, std::string_view right);
    void add_line(std::string_view pair);  // "left right"

  private:
    int id_of(std::string_view text, std::string_view left, std::string_view right) const;
    vocabulary& words_;
    std::unordered_map<std::string_view, int> by_text_;
    int rank_ = 0;
};

}  // namespace vocabulary_files

}  // namespace imbrex::engine
