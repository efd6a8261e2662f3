#include "engine/serving/request_trace.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <fstream>
#include <limits>
#include <ostream>
#include <utility>

#include "engine/loading/json_text.hpp"

namespace imbrex::engine {

namespace {

double seconds_member(const json& object, const char* key, const std::string& name) {
    const double seconds = double_member(object, key, name).value_or(0);
    require(seconds >= 0, name, ": \"", key, "\" is ", seconds, "; it must be 0 or more seconds");
    return seconds;
}

int count_member(const json& object, const char* key, const std::string& name, int least, int missing) {
    const std::int64_t count = int_member(object, key, name).value_or(missing);
    require(count >= least && count <= std::numeric_limits<int>::max() / 4, name, ": \"", key, "\" is ", count,
            "; it must be at least ", least);
    return static_cast<int>(count);
}

trace_turn read_turn(const json& value, const std::string& name) {
    require(value.is_object(), name, ": a turn is ", shown(value), "; it must be an object with input and output");
    return {.think = seconds_member(value, "think", name),
            .input = count_member(value, "input", name, 1, 0),
            .output = count_member(value, "output", name, 1, 0)};
}

trace_conversation read_conversation(const std::string& line, const std::string& name) {
    const json value = parse_json(line, name);
    require(value.is_object(), name, ": it is ", shown(value), "; it must be an object with arrival and turns");
    trace_conversation made{.arrival = seconds_member(value, "arrival", name),
                            .system = count_member(value, "system", name, -1, -1),
                            .system_tokens = count_member(value, "system_tokens", name, 0, 0)};
    const json& turns = member(value, "turns", name);
    require(turns.is_array() && !turns.empty(), name, ": \"turns\" must be an array with at least one turn");
    for (const json& each : turns) made.turns.push_back(read_turn(each, name));
    return made;
}

int length_of(const trace_conversation& one) {
    int all = one.system_tokens;
    for (const trace_turn& turn : one.turns) all += turn.input + turn.output;
    return all;
}

// A number that looks random (splitmix64).
std::uint64_t mixed(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

}  // namespace

request_trace read_trace(std::istream& lines, const std::string& name) {
    request_trace trace;
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        if (line.empty()) continue;
        const std::string place = str_cat(name, ", line ", number);
        trace.push_back(read_conversation(line, place));
        require(trace.size() == 1 || trace[trace.size() - 2].arrival <= trace.back().arrival, place,
                ": \"arrival\" is ", trace.back().arrival,
                "; the line before has a later one, and lines must be in the order of arrival");
    }
    require(!trace.empty(), name, ": it has no conversation; there must be at least one line");
    return trace;
}

request_trace read_trace_file(const std::string& path) {
    std::ifstream file(path);
    require(file.is_open(), "trace: ", path, " cannot be read");
    return read_trace(file, path);
}

void write_trace(std::ostream& out, const request_trace& trace) {
    for (const trace_conversation& one : trace) {
        nlohmann::ordered_json line{{"arrival", one.arrival}};
        if (one.system >= 0) {
            line["system"] = one.system;
            line["system_tokens"] = one.system_tokens;
        }
        for (const trace_turn& turn : one.turns) {
            nlohmann::ordered_json made{{"input", turn.input}, {"output", turn.output}};
            if (turn.think > 0) made["think"] = turn.think;
            line["turns"].push_back(std::move(made));
        }
        out << line.dump() << '\n';
    }
}

int requests_of(const request_trace& trace) {
    std::size_t all = 0;
    for (const trace_conversation& one : trace) all += one.turns.size();
    return static_cast<int>(all);
}

int longest_of(const request_trace& trace) {
    int most = 0;
    for (const trace_conversation& one : trace) most = std::max(most, length_of(one));
    return most;
}

std::int64_t outputs_of(const request_trace& trace) {
    std::int64_t all = 0;
    for (const trace_conversation& one : trace) {
        for (const trace_turn& turn : one.turns) all += turn.output;
    }
    return all;
}

conversation_tokens::conversation_tokens(const trace_conversation& of, int number, int vocab_size, int seed)
    : of_(&of), vocab_size_(vocab_size) {
    const auto seeded = [&](int value) {
        return static_cast<std::uint64_t>(value) + (static_cast<std::uint64_t>(seed) << 32);
    };
    seed_ = mixed(seeded(number));
    // A system prompt has a seed that no conversation has.
    append(of.system < 0 ? seed_ : mixed(~seeded(of.system)), of.system_tokens);
}

const std::vector<int>& conversation_tokens::ask() {
    ++next_;
    append(mixed(seed_ + next_), last_turn().input);
    return tokens_;
}

void conversation_tokens::append(std::uint64_t seed, int count) {
    for (int i = 0; i < count; ++i) {
        const std::uint64_t drawn = mixed(seed ^ static_cast<std::uint64_t>(i));
        tokens_.push_back(static_cast<int>(drawn % static_cast<std::uint64_t>(vocab_size_)));
    }
}

}  // namespace imbrex::engine
