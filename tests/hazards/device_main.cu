// Runs one kernel of the corpus on the GPU.
//
//   imbrex_hazards_device --list                     family, name, and "wrong", "hangs" or "correct", line by line
//   imbrex_hazards_device <name> wrong               the fixed variant, then the wrong one: do the results differ?
//   imbrex_hazards_device <name> wrong --alone       the wrong variant only, for a tool that watches it
//   imbrex_hazards_device <name> fixed
//
// Exit status: 0 the results agree, 3 they differ, 4 a CUDA error, 2 wrong usage, 77 no device.
#include "hazards/corpus.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace {

using namespace imbrex_hazards;

std::vector<float> results_of(const corpus_case& one, bool fixed) {
    corpus_memory memory(world::device);
    one.launch(fixed, memory);
    imbrex::detail::require_success(cudaDeviceSynchronize(), "kernel");
    return memory.result();
}

int run(const corpus_case& one, bool fixed, bool alone) {
    std::vector<float> expected;
    if (!alone) expected = results_of(one, true);
    const std::vector<float> found = results_of(one, fixed);
    // Bits: poison may be NaN.
    const bool same = alone || std::memcmp(expected.data(), found.data(), found.size() * sizeof(float)) == 0;
    std::printf("%s\n", same ? "same results" : "different results");
    return same ? 0 : 3;
}

}  // namespace

int main(int count, char** arguments) {
    if (count == 2 && std::strcmp(arguments[1], "--list") == 0) {
        for (const corpus_case& one : corpus()) {
            std::printf("%s %s %s\n", one.family.c_str(), one.name.c_str(),
                        one.expected.empty() ? "correct"
                        : one.hangs          ? "hangs"
                                             : "wrong");
        }
        return 0;
    }
    if (count < 3) {
        std::fprintf(stderr, "usage: %s --list | <name> wrong|fixed [--alone]\n", arguments[0]);
        return 2;
    }
    const auto found = std::find_if(corpus().begin(), corpus().end(),
                                    [&](const corpus_case& one) { return one.name == arguments[1]; });
    if (found == corpus().end()) {
        std::fprintf(stderr, "%s: no kernel of this name; --list prints them\n", arguments[1]);
        return 2;
    }
    if (!device_available()) return 77;
    try {
        return run(*found, std::strcmp(arguments[2], "fixed") == 0, count > 3);
    } catch (const error& caught) {
        std::printf("%s\n", caught.what());
        return 4;
    }
}
