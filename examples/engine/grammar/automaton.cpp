#include "engine/grammar/automaton.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

namespace imbrex::engine {

namespace {

std::size_t place(std::int32_t state) {
    return static_cast<std::size_t>(state);
}

struct set_hash {
    std::size_t operator()(const std::vector<std::int32_t>& set) const {
        std::size_t hash = set.size();
        for (const std::int32_t each : set) hash = (hash ^ static_cast<std::size_t>(each)) * 0x9e3779b97f4a7c15u;
        return hash ^ hash >> 32;
    }
};

// Unites neighbouring ranges with the same target.
void append_edge(std::vector<byte_edge>& edges, const byte_edge& next) {
    if (!edges.empty() && edges.back().to == next.to && edges.back().last + 1 == next.first) {
        edges.back().last = next.last;
    } else {
        edges.push_back(next);
    }
}

}  // namespace

void compile_budget::take_states(std::size_t count) {
    require(
        count <= states_, "the constraint is too large: it needs more than ", std::size_t{1} << 20,
        " states; shorter counts (maxLength, maxItems, {m,n}), fewer optional properties or a simpler pattern help");
    states_ -= count;
}

void compile_budget::take_work(std::size_t count) {
    require(count <= work_,
            "the constraint is too complex; a pattern with fewer overlapping alternatives or shorter "
            "counts, or fewer optional properties help");
    work_ -= count;
}

std::int32_t dfa::next(std::int32_t from, std::uint8_t byte) const {
    const std::vector<byte_edge>& edges = states[place(from)].edges;
    const auto found = std::ranges::lower_bound(edges, byte, {}, &byte_edge::last);
    return found != edges.end() && found->first <= byte ? found->to : -1;
}

bool dfa::matches(std::string_view text) const {
    std::int32_t at = 0;
    for (const char byte : text) {
        at = next(at, static_cast<std::uint8_t>(byte));
        if (at < 0) return false;
    }
    return states[place(at)].accepts;
}

std::int32_t nfa::add_state() {
    budget_.take_states(1);
    states_.emplace_back();
    return static_cast<std::int32_t>(states_.size()) - 1;
}

// Adds what is reached without a byte, and leaves out what only leads there: sets that differ in nothing else are one state.
// `marks` is all zero, before and after.
void nfa::close(state_set& set, std::int32_t accepting, std::vector<char>& marks) const {
    for (const std::int32_t each : set) marks[place(each)] = 1;
    for (std::size_t i = 0; i < set.size(); ++i) {
        for (const std::int32_t next : states_[place(set[i])].empty)
            if (std::exchange(marks[place(next)], 1) == 0) set.push_back(next);
    }
    for (const std::int32_t each : set) marks[place(each)] = 0;
    budget_.take_work(set.size());
    std::erase_if(set, [&](std::int32_t each) {
        const state& it = states_[place(each)];
        return each != accepting && it.edges.empty() && it.calls.empty();
    });
    std::ranges::sort(set);
}

class subset_construction {
  public:
    subset_construction(const nfa& all, std::int32_t accepting)
        : all_(all), accepting_(accepting), marks_(all.states_.size()) {}

    dfa run() {
        id_of({0});
        for (std::size_t i = 0; i < sets_.size(); ++i) {
            const nfa::state_set set = sets_[i];
            made_.states[i].accepts = std::ranges::binary_search(set, accepting_);
            add_edges(i, set);
            add_calls(i, set);
        }
        return std::move(made_);
    }

  private:
    std::int32_t id_of(nfa::state_set set) {
        std::ranges::sort(set);
        set.erase(std::unique(set.begin(), set.end()), set.end());
        all_.close(set, accepting_, marks_);
        const auto [found, is_new] = ids_.try_emplace(std::move(set), static_cast<std::int32_t>(sets_.size()));
        if (is_new) {
            all_.budget_.take_states(1);
            sets_.push_back(found->first);
            made_.states.emplace_back();
        }
        return found->second;
    }

