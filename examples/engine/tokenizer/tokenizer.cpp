#include "engine/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <imbrex/core/error.hpp>
#include <limits>
#include <queue>

#include "engine/tokenizer/unicode.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

constexpr std::string_view replacement = "\ufffd";
constexpr std::string_view guard = "\ufdd0";  // no character, and never will be one

bool is_space(char letter) {
    return letter == ' ' || (letter >= '\t' && letter <= '\r');
}

std::string without_guards(std::string_view text) {
    std::string result;
    for (std::size_t place = 0; place < text.size();) {
        const std::size_t next = std::min(text.find(guard, place), text.size());
        result += text.substr(place, next - place);
        place = next + guard.size();
    }
    return result;
}

// A symbol: a range of bytes of the word. Merging extends the left symbol and sets the length of the right one to 0.
struct symbol {
    std::size_t start;
    std::size_t length;
    int id;  // -1: not a token
    int previous, next;
};

// A candidate merge. It is stale if one of its symbols has changed since, which the length shows.
struct candidate {
    double order;  // lowest first; ties: leftmost
    int left;
    std::size_t length;
    int result;
    bool operator<(const candidate& other) const {
        return order != other.order ? order > other.order : left > other.left;
    }
};

}  // namespace

std::string guarded(std::string_view text, const tokenizer& tokens) {
    std::string result;
    while (!text.empty()) {
        const auto length = static_cast<std::size_t>(first_code_point(text).length);
        const token* found = tokens.match_added(text, true);
        result += text.substr(0, length);
        if (found && found->kind == token_kind::special) result += guard;
        text.remove_prefix(length);
    }
    return result;
}

