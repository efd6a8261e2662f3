#include "engine/grammar/text_matcher.hpp"

#include <algorithm>
#include <utility>

namespace imbrex::engine {

text_matcher::text_matcher(const grammar& rules) : rules_(&rules) {
    add({rules.start()});
    std::ranges::sort(next_);
    configurations_ = std::move(next_);
    next_.clear();
}

bool text_matcher::push(std::string_view bytes) {
    const std::vector<configuration> before = configurations_;
    const bool could_end = may_end_;
    for (const char byte : bytes) {
        if (push(static_cast<std::uint8_t>(byte))) continue;
        configurations_ = before;
        may_end_ = could_end;
        return false;
    }
    return true;
}

bool text_matcher::push(std::uint8_t byte) {
    next_.clear();
    may_end_ = false;
    for (const configuration& each : configurations_) {
        const std::int32_t to = rules_->next(each.state(), byte);
        if (to < 0) continue;
        std::vector<std::int32_t> stack = each.stack;
        stack.back() = to;
        add(std::move(stack));
    }
    std::ranges::sort(next_);
    next_.erase(std::unique(next_.begin(), next_.end()), next_.end());
    std::swap(configurations_, next_);
    return !configurations_.empty() || may_end_;
}

// Adds a configuration and all that calls and returns make of it.
void text_matcher::add(std::vector<std::int32_t> stack) {
    if (next_.size() >= max_configurations) return;
    const std::int32_t state = stack.back();
    const auto room = static_cast<std::int32_t>(rules_->max_depth()) - static_cast<std::int32_t>(stack.size());
    if (rules_->at(state).height > room) return;
    for (const call_edge& edge : rules_->calls_of(state)) {
        std::vector<std::int32_t> called = stack;
        if (rules_->at(edge.to).only_accepts) {
            called.pop_back();
        } else {
            if (rules_->at(edge.to).height > room) continue;
            called.back() = edge.to;
        }
        called.push_back(edge.rule);
        add(std::move(called));
    }
    if (rules_->at(state).accepts) {
        if (stack.size() == 1) {
            may_end_ = true;
        } else {
            std::vector<std::int32_t> returned(stack.begin(), stack.end() - 1);
            add(std::move(returned));
        }
    }
    if (rules_->at(state).num_edges > 0) next_.push_back({std::move(stack)});
}

}  // namespace imbrex::engine
