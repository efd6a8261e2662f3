// Error messages: strings, numbers and pointers, and the exceptions that carry them.
#include <imbrex/core/error.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

using namespace imbrex;

TEST_CASE("str_cat joins strings and numbers") {
    const std::string name = "rows";
    const char* const said = "; a multiple of ";
    CHECK(str_cat(name, ": ", -3, said, 16U) == "rows: -3; a multiple of 16");
    CHECK(str_cat() == "");
    char text[] = "a text that may change";
    char* const pointer = text;
    CHECK(str_cat(text, ", ", pointer) == "a text that may change, a text that may change");
    CHECK(str_cat(std::int64_t{-9000000000000000000}, " ", std::uint64_t{18000000000000000000U}) ==
          "-9000000000000000000 18000000000000000000");
    CHECK(str_cat(0.5f, " ", 1e-30, " ", 12345678.0) == "0.5 1e-30 1.23457e+07");
    CHECK(str_cat(true, " ", false, " ", static_cast<short>(-7)) == "1 0 -7");
}

TEST_CASE("str_cat formats pointers") {
    const int one = 1;
    const void* const where = &one;
    char text[32];
    std::snprintf(text, sizeof text, "%p", where);
    CHECK(str_cat("at ", &one, "; ", where) == std::string("at ") + text + "; " + text);
    CHECK(str_cat(static_cast<const float*>(nullptr)) == str_cat(static_cast<const int*>(nullptr)));
}

TEST_CASE("require throws invalid_argument with the message if the condition is false") {
    CHECK_NOTHROW(require(true, "never said"));
    CHECK_THROWS_WITH_AS(require(false, "columns: ", 7, "; 8 is allowed"), "columns: 7; 8 is allowed",
                         invalid_argument);
}
