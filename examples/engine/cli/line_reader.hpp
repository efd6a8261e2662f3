// Reads lines in a thread of its own, so that work on the first ones begins before the input ends.
#pragma once

#include <condition_variable>
#include <deque>
#include <istream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace imbrex::engine {

class line_reader {
  public:
    // `owner` keeps the stream alive. If the reader is destroyed while the stream blocks, the thread goes on alone.
    explicit line_reader(std::istream& in, std::shared_ptr<void> owner = {})
        : state_(std::make_shared<state>()), thread_([lines = state_, &in, owner] { read(*lines, in); }) {}
    line_reader(const line_reader&) = delete;
    line_reader& operator=(const line_reader&) = delete;
    ~line_reader() {
        const bool has_ended = [&] {
            const std::lock_guard lock(state_->mutex);
            return state_->has_ended;
        }();
        if (has_ended)
            thread_.join();
        else
            thread_.detach();
    }

    enum class waiting { no, yes };
    // The next line; nothing at the end, or if there is none yet and the caller does not wait.
    std::optional<std::string> next(waiting waits) {
        std::unique_lock lock(state_->mutex);
        if (waits == waiting::yes)
            state_->changed.wait(lock, [&] { return state_->has_ended || !state_->lines.empty(); });
        if (state_->lines.empty()) return {};
        std::string line = std::move(state_->lines.front());
        state_->lines.pop_front();
        return line;
    }

    // Whether next() will give no line any more.
    bool at_end() const {
        const std::lock_guard lock(state_->mutex);
        return state_->has_ended && state_->lines.empty();
    }

  private:
    struct state {
        std::mutex mutex;
        std::condition_variable changed;
        std::deque<std::string> lines;
        bool has_ended = false;
    };

    static void read(state& to, std::istream& in) {
        for (std::string line; std::getline(in, line);) {
            const std::lock_guard lock(to.mutex);
            to.lines.push_back(std::move(line));
            to.changed.notify_one();
        }
        const std::lock_guard lock(to.mutex);
        to.has_ended = true;
        to.changed.notify_one();
    }

    std::shared_ptr<state> state_;
    std::thread thread_;
};

}  // namespace imbrex::engine
