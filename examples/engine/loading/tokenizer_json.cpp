// Hugging Face's tokenizer.json: a pipeline of normalizer, pre-tokenizer, model and post-processor. The types that BPE
// vocabularies use are supported; any other type throws, since a tokenizer that is almost right gives text that is
// almost right.
#include <imbrex/core/error.hpp>
#include <set>

#include "engine/loading/json_text.hpp"
#include "engine/loading/mapped_file.hpp"
#include "engine/loading/tokenizer_files.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

using namespace vocabulary_files;

constexpr std::string_view underscore = "\u2581";
constexpr std::size_t most_unused_ids = 65536;

class json_reader {
  public:
    json_reader(const json& root, const std::string& name) : root_(root), name_(name) { words_.name = name; }

    tokenizer read() {
        require(root_.is_object(), name_, ": is ", shown(root_), "; it must be an object");
        const json& model = member(root_, "model", name_);
        check_model(model);
        if (const json* normalizer = find_member(root_, "normalizer")) read_normalizer(*normalizer);
        if (const json* splitter = find_member(root_, "pre_tokenizer")) read_pre_tokenizer(*splitter);
        // Without ByteLevel, symbols are code points, and a token "<0x0A>" is a byte.
        if (!is_byte_level_) words_.symbols = symbol_size::code_point;
        read_tokens(model);
        if (is_unigram(model)) {
            require(!is_byte_level_, name_, ": a Unigram model with the pre_tokenizer ByteLevel is not known");
            words_.order = merge_order::unigram;
            if (const auto unknown = int_member(model, "unk_id", name_)) words_.unknown = static_cast<int>(*unknown);
        } else {
            read_merges(model);
        }
        if (const auto unknown = string_member(model, "unk_token", name_))
            words_.unknown = id_of(*unknown, "model.unk_token");
        if (const json* processor = find_member(root_, "post_processor")) read_post_processor(*processor);
        return tokenizer(std::move(words_));
    }

  private:
    std::string type_of(const json& step, const char* what) const {
        const auto type = string_member(step, "type", name_ + ": " + what);
        require(type.has_value(), name_, ": ", what, ": \"type\" is missing");
        return *type;
    }

    template <class Use>
    void for_each_step(const json& step, const char* what, const char* list, const Use& use) {
        if (type_of(step, what) != "Sequence") return use(step);
        const json& steps = member(step, list, name_);
        require(steps.is_array(), name_, ": ", what, ": \"", list, "\" is ", shown(steps), "; it must be an array");
        for (const json& one : steps) {
            require(type_of(one, what) != "Sequence", name_, ": ", what, ": a Sequence in a Sequence is not allowed");
            use(one);
        }
    }

    bool is_unigram(const json& model) const { return string_member(model, "type", name_) == "Unigram"; }