    // Sweeps over the first bytes of ranges and the bytes behind their last ones.
    void add_edges(std::size_t from, const nfa::state_set& set) {
        std::vector<byte_edge> edges;
        for (const std::int32_t each : set) {
            const auto& more = all_.states_[place(each)].edges;
            edges.insert(edges.end(), more.begin(), more.end());
        }
        if (edges.empty()) return;
        std::array<bool, 257> border{};
        for (const byte_edge& each : edges) border[each.first] = border[each.last + 1u] = true;
        std::ranges::sort(edges, {}, &byte_edge::first);
        std::vector<byte_edge> active;
        std::size_t next = 0;
        for (unsigned byte = 0; byte < 256; ++byte) {
            if (!border[byte]) continue;
            std::erase_if(active, [&](const byte_edge& each) { return each.last < byte; });
            for (; next < edges.size() && edges[next].first == byte; ++next) active.push_back(edges[next]);
            if (active.empty()) continue;
            unsigned last = byte;
            while (last < 255 && !border[last + 1]) ++last;
            nfa::state_set to;
            for (const byte_edge& each : active) to.push_back(each.to);
            all_.budget_.take_work(to.size());
            const std::int32_t target = id_of(std::move(to));
            append_edge(made_.states[from].edges,
                        {static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(last), target});
        }
    }

    void add_calls(std::size_t from, const nfa::state_set& set) {
        std::map<std::int32_t, nfa::state_set> targets;
        for (const std::int32_t each : set)
            for (const call_edge& one : all_.states_[place(each)].calls) targets[one.rule].push_back(one.to);
        for (auto& [rule, to] : targets) {
            const std::int32_t target = id_of(std::move(to));
            made_.states[from].calls.push_back({rule, target});
        }
    }

