// The register of variants for a Python package, which calls these functions through ctypes. Every package compiles this file
// into its library (_compiler.py).
#include "variant.hpp"

#include <exception>
#include <string>

extern "C" void imbrex_set_compiler(imbrex::bindings::variant_compiler compiler) {
    imbrex::bindings::set_variant_compiler(compiler);
}

// Null, or a message that lives until the thread's next call.
extern "C" const char* imbrex_load_variant(const char* library) {
    static thread_local std::string message;
    try {
        imbrex::bindings::load_variant(library);
        return nullptr;
    } catch (const std::exception& failed) {
        message = failed.what();
        return message.c_str();
    }
}

// One name per line.
extern "C" const char* imbrex_variant_names(int for_device) {
    static thread_local std::string names;
    names = imbrex::bindings::variant_names(for_device != 0);
    return names.c_str();
}
