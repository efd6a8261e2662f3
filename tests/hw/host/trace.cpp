// The trace: a file that a trace viewer can read, one row for each scope and unit of each block, and the visible
// overlap of a pipeline.
#include <doctest/doctest.h>

#include <imbrex/imbrex.hpp>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace imbrex;

// A minimal JSON reader for traces: every value as its text, objects as maps.
class json_reader {
  public:
    using object = std::map<std::string, std::string>;

    explicit json_reader(std::string text) : text_(std::move(text)) {
        whole_ = value(0) && (skip(), at_ == text_.size());
    }

    bool whole() const { return whole_; }
    // The objects two levels down: the events.
    const std::vector<object>& events() const { return events_; }

  private:
    void skip() {
        while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    }
    bool take(char letter) {
        skip();
        if (at_ >= text_.size() || text_[at_] != letter) return false;
        ++at_;
        return true;
    }
    bool string(std::string& out) {
        if (!take('"')) return false;
        while (at_ < text_.size() && text_[at_] != '"') {
            if (text_[at_] == '\\') ++at_;
            out += text_[at_++];
        }
        return take('"');
    }
    bool value(int depth) {
        skip();
        if (at_ >= text_.size()) return false;
        if (text_[at_] == '{') return members(depth);
        if (text_[at_] == '[') {
            ++at_;
            if (take(']')) return true;
            do {
                if (!value(depth + 1)) return false;
            } while (take(','));
            return take(']');
        }
        std::string ignored;
        if (text_[at_] == '"') return string(ignored);
        const std::size_t begin = at_;
        while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '.' ||
                                      text_[at_] == '-' || text_[at_] == '+')) {
            ++at_;
        }
        return at_ > begin;
    }
    bool members(int depth) {
        take('{');
        object made;
        if (!take('}')) {
            do {
                std::string name;
                if (!string(name) || !take(':')) return false;
                skip();
                const std::size_t begin = at_;
                if (!value(depth + 1)) return false;
                made[name] = text_.substr(begin, at_ - begin);
            } while (take(','));
            if (!take('}')) return false;
        }
        if (depth == 2) events_.push_back(std::move(made));
        return true;
    }

    std::string text_;
    std::size_t at_ = 0;
    bool whole_ = false;
    std::vector<object> events_;
};

struct interval {
    double begin, end;
};

struct picture {
    std::set<std::string> blocks;
    std::map<std::string, std::vector<interval>> rows;  // by name, of block 0
};

picture read_picture(const std::string& file) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    const json_reader json(text.str());
    REQUIRE(json.whole());
    REQUIRE(!json.events().empty());
    picture made;
    std::map<std::string, std::string> names;
    for (const auto& event : json.events()) {
        made.blocks.insert(event.at("pid"));
        const std::string row = event.at("pid") + "/" + event.at("tid");
        if (event.at("ph") == "\"M\"") {
            names[row] = event.at("args");
        } else {
            CHECK(event.at("ph") == "\"X\"");
            const double begin = std::atof(event.at("ts").c_str());
            const double duration = std::atof(event.at("dur").c_str());
            CHECK(duration > 0);
            REQUIRE(names.count(row) == 1);
            if (event.at("pid") == "0") made.rows[names[row]].push_back({begin, begin + duration});
        }
    }
    return made;
}

const std::vector<interval>& row_named(const picture& made, const std::string& name) {
    for (const auto& [row, intervals] : made.rows) {
        if (row.find("\"" + name + "\"") != std::string::npos) return intervals;
    }
    FAIL("the trace has no row named ", name);
    return made.rows.begin()->second;
}

bool overlap(const std::vector<interval>& some, const std::vector<interval>& others) {
    for (const interval& a : some) {
        for (const interval& b : others) {
            if (a.begin < b.end && b.begin < a.end) return true;
        }
    }
    return false;
}

template <int Stages>
struct product_kernel {
    static constexpr int warps = 8;
    using operand = shared_tile<bf16, 64, 64>;
    struct arguments {
        tma_tensor<operand, 2> in;
        matrix_view<float> out;
    };
    struct shared_memory {
        pipeline<operand, Stages> ring;
    };
    template <class Block>
    static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        for (int i = 0; i < 8; ++i) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        warpgroup_tile<float, 64, 64> sum;
                        fill(self, sum, 0.0f);
                        auto full = smem.ring.consumer(self);
                        for (int i = 0; i < 8; ++i) {
                            auto stage = full.wait();
                            mma_ab(self, sum, *stage, *stage);
                        }
                        store(self, args.out.at(0, 0), sum);
                    }));
    }
};

template <class Kernel>
picture trace_of(grid_dim grid) {
    std::vector<bf16> in(8 * 64 * 64, bf16(1.0f));
    std::vector<float> out(64 * 64);
    const std::string file = (std::filesystem::temp_directory_path() /
                              ("imbrex_trace_" + std::to_string(reinterpret_cast<std::uintptr_t>(&in)) + ".json"))
                                 .string();
    host_options options;
    options.trace_file = file;
    host::launch<Kernel>(
        grid, {make_tma_tensor<typename Kernel::operand>(matrix(in.data(), 8 * 64, 64)), matrix(out.data(), 64, 64)},
        options);
    picture made = read_picture(file);
    std::remove(file.c_str());
    CHECK(out[0] == 8 * 64.0f);
    return made;
}

TEST_CASE("a trace has a row for each role and unit, and all blocks of the grid") {
    const picture made = trace_of<product_kernel<3>>({2, 2, 1});
    CHECK(made.blocks == std::set<std::string>{"0", "1", "2", "3"});
    CHECK(row_named(made, "TMA").size() == 8);
    CHECK(row_named(made, "tensor cores").size() == 8);
    CHECK(!row_named(made, "producer").empty());
    CHECK(!row_named(made, "consumer").empty());
}

TEST_CASE("a pipeline of several stages overlaps copies and products, one of a single stage does not") {
    const picture three = trace_of<product_kernel<3>>({1});
    CHECK(overlap(row_named(three, "TMA"), row_named(three, "tensor cores")));
    const picture one = trace_of<product_kernel<1>>({1});
    CHECK(!overlap(row_named(one, "TMA"), row_named(one, "tensor cores")));
    CHECK(row_named(three, "tensor cores").back().end < row_named(one, "tensor cores").back().end);
}

TEST_CASE("any name of a role leaves the trace readable") {
    hw::trace_writer writer;
    writer.enable();
    writer.record(0, "a \"quoted\\ role\n", "work", 0, 1);
    const std::string file = (std::filesystem::temp_directory_path() / "imbrex_trace_names.json").string();
    writer.write(file);
    CHECK(read_picture(file).rows.size() == 1);
    std::remove(file.c_str());
}

TEST_CASE("rejects a trace file that cannot be written") {
    hw::trace_writer writer;
    CHECK_THROWS_AS(writer.write("/no such folder/trace.json"), invalid_argument);
}

}  // namespace
