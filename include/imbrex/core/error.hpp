// What the host side of the library throws. Each error carries one sentence that names the argument, its value and what
// is allowed; `require` builds that sentence only when it is needed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace imbrex {

class error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// An argument of a host function that is not allowed.
class invalid_argument : public error {
  public:
    using error::error;
};

// A call of the CUDA runtime or driver that failed.
class cuda_error : public error {
  public:
    using error::error;
};

// One part of a sentence as text. (A string stream would do it too, and cost every including file a tenth of a second.)
template <class Part>
std::string text_of(const Part& part) {
    if constexpr (std::is_convertible_v<Part, std::string>) {
        return part;
    } else if constexpr (std::is_pointer_v<Part> || std::is_floating_point_v<Part>) {
        char text[32];
        if constexpr (std::is_pointer_v<Part>) {
            std::snprintf(text, sizeof text, "%p", static_cast<const void*>(part));
        } else {
            std::snprintf(text, sizeof text, "%g", static_cast<double>(part));
        }
        return text;
    } else {
        return std::to_string(part);
    }
}

template <class... Parts>
std::string sentence(const Parts&... parts) {
    return (std::string() + ... + text_of(parts));
}

template <class... Parts>
void require(bool allowed, const Parts&... parts) {
    if (!allowed) throw invalid_argument(sentence(parts...));
}

}  // namespace imbrex
