// The hardware has sixteen named barriers; the scopes use nine.
// expect: a kernel may name at most 7 barriers
#include <imbrex/imbrex.hpp>

struct turn {
    static constexpr int count = 8;
};

auto wrong = imbrex::named_barriers<turn>::of<turn>();
