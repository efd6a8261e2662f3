// The files that vocabularies come in. Each reader checks what the file says (ids unique and in range, both halves of each
// merge in the vocabulary, patterns that are known) and refuses the rest with a sentence that names the file.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/loading/gguf.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

// Hugging Face's tokenizer.json: byte-level BPE, and BPE over code points with bytes to fall back on (Llama 1 and 2).
tokenizer read_tokenizer_json(std::span<const std::byte> bytes, const std::string& name);

// GPT-2's two files, encoder.json (or vocab.json) and vocab.bpe (or merges.txt).
tokenizer read_gpt2_files(std::span<const std::byte> encoder, std::span<const std::byte> merges,
                          const std::string& name);

// tiktoken's file: a token in base 64 and its rank in each line. It has neither the pattern nor the special tokens.
tokenizer read_tiktoken(std::span<const std::byte> bytes, const std::string& name, split_pattern pattern,
                        const std::map<std::string, int>& special);

// The vocabulary in a GGUF file: model "gpt2" with merges, model "llama" with scores.
tokenizer gguf_tokenizer(const gguf_metadata& metadata);

// llama2.c's tokenizer file, which does not say how many tokens it has: as many as the model.
tokenizer read_llama2c_tokenizer(std::span<const std::byte> bytes, int vocabulary_size, const std::string& name);

// What the readers share.
namespace vocabulary_files {

// Byte-level vocabularies write each byte as a visible character: those that are one stand for themselves, the others are
// U+0100 and on. Nothing where the text has another character.
std::optional<std::string> bytes_of_byte_level(std::string_view text);

// The byte that a token "<0x0A>" stands for.
std::optional<char> byte_token(std::string_view text);

// Fills in the merges of a vocabulary whose tokens are there. It finds a token by what the file calls it: those names must
// live as long as the builder.
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
