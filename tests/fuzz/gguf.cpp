#include "fuzz/readers.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    imbrex::engine::fuzz::gguf(std::as_bytes(std::span(data, size)));
    return 0;
}