    void check_model(const json& model) const {
        require(model.is_object(), name_, ": \"model\" is ", shown(model), "; it must be an object");
        const std::string type = string_member(model, "type", name_).value_or("BPE");  // older files leave it out
        require(type == "BPE" || type == "Unigram", name_, ": model.type is ", printable(type),
                "; BPE and Unigram can be read");
        for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
            require(string_member(model, key, name_).value_or("").empty(), name_, ": model.", key, " must be empty");
        }
        require(double_member(model, "dropout", name_).value_or(0) == 0, name_, ": model.dropout must be 0");
    }

    void read_normalizer(const json& normalizer) {
        for_each_step(normalizer, "normalizer", "normalizers", [&](const json& step) {
            const std::string type = type_of(step, "normalizer");
            if (type == "NFC") {
                words_.normalises_nfc = true;
            } else if (type == "Prepend") {
                require(string_member(step, "prepend", name_) == underscore, name_,
                        ": normalizer Prepend puts something other than U+2581");
                words_.prefix_space = prefix_space_mode::always;
            } else if (type == "Replace") {
                read_replacement(step);
            } else if (type == "Precompiled") {
                const auto map = string_member(step, "precompiled_charsmap", name_);
                words_.characters =
                    character_map(from_base64(map.value_or(""), name_ + ": precompiled_charsmap: "), name_);
            } else {
                require(false, name_, ": normalizer ", printable(type),
                        " is not known; NFC, Precompiled, Prepend and Replace are");
            }
        });
    }

    void read_replacement(const json& step) {
        const auto content = string_member(step, "content", name_);
        const json* pattern = find_member(step, "pattern");
        const bool is_of_spaces = pattern && string_member(*pattern, "Regex", name_) == " {2,}";
        if (is_of_spaces && (content == " " || content == underscore)) {
            words_.collapses_spaces = true;
            return;
        }
        require(content == underscore && pattern && string_member(*pattern, "String", name_) == " ", name_,
                ": normalizer Replace must put U+2581 for a space, or one space for several");
        words_.underscore_is_space = true;
    }

    void read_pre_tokenizer(const json& splitter) {
        for_each_step(splitter, "pre_tokenizer", "pretokenizers", [&](const json& step) {
            const std::string type = type_of(step, "pre_tokenizer");
            if (type == "ByteLevel") {
                is_byte_level_ = true;
                require(!bool_member(step, "add_prefix_space", name_).value_or(true), name_,
                        ": pre_tokenizer ByteLevel with \"add_prefix_space\" is not known");
                if (bool_member(step, "use_regex", name_).value_or(true))
                    words_.splits.emplace_back(split_expressions::gpt2);
            } else if (type == "Digits") {
                const bool alone = bool_member(step, "individual_digits", name_).value_or(false);
                words_.splits.emplace_back(alone ? R"(\p{N})" : R"(\p{N}+)");
            } else if (type == "Punctuation") {
                const std::string behavior = string_member(step, "behavior", name_).value_or("Isolated");
                require(behavior == "Isolated" || behavior == "Contiguous", name_,
                        ": pre_tokenizer Punctuation has the behavior ", printable(behavior),
                        "; Isolated and Contiguous are known");
                words_.splits.emplace_back(behavior == "Isolated" ? R"([\p{P}\$\+<=>\^~\|`])"
                                                                  : R"([\p{P}\$\+<=>\^~\|`]+)");
            } else if (type == "Split") {
                read_split(step);
            } else if (type == "Metaspace") {
                read_metaspace(step);
            } else if (type == "WhitespaceSplit") {
                words_.collapses_spaces = true;
            } else {
                require(false, name_, ": pre_tokenizer ", printable(type),
                        " is not known; ByteLevel, Digits, Punctuation, Split and Metaspace are");
            }
        });
    }

    void read_metaspace(const json& step) {
        words_.underscore_is_space = true;
        const bool is_old = bool_member(step, "add_prefix_space", name_).value_or(true);
        const std::string scheme = string_member(step, "prepend_scheme", name_).value_or(is_old ? "always" : "never");
        require(scheme == "always" || scheme == "first" || scheme == "never", name_,
                ": pre_tokenizer Metaspace has the prepend_scheme ", printable(scheme),
                "; always, first and never are known");
        if (scheme == "always") words_.prefix_space = prefix_space_mode::if_missing;
        if (scheme == "first") words_.prefix_space = prefix_space_mode::if_missing_at_start;
        if (bool_member(step, "split", name_).value_or(true)) words_.splits.emplace_back(" [^ ]*|[^ ]+");
    }

    void read_split(const json& step) {
        const json* pattern = find_member(step, "pattern");
        // Gemma cuts at spaces, of which its normalizer leaves none.
        const bool is_at_spaces = pattern && string_member(*pattern, "String", name_) == " ";
        if (is_at_spaces && words_.underscore_is_space) return;
        const auto expression = pattern ? string_member(*pattern, "Regex", name_) : std::nullopt;
        require(expression.has_value(), name_, ": pre_tokenizer Split must have a pattern of the kind Regex");
        const bool cuts_matches =
            string_member(step, "behavior", name_) == "Isolated" ||
            (string_member(step, "behavior", name_) == "Removed" && bool_member(step, "invert", name_).value_or(false));
        require(cuts_matches, name_,
                ": pre_tokenizer Split must keep the matches (behavior Isolated, or Removed with invert)");
        try {
            words_.splits.emplace_back(*expression);
        } catch (const error& failure) {
            throw invalid_argument(name_ + ": pre_tokenizer Split: " + failure.what());
        }
    }

    // Registers a token; its id must be in range and unique.
    token& place_for(std::uint64_t id, const std::string& text) {
        if (id >= most_) {
            require(false, name_, ": token ", shown(text), " has the id ", id, "; the ids of this file go up to ",
                    most_ - 1);
        }
        const auto index = static_cast<std::size_t>(id);
        if (index >= words_.tokens.size()) {
            words_.tokens.resize(index + 1, {"", token_kind::unused, 0});
            owners_.resize(index + 1);
        }
        std::optional<std::string>& owner = owners_[index];
        if (!owner) owner = text;
        if (*owner != text)
            require(false, name_, ": tokens ", shown(*owner), " and ", shown(text), " have the same id ", id);
        return words_.tokens[index];
    }

    static std::uint64_t read_id(const json& value, const std::string& text, const std::string& name) {
        if (!value.is_number_unsigned()) {
            require(false, name, ": token ", shown(text), " has the id ", shown(value),
                    "; it must be a whole number from 0");
        }
        return value.get<std::uint64_t>();
    }

    void read_tokens(const json& model) {
        const json& vocabulary_object = member(model, "vocab", name_);
        const bool has_scores = is_unigram(model);
        require(has_scores ? vocabulary_object.is_array() : vocabulary_object.is_object(), name_, ": model.vocab is ",
                shown(vocabulary_object), has_scores ? "; it must be an array" : "; it must be an object");
        const json* added = find_member(root_, "added_tokens");
        require(!added || added->is_array(), name_, ": added_tokens must be an array");
        most_ = vocabulary_object.size() + (added ? added->size() : 0) + most_unused_ids;
        const bool falls_back = bool_member(model, "byte_fallback", name_).value_or(false);
        const auto add = [&](const std::string& text, std::uint64_t id, float score) {
            token& word = place_for(id, text);
            word = {text, token_kind::normal, score};
            if (is_byte_level_) {
                word.bytes = bytes_of_byte_level(text).value_or(text);
            } else if (const auto byte = byte_token(text); byte && falls_back) {
                word = {std::string(1, *byte), token_kind::byte, score};
            } else if (words_.underscore_is_space) {
                word.bytes = with_spaces(text);
            }
            ids_.emplace(text, static_cast<int>(id));
        };
        if (!has_scores) {
            for (const auto& [text, id] : vocabulary_object.items()) add(text, read_id(id, text, name_), 0);
        } else {
            std::uint64_t id = 0;
            for (const json& piece : vocabulary_object) {
                const bool is_pair =
                    piece.is_array() && piece.size() == 2 && piece[0].is_string() && piece[1].is_number();
                require(is_pair, name_, ": token ", id, " of model.vocab is ", shown(piece),
                        "; [\"text\", score] is allowed");
                add(piece[0].get<std::string>(), id++, piece[1].get<float>());
            }
        }
        if (!added) return;
        std::set<std::string> seen;
        for (const json& entry : *added) {
            const auto text = string_member(entry, "content", name_ + ": added_tokens");
            require(text && !text->empty(), name_, ": added_tokens: \"content\" is missing or empty");
            require(seen.insert(*text).second, name_, ": added token ", printable(*text), " is there twice");
            require(!bool_member(entry, "single_word", name_).value_or(false), name_, ": added token ",
                    printable(*text), " has \"single_word\", which is not supported");
            const std::uint64_t id =
                read_id(member(entry, "id", name_ + ": added token " + printable(*text)), *text, name_);
            const auto known = ids_.find(*text);
            require(known == ids_.end() || static_cast<std::uint64_t>(known->second) == id, name_, ": added token ",
                    printable(*text), " has the id ", id, ", but ", known == ids_.end() ? 0 : known->second,
                    " in model.vocab");
            token& word = place_for(id, *text);
            const bool is_special = bool_member(entry, "special", name_).value_or(false);
            word = {*text, is_special ? token_kind::special : token_kind::added, 0,
                    bool_member(entry, "lstrip", name_).value_or(false),
                    bool_member(entry, "rstrip", name_).value_or(false)};
            ids_.emplace(*text, static_cast<int>(id));
        }
    }

    int id_of(const std::string& text, const char* what) const {
        const auto found = ids_.find(text);
        require(found != ids_.end(), name_, ": ", what, " is ", printable(text), ", which is not in the vocabulary");
        return found->second;
    }

    void read_merges(const json& model) {
        merge_builder builder(words_);
        for (const auto& [text, id] : ids_) builder.name_token(text, id);
        const json& merges = member(model, "merges", name_);
        require(merges.is_array(), name_, ": model.merges is ", shown(merges), "; it must be an array");
        for (const json& pair : merges) {
            if (pair.is_string()) {
                builder.add_line(pair.get_ref<const std::string&>());
            } else {
                const bool is_pair = pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
                require(is_pair, name_, ": a merge is ", shown(pair), "; \"a b\" and [\"a\", \"b\"] are allowed");
                builder.add(pair[0].get_ref<const std::string&>(), pair[1].get_ref<const std::string&>());
            }
        }
        words_.ignore_merges = bool_member(model, "ignore_merges", name_).value_or(false);
    }

    // Templates add special tokens around a text. Other post-processors change offsets, not ids.
    void read_post_processor(const json& processor) {
        for_each_step(processor, "post_processor", "processors", [&](const json& step) {
            const std::string type = type_of(step, "post_processor");
            if (type == "ByteLevel") return;
            require(type == "TemplateProcessing", name_, ": post_processor ", printable(type),
                    " is not known; ByteLevel and TemplateProcessing are");
            const json& pieces = member(step, "single", name_);
            require(pieces.is_array(), name_, ": post_processor: \"single\" is ", shown(pieces),
                    "; it must be an array");
            std::vector<int>* side = &words_.prefix_ids;
            for (const json& piece : pieces) {
                if (find_member(piece, "Sequence")) {
                    side = &words_.suffix_ids;
                    continue;
                }
                const json* special = find_member(piece, "SpecialToken");
                const auto text = special ? string_member(*special, "id", name_) : std::nullopt;
                require(text.has_value(), name_, ": post_processor: a piece is neither Sequence nor SpecialToken");
                side->push_back(id_of(*text, "a special token of post_processor"));
            }
        });
    }

    const json& root_;
    const std::string& name_;
    vocabulary words_;
    bool is_byte_level_ = false;
    std::uint64_t most_ = 0;                          // upper bound of ids
    std::vector<std::optional<std::string>> owners_;  // by id: the name in the file
    std::unordered_map<std::string, int> ids_;
};

}  // namespace

tokenizer read_tokenizer_json(std::span<const std::byte> bytes, const std::string& name) {
    const json root = parse_json(as_text(bytes), name);
    return json_reader(root, name).read();
}

}  // namespace imbrex::engine