namespace {

std::uint64_t hash_of(std::string_view text) {
    return std::hash<std::string_view>()(text);
}

std::uint64_t hash_of(int left, int right) {
    return std::uint64_t(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

tokenizer::tokenizer(vocabulary description) : words_(std::move(description)) {
    const auto count = words_.tokens.size();
    require(count > 0 && count < std::numeric_limits<int>::max(), words_.name, ": has no tokens");
    const auto in_range = [&](int id) { return id >= 0 && id < size(); };
    for (const auto* ids : {&words_.prefix_ids, &words_.suffix_ids}) {
        for (const int id : *ids)
            require(in_range(id), words_.name, ": token id ", id, "; there are ", count, " tokens");
    }
    require(!words_.unknown || in_range(*words_.unknown), words_.name, ": token id ", words_.unknown.value_or(0),
            "; there are ", count, " tokens");
    index_tokens();
    index_merges();
}

void tokenizer::index_tokens() {
    of_byte_.fill(-1);
    of_text_ = hash_index(words_.tokens.size());
    for (int id = 0; id < size(); ++id) {
        const token& word = words_.tokens[static_cast<std::size_t>(id)];
        require(std::isfinite(word.score), words_.name, ": token ", id, " has the score ", word.score,
                "; it must be finite");
        if (word.bytes.empty()) continue;  // never produced from text
        const auto first = static_cast<unsigned char>(word.bytes[0]);
        if (word.kind == token_kind::normal) {
            int& slot = of_text_.slot(hash_of(word.bytes), [&](int other) { return at(other).bytes == word.bytes; });
            if (slot == hash_index::none) slot = id;
            longest_token_ = std::max(longest_token_, word.bytes.size());
            least_score_ = std::min(least_score_, word.score);
            if (word.bytes.size() == 1 && words_.symbols == symbol_size::byte && of_byte_[first] < 0)
                of_byte_[first] = id;
        } else if (word.kind == token_kind::byte) {
            of_byte_[first] = id;
        } else if (word.kind != token_kind::unused) {
            added_[first].push_back(id);
        }
    }
    for (auto& bucket : added_) {
        std::ranges::stable_sort(bucket, std::greater{}, [&](int id) { return at(id).bytes.size(); });
    }
}

void tokenizer::index_merges() {
    of_pair_ = hash_index(words_.merges.size());
    int rank = 0;
    for (const merge& each : words_.merges) {
        of_pair_.slot(hash_of(each.left, each.right), [&](int number) {
            const merge& other = words_.merges[static_cast<std::size_t>(number)];
            return other.left == each.left && other.right == each.right;
        }) = rank++;
    }
}

const token& tokenizer::at(int id) const {
    require(id >= 0 && id < size(), words_.name, ": token id ", id, "; there are ", size(), " tokens");
    return words_.tokens[static_cast<std::size_t>(id)];
}

std::optional<int> tokenizer::special(std::string_view text) const {
    if (text.empty()) return {};
    for (const int id : added_[static_cast<unsigned char>(text[0])]) {
        if (at(id).bytes == text) return id;
    }
    return {};
}

const token* tokenizer::match_added(std::string_view text, bool with_special) const {
    for (const int id : added_[static_cast<unsigned char>(text[0])]) {
        const token& word = words_.tokens[static_cast<std::size_t>(id)];
        if ((with_special || word.kind == token_kind::added) && text.starts_with(word.bytes)) return &word;
    }
    return nullptr;
}

std::vector<int> tokenizer::encode(std::string_view text, const encode_options& options) const {
    std::vector<int> ids;
    if (options.add_special_tokens) ids = words_.prefix_ids;
    const auto encode_part = [&](std::size_t begin, std::size_t end) {
        const std::string_view part = text.substr(begin, end - begin);
        encode_plain(options.parse_special ? without_guards(part) : std::string(part), begin == 0, ids);
    };
    std::size_t plain = 0;  // start of the text not encoded yet
    for (std::size_t place = 0; place < text.size();) {
        const token* found = match_added(text.substr(place), options.parse_special);
        if (!found) {
            ++place;
            continue;
        }
        std::size_t before = place;
        while (found->strips_left && before > plain && is_space(text[before - 1])) --before;
        encode_part(plain, before);
        ids.push_back(static_cast<int>(found - words_.tokens.data()));
        place += found->bytes.size();
        while (found->strips_right && place < text.size() && is_space(text[place])) ++place;
        plain = place;
    }
    encode_part(plain, text.size());
    if (options.add_special_tokens) ids.insert(ids.end(), words_.suffix_ids.begin(), words_.suffix_ids.end());
    return ids;
}

std::string tokenizer::normalised(std::string_view text, bool is_first) const {
    std::string result = words_.characters.apply(text);
    if (words_.normalises_nfc) result = nfc(result);
    if (words_.collapses_spaces) {
        std::string single;
        for (const char letter : result) {
            if (letter != ' ' || !(single.empty() || single.back() == ' ')) single += letter;
        }
        if (single.ends_with(' ')) single.pop_back();
        result = std::move(single);
    }
    if (words_.underscore_is_space) result = with_spaces(result);
    using mode = prefix_space_mode;
    const mode prefix = words_.prefix_space;
    const bool is_here = is_first || prefix == mode::always || prefix == mode::if_missing;
    const bool only_missing = prefix == mode::if_missing || prefix == mode::if_missing_at_start;
    const bool adds = prefix != mode::none && is_here && !(only_missing && result.starts_with(' '));
    return adds && !result.empty() ? ' ' + result : result;
}

void tokenizer::encode_plain(std::string_view text, bool is_first, std::vector<int>& ids) const {
    if (text.empty()) return;
    const std::string plain = normalised(text, is_first);
    for (const std::string_view word : split_words(plain, words_.splits)) encode_word(word, ids);
}

int tokenizer::id_of_text(std::string_view text) const {
    return of_text_.find(hash_of(text),
                         [&](int id) { return words_.tokens[static_cast<std::size_t>(id)].bytes == text; });
}

std::optional<tokenizer::ranked_merge> tokenizer::merge_of(int left, int right, std::string_view joined) const {
    if (words_.order == merge_order::pairs) {
        const int rank = of_pair_.find(hash_of(left, right), [&](int number) {
            const merge& each = words_.merges[static_cast<std::size_t>(number)];
            return each.left == left && each.right == right;
        });
        if (rank == hash_index::none) return {};
        return ranked_merge{rank, words_.merges[static_cast<std::size_t>(rank)].result};
    }
    const int found = id_of_text(joined);
    if (found == hash_index::none) return {};
    return ranked_merge{found, found};
}

void tokenizer::encode_word(std::string_view word, std::vector<int>& ids) const {
    if (words_.order == merge_order::unigram) return encode_unigram(word, ids);
    if (words_.ignore_merges || words_.order == merge_order::ids) {
        if (const int found = id_of_text(word); found != hash_index::none) {
            ids.push_back(found);
            return;
        }
    }
    std::vector<symbol> symbols;
    for (std::size_t place = 0; place < word.size();) {
        std::size_t length = 1;
        if (words_.symbols == symbol_size::code_point) {
            length = static_cast<std::size_t>(first_code_point(word.substr(place)).length);
        }
        const int index = static_cast<int>(symbols.size());
        symbols.push_back({place, length, id_of_text(word.substr(place, length)), index - 1, index + 1});
        place += length;
    }
    symbols.back().next = -1;

    std::priority_queue<candidate> candidates;
    const auto consider = [&](int left) {
        if (left < 0 || symbols[static_cast<std::size_t>(left)].next < 0) return;
        const symbol& first = symbols[static_cast<std::size_t>(left)];
        const symbol& second = symbols[static_cast<std::size_t>(first.next)];
        const std::size_t length = first.length + second.length;
        const auto found = merge_of(first.id, second.id, word.substr(first.start, length));
        if (!found) return;
        const double order =
            words_.order == merge_order::scores ? -static_cast<double>(at(found->result).score) : found->rank;
        candidates.push({order, left, length, found->result});
    };
    for (int i = 0; i + 1 < static_cast<int>(symbols.size()); ++i) consider(i);
    while (!candidates.empty()) {
        const candidate best = candidates.top();
        candidates.pop();
        symbol& first = symbols[static_cast<std::size_t>(best.left)];
        if (first.length == 0 || first.next < 0) continue;
        symbol& second = symbols[static_cast<std::size_t>(first.next)];
        if (first.length + second.length != best.length) continue;
        first.length = best.length;
        first.id = best.result;
        first.next = second.next;
        second.length = 0;
        if (first.next >= 0) symbols[static_cast<std::size_t>(first.next)].previous = best.left;
        consider(first.previous);
        consider(best.left);
    }
    for (const symbol& one : symbols) {
        if (one.length == 0) continue;
        if (one.id >= 0) {
            ids.push_back(one.id);
        } else {
            append_bytes(word.substr(one.start, one.length), ids);
        }
    }
}

// Byte fallback for symbols outside the vocabulary; the unknown token if a byte is missing too.
void tokenizer::append_bytes(std::string_view bytes, std::vector<int>& ids) const {
    const auto id_of = [&](char byte) { return of_byte_[static_cast<unsigned char>(byte)]; };
    if (std::ranges::all_of(bytes, [&](char byte) { return id_of(byte) >= 0; })) {
        for (const char byte : bytes) ids.push_back(id_of(byte));
        return;
    }
    require(words_.unknown.has_value(), words_.name, ": has no token for ", printable(bytes), " (first byte ",
            static_cast<unsigned>(static_cast<unsigned char>(bytes[0])), "), and none for what is unknown");
    ids.push_back(*words_.unknown);
}

std::string tokenizer::decode(std::span<const int> ids, special_tokens special) const {
    incremental_detokenizer decoder(*this, incremental_detokenizer::text_position::beginning, special);
    std::string text;
    for (const int id : ids) text += decoder.push(id);
    return text + decoder.finish();
}

incremental_detokenizer::incremental_detokenizer(const tokenizer& tokens, text_position where,
                                                 tokenizer::special_tokens special)
    : tokens_(&tokens),
      drops_space_(where == text_position::beginning && tokens.has_prefix_space()),
      special_(special) {}

std::string incremental_detokenizer::push(int id) {
    const token& next = tokens_->at(id);
    if (next.kind == token_kind::special) {
        // Pending bytes cannot be completed any more.
        const bool drops_space = drops_space_;
        std::string text = finish();
        drops_space_ = drops_space;
        if (special_ == tokenizer::special_tokens::shown) text += next.bytes;
        if (special_ == tokenizer::special_tokens::marked) text += special_token_mark + next.bytes + special_token_mark;
        return text;
    }
    std::string_view bytes = next.bytes;
    if (drops_space_ && bytes.starts_with(' ')) bytes.remove_prefix(1);
    drops_space_ = drops_space_ && next.bytes.empty();
    held_ += bytes;

    std::string text;
    std::string_view rest = held_;
    while (!rest.empty()) {
        const code_point point = first_code_point(rest);
        if (point.valid) {
            text += rest.substr(0, static_cast<std::size_t>(point.length));
        } else if (may_begin_code_point(rest)) {
            break;  // the rest of the code point may follow
        } else {
            text += replacement;
        }
        rest.remove_prefix(static_cast<std::size_t>(point.length));
    }
    held_ = std::string(rest);
    return text;
}

std::string incremental_detokenizer::finish() {
    const bool has_half = !held_.empty();
    held_.clear();
    drops_space_ = false;
    return has_half ? std::string(replacement) : std::string();
}

}  // namespace imbrex::engine
