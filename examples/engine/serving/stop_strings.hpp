// Text on its way out, up to the first stop string. What may be the beginning of one is held back until it is clear; a stop string
// is never given out, wherever the borders of tokens are.
//
//   stop "\n\nQ:"     pieces  "42.\n"  "\n"  "Q"  ": why"
//                     given   "42."    ""    ""   "", stopped
//
// The stop string that is complete first counts, and of several complete at the same place the longest, so that the result does not depend
// on how the text came in pieces.
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

    // The text that can be given out now.
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

    // What was held back, since there is no more text to come.
    std::string finish() { return std::exchange(held_, {}); }

  private:
    // Where the stop string begins that is complete first.
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

    // The length of the longest end of the text with which a stop string begins.
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
