// Streams text up to the first stop string. Text that may be the start of a stop string is held back until it is
// decided; a stop string is never emitted, however tokens split it.
//
//   stop "\n\nQ:"     input   "42.\n"  "\n"  "Q"  ": why"
//                     output  "42."    ""    ""   "", stopped
//
// The stop string that is complete first wins; of several that end at the same position, the longest. The result does
// not depend on how the text is split.
#pragma once

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace imbrex::engine {

class stop_string_filter {
  public:
    explicit stop_string_filter(std::vector<std::string> stops = {}) : stops_(std::move(stops)) {
        for (const std::string& stop : stops_)
            require(!stop.empty(), "stop: a stop string is empty; it must have a character");
    }

    bool stopped() const { return stopped_; }

    // Returns the text that can be emitted now.
    std::string push(std::string_view piece) {
        if (stopped_) return {};
        held_ += piece;
        if (const std::size_t begin = first_stop(); begin != std::string::npos) {
            stopped_ = true;
            held_.resize(begin);
            return std::exchange(held_, {});
        }
        const std::size_t safe = held_.size() - open_end();
        std::string given = held_.substr(0, safe);
        held_.erase(0, safe);
        return given;
    }

    // Returns the held-back text at the end.
    std::string finish() { return std::exchange(held_, {}); }

  private:
    // The start of the stop string that is complete first.
    std::size_t first_stop() const {
        std::size_t begin = std::string::npos;
        std::size_t end = std::string::npos;
        for (const std::string& stop : stops_) {
            const std::size_t found = held_.find(stop);
            if (found == std::string::npos) continue;
            if (std::pair(found + stop.size(), found) < std::pair(end, begin)) {
                begin = found;
                end = found + stop.size();
            }
        }
        return begin;
    }

    // The length of the longest suffix of the text that is a prefix of a stop string.
    std::size_t open_end() const {
        std::size_t longest = 0;
        for (const std::string& stop : stops_) {
            for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > longest; --length) {
                if (held_.ends_with(std::string_view(stop).substr(0, length))) longest = length;
            }
        }
        return longest;
    }

    std::vector<std::string> stops_;
    std::string held_;
    bool stopped_ = false;
};

}  // namespace imbrex::engine
