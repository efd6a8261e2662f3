// BPE and unigram tokenizers: text to token ids and back. Text is normalised and split into words. BPE splits words into
// symbols (bytes or code points) and merges adjacent ones, best pair first; vocabularies differ in the symbols and in the
// merge order (merge list, tiktoken ranks, SentencePiece scores). Unigram chooses the most likely tokens of a word.
// loading/tokenizer_files.hpp reads vocabularies.
//
// User text is plain text: special tokens are parsed only on request.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/character_map.hpp"
#include "engine/tokenizer/hash_index.hpp"
#include "engine/tokenizer/pre_tokenizer.hpp"

namespace imbrex::engine {

enum class token_kind : unsigned char {
    normal,
    byte,     // a byte without another token (byte fallback)
    special,  // control token: parsed and printed only on request
    added,    // matched in the text before anything is merged
    unused,   // has an id, never produced
};

struct token {
    std::string bytes;  // printed form, with plain spaces
    token_kind kind = token_kind::normal;
    float score = 0;
    bool strips_left = false, strips_right = false;  // special and added: matched with the white space beside it
};

// What becomes tokens first.
enum class merge_order {
    pairs,    // the first pair in the merge list
    ids,      // the pair that makes the token with the lowest id (tiktoken)
    scores,   // the pair that makes the token with the highest score (SentencePiece)
    unigram,  // no merges: the tokens with the greatest sum of scores (SentencePiece, unigram)
};

enum class symbol_size { byte, code_point };

// Whether a space is prepended to a text, and removed when printing, as SentencePiece does. Special tokens cut a text into
// parts; "at start" means only the first of them.
enum class prefix_space_mode { none, always, if_missing, always_at_start, if_missing_at_start };

// Two tokens and the token that they become. The rank is the place in the list; of equal pairs the last counts.
struct merge {
    int left, right;
    int result;
};

// The vocabulary; filled in by the readers.
struct vocabulary {
    std::string name;  // the file, for error messages
    std::vector<token> tokens;
    symbol_size symbols = symbol_size::byte;
    merge_order order = merge_order::pairs;
    std::vector<merge> merges;               // for merge_order::pairs
    bool ignore_merges = false;              // a word that is a token is not merged
    std::vector<regular_expression> splits;  // applied in order; empty: the text is one word
    bool normalises_nfc = false;             // apply Unicode NFC
    character_map characters;                // SentencePiece's normalization
    bool collapses_spaces = false;           // keep one of several spaces, and none at either end
    bool underscore_is_space = false;        // U+2581 in the text is a space, as in SentencePiece
    prefix_space_mode prefix_space = prefix_space_mode::none;
    std::optional<int> unknown;               // the unknown token
    std::vector<int> prefix_ids, suffix_ids;  // special tokens around a text
};

struct encode_options {
    bool add_special_tokens = true;  // BOS and EOS as the vocabulary defines
    bool parse_special = false;      // "<|eot|>" in the text becomes that token: for templates, not for user text
};

// Makes user text safe for parse_special, which templates need: an invisible character inside each special token's name,
// which encode removes again.
std::string guarded(std::string_view text, const class tokenizer& tokens);

// Around the names of special tokens if they are marked; no byte of UTF-8.
inline constexpr char special_token_mark = '\xff';

class tokenizer {
  public:
    explicit tokenizer(vocabulary description);
    tokenizer(tokenizer&&) = default;
    tokenizer& operator=(tokenizer&&) = default;

    std::vector<int> encode(std::string_view text, const encode_options& options = {}) const;

    // Marked: each name stands between two marks, which no text has.
    enum class special_tokens { hidden, shown, marked };
    // Invalid UTF-8 becomes U+FFFD. at(id).bytes has the raw bytes of a token.
    std::string decode(std::span<const int> ids, special_tokens special = special_tokens::hidden) const;

    int size() const { return static_cast<int>(words_.tokens.size()); }
    const token& at(int id) const;
    const std::string& name() const { return words_.name; }
    std::optional<int> special(std::string_view text) const;  // the id of a special or added token
    // The special or added token at the beginning of a text.
    const token* match_added(std::string_view text, bool with_special) const;
    const std::vector<int>& prefix_ids() const { return words_.prefix_ids; }
    bool has_prefix_space() const { return words_.prefix_space != prefix_space_mode::none; }

  private:
    void encode_plain(std::string_view text, bool is_first, std::vector<int>& ids) const;
    std::string normalised(std::string_view text, bool is_first) const;
    void encode_unigram(std::string_view word, std::vector<int>& ids) const;
    void encode_word(std::string_view word, std::vector<int>& ids) const;
    void append_bytes(std::string_view bytes, std::vector<int>& ids) const;
    struct ranked_merge {
        int rank, result;
    };
    std::optional<ranked_merge> merge_of(int left, int right, std::string_view joined) const;
    // The normal token with this text, or hash_index::none.
    int id_of_text(std::string_view text) const;
    void index_tokens();
    void index_merges();

    vocabulary words_;
    hash_index of_text_;                       // normal tokens
    hash_index of_pair_;                       // merges
    std::array<int, 256> of_byte_;             // -1: none
    std::array<std::vector<int>, 256> added_;  // special and added, by first byte, longest first
    std::size_t longest_token_ = 0;            // bytes of the longest normal token
    float least_score_ = 0;                    // of the normal tokens
};

// Streaming detokenizer: holds bytes back until a code point is complete.
class incremental_detokenizer {
  public:
    // A continuation keeps the leading space of its first token.
    enum class text_position { beginning, continuation };
    explicit incremental_detokenizer(const tokenizer& tokens, text_position where = text_position::beginning,
                                     tokenizer::special_tokens special = tokenizer::special_tokens::hidden);

    std::string push(int id);
    std::string finish();  // flushes held-back bytes and resets, for a continuation

  private:
    const tokenizer* tokens_;
    bool drops_space_;
    tokenizer::special_tokens special_;
    std::string held_;
};

}  // namespace imbrex::engine