    const nfa& all_;
    std::int32_t accepting_;
    std::vector<char> marks_;
    std::unordered_map<nfa::state_set, std::int32_t, set_hash> ids_;
    std::vector<nfa::state_set> sets_;
    dfa made_;
};

dfa nfa::determinised(std::int32_t accepting) const {
    return subset_construction(*this, accepting).run();
}

expression nothing() {
    return [](nfa& all, std::int32_t) { return all.add_state(); };
}

expression empty_text() {
    return [](nfa&, std::int32_t from) { return from; };
}

expression byte_range(std::uint8_t first, std::uint8_t last) {
    return [=](nfa& all, std::int32_t from) {
        const std::int32_t to = all.add_state();
        all.add_edge(from, first, last, to);
        return to;
    };
}

expression literal(std::string text) {
    return [text = std::move(text)](nfa& all, std::int32_t from) {
        for (const char each : text) {
            const auto byte = static_cast<std::uint8_t>(each);
            const std::int32_t to = all.add_state();
            all.add_edge(from, byte, byte, to);
            from = to;
        }
        return from;
    };
}

expression any_of(std::vector<std::string> texts) {
    std::ranges::sort(texts);
    return [texts = std::move(texts)](nfa& all, std::int32_t from) {
        const std::int32_t end = all.add_state();
        std::vector<std::int32_t> path{from};  // of the last text
        std::string_view last;
        for (const std::string_view text : texts) {
            const auto shared = static_cast<std::size_t>(std::ranges::mismatch(last, text).in1 - last.begin());
            path.resize(shared + 1);
            for (std::size_t i = shared; i < text.size(); ++i) {
                const auto byte = static_cast<std::uint8_t>(text[i]);
                path.push_back(all.add_state());
                all.add_edge(path[i], byte, byte, path.back());
            }
            all.add_empty_edge(path.back(), end);
            last = text;
        }
        return end;
    };
}

expression concatenation(std::vector<expression> parts) {
    return [parts = std::move(parts)](nfa& all, std::int32_t from) {
        for (const expression& each : parts) from = each(all, from);
        return from;
    };
}

expression choice(std::vector<expression> alternatives) {
    return [alternatives = std::move(alternatives)](nfa& all, std::int32_t from) {
        const std::int32_t end = all.add_state();
        for (const expression& each : alternatives) all.add_empty_edge(each(all, from), end);
        return end;
    };
}

expression optional(expression part) {
    return choice({std::move(part), empty_text()});
}

expression repeated(expression part, int least, int most) {
    return [=](nfa& all, std::int32_t from) {
        for (int i = 0; i < least; ++i) from = part(all, from);
        if (most == unlimited) {
            const std::int32_t loop = all.add_state();
            all.add_empty_edge(from, loop);
            all.add_empty_edge(part(all, loop), loop);
            return loop;
        }
        const std::int32_t end = all.add_state();
        all.add_empty_edge(from, end);
        for (int i = least; i < most; ++i) {
            const std::int32_t start = all.add_state();  // a part that matches nothing returns the state before it
            all.add_empty_edge(from, start);
            from = part(all, start);
            all.add_empty_edge(from, end);
        }
        return end;
    };
}

expression call(std::int32_t rule) {
    return [=](nfa& all, std::int32_t from) {
        const std::int32_t to = all.add_state();
        all.add_call(from, rule, to);
        return to;
    };
}

expression matching(dfa automaton) {
    return [shared = std::make_shared<const dfa>(std::move(automaton))](nfa& all, std::int32_t from) {
        std::vector<std::int32_t> states;
        for (std::size_t i = 0; i < shared->states.size(); ++i) states.push_back(all.add_state());
        const std::int32_t end = all.add_state();
        if (states.empty()) return end;
        all.add_empty_edge(from, states.front());
        for (std::size_t i = 0; i < states.size(); ++i) {
            const dfa::state& each = shared->states[i];
            for (const byte_edge& edge : each.edges)
                all.add_edge(states[i], edge.first, edge.last, states[place(edge.to)]);
            for (const call_edge& edge : each.calls) all.add_call(states[i], edge.rule, states[place(edge.to)]);
            if (each.accepts) all.add_empty_edge(states[i], end);
        }
        return end;
    };
}

dfa determinised(const expression& what, compile_budget& budget) {
    nfa all(budget);
    return all.determinised(what(all, 0));
}

namespace {

// Pairs of states; -1 in place of a state of `b` that does not exist. `both`: texts of both, else of `a` alone.
dfa product(const dfa& a, const dfa& b, bool both, compile_budget& budget) {
    dfa made;
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> ids;
    std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
    const auto id_of = [&](std::int32_t left, std::int32_t right) {
        const auto [found, is_new] = ids.try_emplace({left, right}, static_cast<std::int32_t>(pairs.size()));
        if (is_new) {
            budget.take_states(1);
            pairs.emplace_back(left, right);
            made.states.emplace_back();
        }
        return found->second;
    };
    id_of(0, 0);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        const auto [left, right] = pairs[i];
        const bool accepted = right >= 0 && b.states[place(right)].accepts;
        made.states[i].accepts = a.states[place(left)].accepts && accepted == both;
        for (const byte_edge& edge : a.states[place(left)].edges) {
            for (unsigned byte = edge.first; byte <= edge.last; ++byte) {
                const std::int32_t other = right < 0 ? -1 : b.next(right, static_cast<std::uint8_t>(byte));
                if (both && other < 0) continue;
                const std::int32_t target = id_of(edge.to, other);
                append_edge(made.states[i].edges,
                            {static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte), target});
            }
            budget.take_work(edge.last - edge.first + std::size_t{1});
        }
    }
    return made;
}

}  // namespace

dfa intersection(const dfa& a, const dfa& b, compile_budget& budget) {
    return product(a, b, true, budget);
}
dfa difference(const dfa& a, const dfa& b, compile_budget& budget) {
    return product(a, b, false, budget);
}

}  // namespace imbrex::engine
