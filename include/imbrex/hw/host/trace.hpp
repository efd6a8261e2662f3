// A timeline of a kernel as a Chrome/Perfetto trace (open it in ui.perfetto.dev or chrome://tracing): when each scope
// computed, copied and waited. The host world runs one fiber at a time, so wall time would show no overlap. Instead
// each scope has a clock in cycles of a nominal Hopper SM. TMA and the tensor cores are separate rows that serve one
// request at a time; a wait ends when its operation is done. The rates below are nominal: the timeline shows the shape
// of a schedule and its stalls, not its speed.
#pragma once

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace imbrex::hw {

struct nominal_rates {
    static constexpr double copy_bytes = 32;           // per cycle, through TMA or cp.async
    static constexpr double copy_latency = 500;        // cycles until the first byte lands
    static constexpr double tensor_operations = 4096;  // per cycle, a multiply-add counts two; 16-bit operands
    static constexpr double lane_operations = 1;       // per cycle and lane
    static constexpr double issue = 20;                // cycles to issue an asynchronous operation
};

// A unit of an SM that serves one request at a time.
struct shared_unit {
    double free_at = 0;

    // Serves a request issued at `asked`; returns its end, and sets `begin` to its start.
    double serve(double asked, double duration, double& begin) {
        begin = std::max(asked, free_at);
        free_at = begin + duration;
        return free_at;
    }
};

class trace_writer {
  public:
    bool enabled() const { return enabled_; }
    void enable() { enabled_ = true; }

    void record(int block, const std::string& row, const std::string& what, double begin, double end) {
        if (enabled_ && end > begin) events_.push_back({block, row, what, begin, end, {}});
    }
    // An event without a duration, with a text that the viewer shows if it is selected.
    void mark(int block, const std::string& row, const std::string& what, double at, const std::string& detail) {
        if (enabled_) events_.push_back({block, row, what, at, at, detail});
    }

    // Appends the events of another writer.
    void add(const trace_writer& other) { events_.insert(events_.end(), other.events_.begin(), other.events_.end()); }

    void write(const std::string& file) const {
        std::FILE* out = std::fopen(file.c_str(), "w");
        require(out != nullptr, "trace_file: cannot write ", file);
        std::fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [", out);
        const char* separator = "\n";
        std::vector<std::string> rows;
        for (const event& e : events_) {
            const std::string row = std::to_string(e.block) + "/" + e.row;
            auto found = std::find(rows.begin(), rows.end(), row);
            const int number = static_cast<int>(found - rows.begin());
            if (found == rows.end()) {
                rows.push_back(row);
                std::fprintf(out, "%s{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, ", separator,
                             e.block, number);
                std::fprintf(out, "\"args\": {\"name\": \"%s\"}}", escaped(e.row).c_str());
                separator = ",\n";
            }
            const bool lasts = e.end > e.begin;
            std::fprintf(out, "%s{\"ph\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.12g, ",
                         separator, lasts ? "X" : "i", escaped(e.what).c_str(), e.block, number, e.begin / 1000);
            if (lasts) {
                std::fprintf(out, "\"dur\": %.12g}", (e.end - e.begin) / 1000);
            } else {
                std::fprintf(out, "\"s\": \"t\", \"args\": {\"at\": \"%s\"}}", escaped(e.detail).c_str());
            }
            separator = ",\n";
        }
        std::fputs("\n]}\n", out);
        const bool written = std::ferror(out) == 0;
        require((std::fclose(out) == 0) && written, "trace_file: could not write all of ", file);
    }

  private:
    struct event {
        int block;
        std::string row;
        std::string what;
        double begin, end;
        std::string detail;  // of a mark, which has no duration
    };

    // Kernels name their roles, with any characters.
    static std::string escaped(const std::string& name) {
        std::string out;
        for (const char letter : name) {
            if (letter == '"' || letter == '\\') out += '\\';
            out += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
        }
        return out;
    }

    bool enabled_ = false;
    std::vector<event> events_;
};

}  // namespace imbrex::hw
