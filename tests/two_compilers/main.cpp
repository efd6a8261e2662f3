// One program of two compilers: each file uses its own compiler's launches, memory and descriptors, for both link
// orders (tests/CMakeLists.txt builds both). Problems and errors pass from one file to the other.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "shared.hpp"

namespace two_compilers {

TEST_CASE("each file uses the functions of its own compiler") {
    const findings cuda = cuda_findings(), host = host_findings();
    CHECK(cuda.tensor_function != host.tensor_function);
    CHECK(cuda.gate_function != host.gate_function);
    CHECK(cuda.host_launch);
    CHECK(host.host_launch);

    const std::string host_alone = "world: device; this program was not compiled by nvcc and has only the host world";
    CHECK(host.array_on_device == host_alone);
    CHECK(host.launch_on_device == host_alone);
    CHECK(host.gate_on_device == host_alone);
    CHECK_FALSE(host.descriptor);

    CHECK(cuda.array_on_device != host_alone);
    CHECK(cuda.launch_on_device != host_alone);
    CHECK(cuda.gate_on_device != host_alone);
    if (cuda.array_on_device == "made") {  // there is a GPU
        CHECK(cuda.launch_on_device == "launched");
        CHECK(cuda.gate_on_device == "launched");
        CHECK(cuda.descriptor);
    }
}

TEST_CASE("a problem is one type, and an error thrown on one side is caught on the other") {
    problem wrong{};
    wrong.q.extents =
        imbrex::dimensions<imbrex::dynamic, imbrex::dynamic, imbrex::dynamic, imbrex::dynamic>{-1, 1, 1, 64};
    const std::string message = "q.extents[0]: -1; 0 to 2147483647 is allowed";
    CHECK(caught_by_host([&] { cuda_require(wrong); }) == message);
    CHECK(caught_by_cuda([&] { host_require(wrong); }) == message);
    CHECK_THROWS_AS(cuda_require(wrong), imbrex::invalid_argument);
    CHECK_THROWS_AS(host_require(wrong), imbrex::invalid_argument);
}

}  // namespace two_compilers
