// Which code meets which architecture requirement.
#include <imbrex/core/architecture.hpp>

#include <doctest/doctest.h>

#include <initializer_list>

using namespace imbrex;

TEST_CASE("sm_80 and sm_89 code runs on every newer GPU; architecture-specific code needs exactly its own") {
    for (const int version : {80, 86, 89, 90, 100, 120}) CHECK(code_meets(gpu_architecture::sm_80, version, version));
    CHECK_FALSE(code_meets(gpu_architecture::sm_80, 75, 75));
    for (const int version : {89, 90, 100, 120}) CHECK(code_meets(gpu_architecture::sm_89, version, version));
    CHECK_FALSE(code_meets(gpu_architecture::sm_89, 86, 86));
    CHECK(code_meets(gpu_architecture::sm_89, 90, 89));
    CHECK_FALSE(code_meets(gpu_architecture::sm_89, 90, 80));  // compiled from PTX without 8-bit mma.sync
    for (const auto required : {gpu_architecture::sm_90a, gpu_architecture::sm_100a, gpu_architecture::sm_120a}) {
        for (const int version : {80, 89, 90, 100, 120}) {
            CHECK(code_meets(required, version, version) == (version == compute_capability(required)));
        }
        CHECK_FALSE(code_meets(required, compute_capability(required), 80));  // compiled from PTX of an older one
    }
}
