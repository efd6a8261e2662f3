// The timeline of a checked run: its operations on memory and barriers in the order in which they took effect, and the
// late completions of asynchronous operations. A report prints the last ones of the two scopes of a hazard, side by
// side, and a trace shows them all. It is recorded only if asked for: a check finds a hazard without it, and then runs
// the schedule again.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/hw/host/state.hpp>
#include <imbrex/hw/host/trace.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace imbrex::hw {

inline std::string name_with_block(const simulated_warp& one) {
    const grid_dim at = one.block->index;
    return str_cat("block (", at.x, ", ", at.y, ", ", at.z, "), ", one.name());
}
// The name of a scope in a report about `now`: with its block if that is in another cluster.
inline std::string name_seen_from(const simulated_warp* now, const simulated_warp& one) {
    const bool near = now == nullptr || now->block->cluster == one.block->cluster;
    return near ? one.name() : name_with_block(one);
}

class timeline {
  public:
    // A scope begins an operation.
    void add(const simulated_warp& by, const char* what, source where) {
        if (where.line == 0 || std::string(what) == "label") return;
        latest_[&by] = events_.size();
        events_.push_back({&by, what, where, ++clock_, by.time, false});
    }
    // It goes on: the operation that it began takes effect only now.
    void resumed(const simulated_warp& by) {
        const auto found = latest_.find(&by);
        if (found != latest_.end()) events_[found->second].order = ++clock_;
    }
    // An operation that was pending completes.
    void completes(const simulated_warp& issuer, const char* what, source where) {
        events_.push_back({&issuer, what, where, ++clock_, issuer.time, true});
    }

    // The last events of the scopes that the hazard names, two at most, as lines of text.
    std::string text(const hazard& found, const simulated_warp* now) const {
        std::vector<std::string> columns;
        for (const hazard_location& one : found.locations) {
            if (columns.size() < 2 && std::find(columns.begin(), columns.end(), one.who) == columns.end()) {
                columns.push_back(one.who);
            }
        }
        std::vector<line> lines = last_lines(columns, now);
        if (lines.empty()) return "";
        for (std::size_t i = 0; i < found.locations.size(); ++i) {
            const event* const marked = event_at(found.locations[i], now);
            const bool first = i == 0 || found.kind == hazard_kind::deadlock;
            for (line& one : lines) {
                if (one.of == marked) one.text += first ? "  <- hazard" : "  <- conflict";
            }
        }
        std::size_t width = columns[0].size();
        for (const line& one : lines) width = std::max(width, one.column == 0 ? one.text.size() : 0);
        std::string out = "    " + columns[0];
        if (columns.size() == 2) out += std::string(width + 2 - columns[0].size(), ' ') + columns[1];
        for (const line& one : lines) {
            out += '\n';
            out += std::string(4 + (one.column == 0 ? 0 : width + 2), ' ') + one.text;
        }
        return out + "\n";
    }

    // All events as marks of a trace, and the hazard.
    void add_to(trace_writer& trace, const hazard& found, const simulated_warp* now) const {
        for (const event* one : in_order()) {
            trace.mark(one->by->block->number, one->by->name(), label(*one, now), one->time, place(one->where));
        }
        for (const hazard_location& location : found.locations) {
            const event* const one = event_at(location, now);
            if (one == nullptr) continue;
            trace.mark(one->by->block->number, one->by->name(), str_cat("hazard: ", name_of(found.kind)), one->time,
                       location.text());
        }
    }

  private:
    struct event {
        const simulated_warp* by;
        const char* what;
        source where;
        std::size_t order;
        double time;     // of the trace
        bool completes;  // late
    };
    struct line {
        const event* of;
        std::size_t column;
        std::string text;
    };
    static constexpr int most_in_a_column = 8;

    static std::string place(source where) {
        const std::string file = where.file;
        return str_cat(file.substr(file.rfind('/') + 1), ":", where.line);
    }
    static bool is_named(const simulated_warp& one, const std::string& name, const simulated_warp* now) {
        return name == name_seen_from(now, one) || name == name_with_block(one);
    }
    // A scope that does not run is inside its latest operation.
    std::string label(const event& one, const simulated_warp* now) const {
        if (one.completes) return str_cat("completes: ", one.what);
        const bool latest = &events_[latest_.at(one.by)] == &one;
        if (!latest || one.by == now || one.by->finished()) return one.what;
        return str_cat(one.by->may_go_on != nullptr ? "waits: " : "next: ", one.what);
    }
    std::vector<const event*> in_order() const {
        std::vector<const event*> all;
        for (const event& one : events_) all.push_back(&one);
        std::sort(all.begin(), all.end(), [](const event* a, const event* b) { return a->order < b->order; });
        return all;
    }

    // The last event of a location: of that operation, or else of another one in that line.
    const event* event_at(const hazard_location& location, const simulated_warp* now) const {
        const event* best = nullptr;
        bool exact = false;
        for (const event& one : events_) {
            if (one.completes || one.where.line != location.line || location.file != one.where.file) continue;
            const bool same = location.what == one.what;
            if (exact && !same) continue;
            if (best != nullptr && exact == same && one.order < best->order) continue;
            if (!is_named(*one.by, location.who, now)) continue;
            best = &one;
            exact = same;
        }
        return best;
    }

    std::vector<line> last_lines(const std::vector<std::string>& columns, const simulated_warp* now) const {
        const std::vector<const event*> all = in_order();
        std::vector<line> lines;
        int count[2] = {};
        for (auto at = all.rbegin(); at != all.rend(); ++at) {
            const event& one = **at;
            const auto found = std::find_if(columns.begin(), columns.end(),
                                            [&](const auto& name) { return is_named(*one.by, name, now); });
            if (found == columns.end()) continue;
            const std::size_t column = static_cast<std::size_t>(found - columns.begin());
            if (++count[column] > most_in_a_column) continue;
            lines.push_back({&one, column, label(one, now) + "  " + place(one.where)});
        }
        std::reverse(lines.begin(), lines.end());
        return lines;
    }

    std::vector<event> events_;
    std::map<const simulated_warp*, std::size_t> latest_;
    std::size_t clock_ = 0;
};

}  // namespace imbrex::hw
