// Text to token ids and back. There is one algorithm behind all vocabularies: text is cut into words, a word into symbols
// (bytes or code points), and neighbours are merged, the best pair first, until nothing merges. Vocabularies differ in what a
// symbol is and in which pair is best; tokenizer_files.hpp reads them.
//
// Text of users is only text: the tokens that steer a model (special ones) come out of it only where the caller asks for it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/tokenizer/pre_tokenizer.hpp"

namespace imbrex::engine {

enum class token_kind : unsigned char {
    normal,
    byte,     // stands for a byte that no other token has
    special,  // steers the model: not made of text unless asked for, not printed unless asked for
    added,    // matched in the text before anything is merged
    unused,   // has an id, and is never made
};

struct token {
    std::string bytes;  // what it prints, a space as a space
    token_kind kind = token_kind::normal;
    float score = 0;
};

// Which of the possible merges goes first.
enum class merge_order {
    pairs,   // the pair that comes first in the list of merges
    ids,     // the pair that makes the token with the lowest id (tiktoken)
    scores,  // the pair that makes the token with the highest score (SentencePiece)
};

enum class symbol_size { byte, code_point };

// Is text given a space in front, which is not printed again? SentencePiece's models begin their words with one.
enum class prefix_space_mode { none, always, if_missing };

struct merge {
    int rank;
    int result;
};

inline std::uint64_t pair_of(int left, int right) {
    return std::uint64_t(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

// What a tokenizer is made of; the readers fill it in.
struct vocabulary {
    std::string name;  // the file, for sentences
    std::vector<token> tokens;
    symbol_size symbols = symbol_size::byte;
    merge_order order = merge_order::pairs;
    std::unordered_map<std::uint64_t, merge> merges;  // by pair_of the two ids; for merge_order::pairs
    bool ignore_merges = false;                       // a word that is a token is not merged ("ignore_merges")
    std::vector<split_pattern> splits;                // one after the other; none: the text is one word
    bool normalises_nfc = false;                      // text is brought to normalisation form C
    bool underscore_is_space = false;                 // U+2581 in the text means a space, as SentencePiece has it
    prefix_space_mode prefix_space = prefix_space_mode::none;
    std::optional<int> unknown;               // for what has no token at all
    std::vector<int> prefix_ids, suffix_ids;  // ids around a text
};

struct encode_options {
    bool add_special_tokens = true;  // with the ids that the vocabulary puts before and after a text
    bool parse_special = false;  // "<|eot|>" in the text becomes that token: for templates, not for what users write
};

class tokenizer {
  public:
    explicit tokenizer(vocabulary description);
    tokenizer(tokenizer&&) = default;
    tokenizer& operator=(tokenizer&&) = default;

    std::vector<int> encode(std::string_view text, const encode_options& options = {}) const;

    enum class special_tokens { hidden, shown };
    // Bytes that are not UTF-8 come out as U+FFFD. What an id prints by itself is at(id).bytes.
    std::string decode(std::span<const int> ids, special_tokens special = special_tokens::hidden) const;

    int size() const { return static_cast<int>(words_.tokens.size()); }
    const token& at(int id) const;
    const std::string& name() const { return words_.name; }
    std::optional<int> special(std::string_view text) const;  // the id of a special or added token
    const std::vector<int>& prefix_ids() const { return words_.prefix_ids; }
    bool has_prefix_space() const { return words_.prefix_space != prefix_space_mode::none; }

  private:
    void encode_plain(std::string_view text, std::vector<int>& ids) const;
    void encode_word(std::string_view word, std::vector<int>& ids) const;
    void append_bytes(std::string_view bytes, std::vector<int>& ids) const;
    std::optional<merge> merge_of(int left, int right, std::string_view joined) const;
    const token* match_added(std::string_view text, bool with_special) const;

    vocabulary words_;
    std::unordered_map<std::string_view, int> of_text_;  // normal tokens
    std::array<int, 256> of_byte_;                       // -1 where there is none
    std::array<std::vector<int>, 256> added_;            // special and added, by first byte, longest first
};

// Text as its tokens come, never half a character: bytes are held back until they are a whole code point.
class incremental_detokenizer {
  public:
    // A text that continues another keeps the space that its first token may begin with.
    enum class text_position { beginning, continuation };
    explicit incremental_detokenizer(const tokenizer& tokens, text_position where = text_position::beginning,
                                     tokenizer::special_tokens special = tokenizer::special_tokens::hidden);

    std::string push(int id);
    std::string finish();  // what is held back; the decoder is then as new, for a text that continues this one

  private:
    const tokenizer* tokens_;
    bool drops_space_;
    tokenizer::special_tokens special_;
    std::string held_;
};

}  // namespace imbrex::engine
