// One of two translation units that launch the same kernel: neither may rely on the attributes that the other has set.
#include <hw/large_kernel.hpp>

namespace {
struct this_unit {};
}  // namespace

TEST_CASE("a kernel with much shared memory, launched from one of several translation units: one") {
    imbrex_test::test_large_kernel<this_unit>();
}
