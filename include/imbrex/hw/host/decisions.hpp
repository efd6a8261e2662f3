// A schedule as a list of decisions: where it departs from the default. By default an asynchronous operation completes
// when it is issued, a scope runs until it waits, ends or spins, and then the next scope in the order of creation runs.
// A decision is a preemption (another scope runs, or an operation completes, after a given step of a scope) or a late
// completion (an operation does not complete when it is issued, but when no scope can run or a wait asks for it). It
// names scopes and operations by their order of creation, so it keeps its meaning when other decisions are removed.
//
//   17: 2@5>3, 1.0, 2@9>1.0      seed 17, which determines order and residency of clusters
//       2@5>3                    after step 5 of scope 2, scope 3 runs
//       1.0                      operation 0 of scope 1 completes late
//       2@9>1.0                  after step 9 of scope 2, operation 0 of scope 1 completes
//
// 2@5+1>3 means: after step 5 of scope 2 and one completion; 1/2@5>3: in kernel 1 of the stream; @0>3: at the start.
#pragma once

#include <imbrex/core/error.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace imbrex {

struct schedule_decision {
    int kernel = 0;       // in the stream
    int after = -1;       // a preemption: the scope that ran before; -1: none
    int step = -1;        // the number of its steps; -1: a late completion
    int completions = 0;  // operations that completed since
    int scope = 0;        // runs next, or has issued the operation
    int operation = -1;   // that completes next, or late; -1: the scope runs

    bool is_late_completion() const { return step < 0; }
    friend bool operator==(const schedule_decision&, const schedule_decision&) = default;

    std::string text() const {
        std::string out = kernel > 0 ? str_cat(kernel, "/") : "";
        if (!is_late_completion()) {
            if (after >= 0) out += str_cat(after);
            out += str_cat("@", step);
            if (completions > 0) out += str_cat("+", completions);
            out += ">";
        }
        out += str_cat(scope);
        return operation < 0 ? out : out + str_cat(".", operation);
    }
};

// A seed and the decisions of a run.
struct replayed_schedule {
    std::uint64_t seed = 0;
    std::vector<schedule_decision> decisions;

    std::string text() const {
        std::string out = str_cat(seed, ":");
        for (std::size_t i = 0; i < decisions.size(); ++i) out += (i == 0 ? " " : ", ") + decisions[i].text();
        return out;
    }

    // Throws invalid_argument if the text is not of this form.
    static replayed_schedule parse(const std::string& text) {
        const char* at = text.c_str();
        const auto digit = [&] { return *at >= '0' && *at <= '9'; };
        const auto fail = [&] {
            require(false, "replay: \"", text, "\" is not a schedule: unexpected character at ", at - text.c_str());
        };
        const auto number = [&] {
            if (!digit()) fail();
            char* end = nullptr;
            const std::uint64_t value = std::strtoull(at, &end, 10);
            at = end;
            return value;
        };
        const auto skip = [&](char letter) { return *at == letter && (++at, true); };
        const auto small = [&] { return static_cast<int>(number()); };

        replayed_schedule made;
        made.seed = number();
        if (!skip(':')) fail();
        while (*at != '\0') {
            while (skip(' ') || skip(',')) {}
            schedule_decision one;
            int first = digit() ? small() : -1;
            if (first >= 0 && skip('/')) {
                one.kernel = first;
                first = digit() ? small() : -1;
            }
            if (skip('@')) {
                one.after = first;
                one.step = small();
                if (skip('+')) one.completions = small();
                if (!skip('>')) fail();
                first = small();
            }
            one.scope = first;
            if (skip('.')) one.operation = small();
            if (first < 0 || (one.is_late_completion() && one.operation < 0)) fail();
            made.decisions.push_back(one);
        }
        return made;
    }
};

// What a run reports about its schedule: maxima over the kernels of a stream, and its decisions if they are wanted.
struct schedule_record {
    bool keeps_decisions = false;
    int threads = 0;  // scopes, queues of operations, and operations without a queue
    int steps = 0;
    std::vector<schedule_decision> decisions = {};
};

}  // namespace imbrex
