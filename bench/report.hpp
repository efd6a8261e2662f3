// Results of a benchmark: a Markdown table on stdout and, with --json FILE, the same as JSON, from which bench/plot.py
// draws an SVG.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace bench {

class report {
  public:
    // `unit` applies to all values; the first contestant of a row is the baseline of the ratios.
    report(std::string title, std::string unit) : title_(std::move(title)), unit_(std::move(unit)) {}

    struct value {
        std::string contestant;
        double number;
    };
    void add(std::string problem, std::vector<value> values) {
        rows_.push_back({std::move(problem), std::move(values)});
    }
    void note(std::string text) { notes_.push_back(std::move(text)); }

    void print() const {
        std::printf("\n### %s (%s)\n\n", title_.c_str(), unit_.c_str());
        if (rows_.empty()) return;
        std::printf("| problem |");
        for (const value& one : rows_.front().values) std::printf(" %s |", one.contestant.c_str());
        std::printf("\n| --- |");
        for (std::size_t i = 0; i < rows_.front().values.size(); ++i) std::printf(" --- |");
        std::printf("\n");
        for (const row& one : rows_) {
            std::printf("| %s |", one.problem.c_str());
            for (const value& v : one.values) {
                const double ratio = v.number / one.values.front().number;
                if (&v == &one.values.front()) {
                    std::printf(" %.*f |", digits(v.number), v.number);
                } else {
                    std::printf(" %.*f (%.2fx) |", digits(v.number), v.number, ratio);
                }
            }
            std::printf("\n");
        }
        std::printf("\n");
        for (const std::string& text : notes_) std::printf("%s\n", text.c_str());
    }

    // One element of the JSON array.
    std::string json() const {
        std::string text = "{\"title\": " + quoted(title_) + ", \"unit\": " + quoted(unit_) + ", \"rows\": [";
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            text += std::string(i == 0 ? "" : ", ") + "{\"problem\": " + quoted(rows_[i].problem) + ", \"values\": {";
            for (std::size_t j = 0; j < rows_[i].values.size(); ++j) {
                text += (j == 0 ? "" : ", ") + quoted(rows_[i].values[j].contestant) + ": " +
                        std::to_string(rows_[i].values[j].number);
            }
            text += "}}";
        }
        text += "], \"notes\": [";
        for (std::size_t i = 0; i < notes_.size(); ++i) text += (i == 0 ? "" : ", ") + quoted(notes_[i]);
        return text + "]}";
    }

  private:
    struct row {
        std::string problem;
        std::vector<value> values;
    };

    static int digits(double number) { return number >= 100 ? 0 : number >= 10 ? 1 : 2; }
    static std::string quoted(const std::string& text) {
        std::string result = "\"";
        for (const char c : text) {
            if (c == '"' || c == '\\') result += '\\';
            result += c == '\n' ? ' ' : c;
        }
        return result + '"';
    }

    std::string title_, unit_;
    std::vector<row> rows_;
    std::vector<std::string> notes_;
};

// The argument of --json; empty if absent.
inline std::string json_file(int count, char** words) {
    for (int i = 1; i + 1 < count; ++i) {
        if (std::strcmp(words[i], "--json") == 0) return words[i + 1];
    }
    return {};
}

// Whether a table is selected: all are, unless some are named on the command line.
inline bool wanted(int count, char** words, const char* name) {
    bool any = false;
    for (int i = 1; i < count; ++i) {
        if (std::strcmp(words[i], "--json") == 0) {
            ++i;
        } else if (std::strcmp(words[i], name) == 0) {
            return true;
        } else {
            any = true;
        }
    }
    return !any;
}

// Prints all reports and writes them to the file, if given. False if writing fails.
inline bool publish(const std::vector<report>& all, const std::string& file) {
    for (const report& one : all) one.print();
    if (file.empty()) return true;
    std::FILE* out = std::fopen(file.c_str(), "w");
    if (out == nullptr) {
        std::fprintf(stderr, "--json: %s cannot be written\n", file.c_str());
        return false;
    }
    std::fprintf(out, "[\n");
    for (std::size_t i = 0; i < all.size(); ++i)
        std::fprintf(out, "  %s%s\n", all[i].json().c_str(), i + 1 < all.size() ? "," : "");
    std::fprintf(out, "]\n");
    return std::fclose(out) == 0;
}

}  // namespace bench
