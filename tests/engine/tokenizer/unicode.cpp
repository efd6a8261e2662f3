#include "engine/tokenizer/unicode.hpp"

#include "engine/support.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::test {

TEST_CASE("Decodes UTF-8 and reports invalid bytes") {
    for (const char32_t value :
         {0x0u, 0x41u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10ffffu}) {
        std::string text;
        append_code_point(text, value);
        const code_point read = first_code_point(text + "x");
        CHECK(read.valid);
        CHECK(read.value == value);
        CHECK(read.length == static_cast<int>(text.size()));
        for (std::size_t size = 1; size < text.size(); ++size) {
            CHECK(may_begin_code_point(text.substr(0, size)));
            CHECK_FALSE(first_code_point(text.substr(0, size)).valid);
        }
    }
    // Lone continuation, overlong forms, surrogate, above U+10FFFF, invalid bytes, truncated sequence.
    for (const char* text :
         {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3(", "\xe2\x82("}) {
        CHECK_FALSE(first_code_point(text).valid);
        CHECK(first_code_point(text).length == 1);
    }
    CHECK_FALSE(may_begin_code_point(""));
    CHECK_FALSE(may_begin_code_point("\xed\xa0"));
    CHECK_FALSE(
        may_begin_code_point("\xc3\xa4"
                             "a"));
    CHECK(printable("a\x1b[31m\xc3\xa4") == "\"a?[31m??\"");
    CHECK(printable(std::string(100, 'x')).size() == 60 + 5);
}

TEST_CASE("Knows the category of code points") {
    CHECK(category_of('A') == general_category::upper_case_letter);
    CHECK(category_of(0x1c5) == general_category::title_case_letter);
    CHECK(category_of('z') == general_category::lower_case_letter);
    CHECK(category_of(0xaa) == general_category::other_letter);
    CHECK(category_of(0x4e2d) == general_category::other_letter);
    CHECK(category_of(0x2b0) == general_category::modifier_letter);
    CHECK(category_of(0x301) == general_category::nonspacing_mark);
    CHECK(category_of('7') == general_category::decimal_number);
    CHECK(category_of(0xbd) == general_category::other_number);
    CHECK(category_of(0x2167) == general_category::letter_number);
    CHECK(category_of('_') == general_category::connector);
    CHECK(category_of('$') == general_category::currency_symbol);
    CHECK(category_of(0x200b) == general_category::format);
    CHECK(category_of(0x1f999) == general_category::other_symbol);
    CHECK(category_of(0x10ffff) == general_category::unassigned);
    CHECK(category_of(0) == general_category::control);
    CHECK(categories_named("L") == 0x1f);
    CHECK(categories_named("Cn") == 1u << 29);
    for (const char* name : {"", "X", "Lx", "uL", "Lul"}) CHECK_FALSE(categories_named(name));
    for (const char32_t space : {0x9u, 0xau, 0xdu, 0x20u, 0x85u, 0xa0u, 0x2003u, 0x2028u, 0x3000u}) {
        CHECK(is_white_space(space));
    }
    for (const char32_t other : {0x8u, 0xeu, 0x1cu, 0x41u, 0x200bu, 0x180eu}) CHECK_FALSE(is_white_space(other));
}

TEST_CASE("Composes text (NFC)") {
    CHECK(nfc("plain") == "plain");
    CHECK(nfc("e\u0301") == "\u00e9");
    CHECK(nfc("\u00e9") == "\u00e9");
    CHECK(nfc("\u0301e") == "\u0301e");             // no starter before it
    CHECK(nfc("a\u0327\u0301") == "\u00e1\u0327");  // across a mark of a lower class
    CHECK(nfc("a\u0301\u0327") == "\u00e1\u0327");  // reordered
    CHECK(nfc("e\u0302\u0301") == "\u1ebf");        // twice
    CHECK(nfc("\u212b") == "\u00c5");               // the angstrom sign is a letter
    CHECK(nfc("\u1112\u1161\u11ab") == "\ud55c");   // Hangul, by its rule
    CHECK(nfc("\ud558\u11ab") == "\ud55c");
    CHECK(nfc("\u0958") == "\u0915\u093c");      // excluded from composition
    CHECK(nfc("e\xff\u0301") == "e\xff\u0301");  // blocked by an invalid byte
    CHECK(nfc("\xc3") == "\xc3");
}

}  // namespace imbrex::engine::test
