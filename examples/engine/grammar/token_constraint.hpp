// What a generated text must be: a constraint, and how far a sequence has come in it. The scheduler gives each sequence a
// state of its own and pushes every sampled token; the sampler asks the state which tokens may come next. A state depends
// on the pushed tokens alone, so preemption and prefix caching do not concern it, and a fork copies it.
//
//     sampling.constraint = constrain_to_json_schema(schema, model.token_trie());   // grammar/structured_output.hpp
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace imbrex::engine {

class constraint_state {
  public:
    virtual ~constraint_state() = default;
    virtual std::unique_ptr<constraint_state> clone() const = 0;

    // The next token of the text. Tokens that end the generation are not pushed.
    virtual void push(int token) = 0;
    // The rest of a token, of which a constraint before this one took the beginning (constrain_after). Text that does
    // not fit is ignored.
    virtual void push_text(std::string_view) {}
    // Every token may come next: before the trigger of a constraint (constrain_after), or after a token that the mask
    // does not have.
    virtual bool is_free() const = 0;
    // Sets bit t % 32 of word t / 32 for each token t that may come next, and clears all others. Special tokens never
    // may.
    virtual void allowed_tokens(std::span<std::uint32_t> mask) const = 0;
    // Whether the text may end here, and whether it must, because no token can follow.
    virtual bool may_end() const = 0;
    virtual bool must_end() const = 0;
};

class token_constraint {
  public:
    virtual ~token_constraint() = default;

    // The state before the first token. `drops_space`: the text begins here, and its first token is printed without its
    // leading space (SentencePiece).
    virtual std::unique_ptr<constraint_state> start(bool drops_space) const = 0;
};

// The state of a sequence, or nothing; copies are independent.
class constraint_progress {
  public:
    constraint_progress() = default;
    explicit constraint_progress(std::unique_ptr<constraint_state> state) : state_(std::move(state)) {}
    constraint_progress(const constraint_progress& other) : state_(other.state_ ? other.state_->clone() : nullptr) {}
    constraint_progress(constraint_progress&&) noexcept = default;
    constraint_progress& operator=(constraint_progress other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }
    ~constraint_progress() = default;

    explicit operator bool() const { return state_ != nullptr; }
    constraint_state* operator->() const { return state_.get(); }

  private:
    std::unique_ptr<constraint_state> state_;
};

}  // namespace imbrex::engine
