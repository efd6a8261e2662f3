// A trace: conversations that arrive at given times, for load tests and for the fleet simulation. The tokens of a
// conversation are made from its numbers, so that equal system prompts are equal tokens, and others are not.
//
//   {"arrival": 0.25, "system": 3, "system_tokens": 512, "turns": [{"input": 40, "output": 128},
//                                                                  {"think": 5, "input": 20, "output": 64}]}
//
// One line of JSON for each conversation, in the order of arrival. The prompt of a turn is everything before it: system
// prompt, inputs and answers. The next turn comes `think` seconds after the answer. Without "system" no prompt is shared.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace imbrex::engine {

struct trace_turn {
    double think = 0;  // seconds after the answer before; 0 in the first turn
    int input = 1;     // tokens
    int output = 1;
};

struct trace_conversation {
    double arrival = 0;  // seconds since the start
    int system = -1;     // which system prompt; -1: none
    int system_tokens = 0;
    std::vector<trace_turn> turns{};
};

using request_trace = std::vector<trace_conversation>;

// Throws for a line that is not a conversation; `name` is the file name for the message.
request_trace read_trace(std::istream& lines, const std::string& name);
request_trace read_trace_file(const std::string& path);
void write_trace(std::ostream& out, const request_trace& trace);

int requests_of(const request_trace& trace);          // all turns
int longest_of(const request_trace& trace);           // tokens of the longest conversation
std::int64_t outputs_of(const request_trace& trace);  // tokens of all answers

// The tokens of a conversation as it goes on.
class conversation_tokens {
  public:
    // Token ids are below vocab_size. `number` is the index of the conversation in the trace. Traces with different seeds
    // share no tokens: the second does not find its prompts in the prefix cache of the first.
    conversation_tokens(const trace_conversation& of, int number, int vocab_size, int seed = 0);

    bool has_turn() const { return next_ < of_->turns.size(); }
    const trace_turn& turn() const { return of_->turns[next_]; }           // the next one
    const trace_turn& last_turn() const { return of_->turns[next_ - 1]; }  // the one of the last prompt
    const std::vector<int>& ask();  // appends the input of the next turn: a prompt
    const std::vector<int>& tokens() const { return tokens_; }
    void answer(int token) { tokens_.push_back(token); }

  private:
    void append(std::uint64_t seed, int count);

    const trace_conversation* of_;
    std::uint64_t seed_ = 0;
    int vocab_size_;
    std::size_t next_ = 0;
    std::vector<int> tokens_;
};

}  // namespace imbrex::engine
