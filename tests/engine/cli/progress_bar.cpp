#include "engine/cli/progress_bar.hpp"

#include <doctest/doctest.h>

#include <sstream>

namespace imbrex::engine::test {

TEST_CASE("Redraws the bar on a terminal and erases it") {
    double now = 100;
    std::ostringstream out;
    {
        progress_bar bar(out, true, "loading", "MB", 1000000, [&] { return now; });
        bar.update(1, 8);
        CHECK(out.str().empty());  // a short operation shows nothing
        now += 1;
        bar.update(2000000, 8000000);
        CHECK(out.str() == "\rloading [######..................]  25 %   2 of 8 MB   3 s left\x1b[K");
        bar.update(3000000, 8000000);  // too early to redraw
        now += 1;
        out.str("");
        bar.update(8000000, 8000000);
        CHECK(out.str() == "\rloading [########################] 100 %   8 of 8 MB\x1b[K");
        bar.update(1, 0);  // unknown total
        out.str("");
    }
    CHECK(out.str() == "\r\x1b[K");
}

TEST_CASE("Prints occasional lines outside a terminal") {
    double now = 0;
    std::ostringstream out;
    {
        progress_bar bar(out, false, "batch", "requests", 1, [&] { return now; });
        now = 4;
        bar.update(1, 4);
        CHECK(out.str().empty());
        now = 6;
        bar.update(2, 4);
        now = 12;
        bar.update(2, 4);  // no progress
        bar.clear();
    }
    CHECK(out.str() == "batch [############............]  50 %   2 of 4 requests   6 s left\n");
}

}  // namespace imbrex::engine::test
