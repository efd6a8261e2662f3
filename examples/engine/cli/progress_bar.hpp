// A progress bar: redrawn in place on a terminal, occasional plain lines elsewhere (a log, a file). Short operations
// show nothing.
//
//   loading [############............]  51 %   512 of 988 MB   3 s left
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

#include "engine/serving/statistics.hpp"

namespace imbrex::engine {

class progress_bar {
  public:
    using seconds_clock = std::function<double()>;

    // Numbers are divided by `scale` and followed by the unit.
    progress_bar(std::ostream& out, bool is_terminal, std::string title, std::string unit, std::int64_t scale = 1,
                 seconds_clock clock = statistics::steady_seconds)
        : out_(out),
          is_terminal_(is_terminal),
          title_(std::move(title)),
          unit_(std::move(unit)),
          scale_(scale),
          clock_(std::move(clock)),
          began_(clock_()),
          shown_(began_) {}
    progress_bar(const progress_bar&) = delete;
    progress_bar& operator=(const progress_bar&) = delete;
    ~progress_bar() { clear(); }

    void update(std::int64_t done, std::int64_t all) {
        const double now = clock_();
        if (now - shown_ < (is_terminal_ ? 0.1 : 5.0) || all <= 0 || (!is_terminal_ && done == done_)) return;
        shown_ = now;
        done_ = done;
        out_ << (is_terminal_ ? "\r" : "") << line(done, all, now) << (is_terminal_ ? "\x1b[K" : "\n") << std::flush;
        drawn_ = is_terminal_;
    }

    // Erases the bar; the next output begins on its line.
    void clear() {
        if (std::exchange(drawn_, false)) out_ << "\r\x1b[K" << std::flush;
    }

  private:
    std::string line(std::int64_t done, std::int64_t all, double now) const {
        constexpr int width = 24;
        const double part = std::clamp(static_cast<double>(done) / static_cast<double>(all), 0.0, 1.0);
        const int full = static_cast<int>(part * width);
        const std::string bar = std::string(static_cast<std::size_t>(full), '#') + std::string(width - full, '.');
        char text[160];
        std::snprintf(text, sizeof text, "%s [%s] %3d %%   %lld of %lld %s", title_.c_str(), bar.c_str(),
                      static_cast<int>(part * 100), static_cast<long long>(done / scale_),
                      static_cast<long long>(all / scale_), unit_.c_str());
        std::string result = text;
        if (part > 0.02 && part < 1) {
            std::snprintf(text, sizeof text, "   %.0f s left", (now - began_) * (1 - part) / part);
            result += text;
        }
        return result;
    }

    std::ostream& out_;
    bool is_terminal_;
    std::string title_, unit_;
    std::int64_t scale_;
    seconds_clock clock_;
    double began_, shown_;
    std::int64_t done_ = -1;  // last value shown
    bool drawn_ = false;
};

}  // namespace imbrex::engine
