// Stop strings in streamed text.
#include "engine/serving/stop_strings.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "random_below.hpp"

using imbrex::engine::stop_string_filter;

namespace {

struct outcome {
    std::string text;
    bool stopped;
    bool operator==(const outcome&) const = default;
};

// Reference over the complete text: the first end of a stop string, and the longest that ends there.
outcome expected(const std::string& text, const std::vector<std::string>& stops) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::size_t longest = 0;
        for (const std::string& stop : stops) {
            if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
        }
        if (longest > 0) return {text.substr(0, end - longest), true};
    }
    return {text, false};
}

}  // namespace

TEST_CASE("Emits text without stop strings at once") {
    stop_string_filter stream;
    CHECK(stream.push("one ") == "one ");
    CHECK(stream.push("") == "");
    CHECK(stream.push("two") == "two");
    CHECK(stream.finish() == "");
    CHECK_FALSE(stream.stopped());
}

TEST_CASE("Never emits a stop string split across tokens") {
    stop_string_filter stream({"\n\nQ:"});
    CHECK(stream.push("42.\n") == "42.");
    CHECK(stream.push("\n") == "");
    CHECK(stream.push("Q") == "");
    CHECK_FALSE(stream.stopped());
    CHECK(stream.push(": why") == "");
    CHECK(stream.stopped());
    CHECK(stream.push("more") == "");
    CHECK(stream.finish() == "");
}

TEST_CASE("Emits held-back text once it cannot be a stop string") {
    stop_string_filter stream({"aab"});
    CHECK(stream.push("xa") == "x");
    CHECK(stream.push("a") == "");
    CHECK(stream.push("a") == "a");  // "aa" may still become "aab"
    CHECK(stream.push("c") == "aac");
    CHECK(stream.push("a") == "");
    CHECK(stream.finish() == "a");  // no more text: not a stop string
}

TEST_CASE("Uses the stop string that is complete first, the longest on ties") {
    CHECK(stop_string_filter({"abcd", "bc"}).push("xabcd") == "xa");
    CHECK(stop_string_filter({"bc", "abc"}).push("xabcd") == "x");
    CHECK(stop_string_filter({"stop", "halt"}).push("halt stop") == "");
}

TEST_CASE("Rejects an empty stop string") {
    CHECK_THROWS_WITH_AS(stop_string_filter({"a", ""}), "stop: a stop string is empty; it must have a character",
                         imbrex::invalid_argument);
}

TEST_CASE("The result does not depend on the split, and only possible stop strings are held back") {
    std::mt19937 random(1);
    const imbrex_test::random_below below(random);
    const auto word = [&](int length) {
        std::string made;
        for (int i = 0; i < length; ++i) made += static_cast<char>('a' + below(3));
        return made;
    };
    int stops_met = 0;
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::string> stops(static_cast<std::size_t>(below(4)));
        for (std::string& stop : stops) stop = word(1 + below(6));
        const std::string text = word(below(30));
        stop_string_filter stream(stops);
        outcome got{"", false};
        for (std::size_t at = 0; at < text.size() && !stream.stopped();) {
            const std::size_t length = static_cast<std::size_t>(below(6));
            got.text += stream.push(text.substr(at, length));
            at = std::min(at + length, text.size());
            if (stream.stopped()) break;
            const std::string held = text.substr(got.text.size(), at - got.text.size());
            bool may_stop = held.empty();
            for (const std::string& stop : stops) may_stop |= stop.starts_with(held);
            REQUIRE(may_stop);
        }
        got.stopped = stream.stopped();
        got.text += stream.finish();
        stops_met += got.stopped;
        REQUIRE(got == expected(text, stops));
    }
    CHECK(stops_met > 5000);
}
