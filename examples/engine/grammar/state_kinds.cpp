#include "engine/grammar/state_kinds.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <utility>

namespace imbrex::engine {

namespace {

constexpr std::size_t max_described_states = 64;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;  // an edge of byte 0 changes the hash 0, too
    return hash ^ hash >> 29;
}

// Partition refinement (Moore): each round divides states of a kind whose successors are of different kinds. Only states
// before one that changed its kind are looked at again. Kinds are compared by 64-bit hashes.
class refinement {
  public:
    explicit refinement(const grammar& rules)
        : rules_(rules), kinds_(rules.num_states()), predecessors_(rules.num_states()), waits_(rules.num_states()) {
        for (std::int32_t state = 0; state < size(); ++state) {
            for (const byte_edge& edge : rules.edges_of(state)) predecessors_[place(edge.to)].push_back(state);
            for (const call_edge& edge : rules.calls_of(state)) predecessors_[place(edge.to)].push_back(state);
        }
        std::unordered_map<std::uint64_t, std::int32_t> numbers;
        for (std::int32_t state = 0; state < size(); ++state) {
            const auto [found, is_new] = numbers.try_emplace(signature(state, false), num_kinds());
            if (is_new) members_.push_back(0);
            kinds_[place(state)] = found->second;
            ++members_[place(found->second)];
        }
        for (std::int32_t state = 0; state < size(); ++state) dirty_.push_back(state);
    }

    std::vector<std::int32_t> run(int rounds) && {
        for (int round = 0; round < rounds && !dirty_.empty(); ++round) refine();
        return std::move(kinds_);
    }

  private:
    static std::size_t place(std::int32_t number) { return static_cast<std::size_t>(number); }
    std::int32_t size() const { return static_cast<std::int32_t>(kinds_.size()); }
    std::int32_t num_kinds() const { return static_cast<std::int32_t>(members_.size()); }

    // With the kinds of its successors, or without.
    std::uint64_t signature(std::int32_t state, bool with_kinds) const {
        const grammar::state& it = rules_.at(state);
        std::uint64_t hash = mixed(it.accepts, static_cast<std::uint64_t>(it.height));
        for (const byte_edge& edge : rules_.edges_of(state)) {
            hash = mixed(hash, edge.first * 256u + edge.last);
            if (with_kinds) hash = mixed(hash, static_cast<std::uint64_t>(kinds_[place(edge.to)]));
        }
        for (const call_edge& edge : rules_.calls_of(state)) {
            hash = mixed(hash, static_cast<std::uint64_t>(edge.rule) + 65536);
            if (with_kinds) hash = mixed(hash, static_cast<std::uint64_t>(kinds_[place(edge.to)]));
        }
        return hash;
    }

    // The states of a kind that are not dirty keep it; without any, the largest group does.
    void refine() {
        std::map<std::pair<std::int32_t, std::uint64_t>, std::vector<std::int32_t>> groups;
        std::unordered_map<std::int32_t, std::int32_t> dirty_members;
        for (const std::int32_t state : dirty_) {
            waits_[place(state)] = 0;
            groups[{kinds_[place(state)], signature(state, true)}].push_back(state);
            ++dirty_members[kinds_[place(state)]];
        }
        std::vector<std::int32_t> changed;
        for (auto first = groups.begin(); first != groups.end();) {
            const std::int32_t kind = first->first.first;
            auto last = first, largest = first;
            for (; last != groups.end() && last->first.first == kind; ++last)
                if (last->second.size() > largest->second.size()) largest = last;
            const bool all_dirty = dirty_members[kind] == members_[place(kind)];
            const auto known = signatures_.find(kind);
            const bool keeps_known = !all_dirty && known != signatures_.end();
            for (auto each = first; each != last; ++each) {
                const bool keeps = keeps_known ? each->first.second == known->second : all_dirty && each == largest;
                if (keeps) {
                    signatures_[kind] = each->first.second;
                } else {
                    divide(kind, each->second, each->first.second, changed);
                }
            }
            first = last;
        }
        for (const auto& [state, kind] : new_kinds_) kinds_[place(state)] = kind;
        new_kinds_.clear();
        dirty_.clear();
        for (const std::int32_t state : changed)
            for (const std::int32_t before : predecessors_[place(state)])
                if (std::exchange(waits_[place(before)], 1) == 0) dirty_.push_back(before);
    }

    void divide(std::int32_t kind, const std::vector<std::int32_t>& states, std::uint64_t signature,
                std::vector<std::int32_t>& changed) {
        const std::int32_t number = num_kinds();
        members_.push_back(static_cast<std::int32_t>(states.size()));
        members_[place(kind)] -= static_cast<std::int32_t>(states.size());
        signatures_[number] = signature;
        for (const std::int32_t state : states) new_kinds_.emplace_back(state, number);
        changed.insert(changed.end(), states.begin(), states.end());
    }

    const grammar& rules_;
    std::vector<std::int32_t> kinds_, members_;  // members: the number of states of a kind
    std::vector<std::vector<std::int32_t>> predecessors_;
    std::unordered_map<std::int32_t, std::uint64_t> signatures_;  // of the states of a kind, when they were last seen
    std::vector<std::pair<std::int32_t, std::int32_t>> new_kinds_;
    std::vector<std::int32_t> dirty_;
    std::vector<char> waits_;  // it is in dirty_
};

}  // namespace

std::vector<std::int32_t> kinds_of_states(const grammar& rules, int bytes) {
    return refinement(rules).run(bytes);
}

std::string description_of_state(const grammar& rules, std::int32_t state) {
    std::map<std::int32_t, std::size_t> numbers{{state, 0}};
    std::vector<std::int32_t> found{state};
    std::string text;
    for (std::size_t i = 0; i < found.size(); ++i) {
        const grammar::state& it = rules.at(found[i]);
        if (it.num_calls > 0 || it.height > 0 || found.size() > max_described_states) return {};
        text += it.accepts ? 'A' : '-';
        for (const byte_edge& edge : rules.edges_of(found[i])) {
            const auto [known, is_new] = numbers.try_emplace(edge.to, found.size());
            if (is_new) found.push_back(edge.to);
            text += std::to_string(edge.first) + ' ' + std::to_string(edge.last) + ' ' + std::to_string(known->second) +
                    ',';
        }
    }
    return text;
}

}  // namespace imbrex::engine
