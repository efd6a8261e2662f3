// What the host side of the library throws. Each error carries one sentence that names the argument, its value and what
// is allowed; `require` builds that sentence only when it is needed.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

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

template <class... Parts>
std::string sentence(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

template <class... Parts>
void require(bool allowed, const Parts&... parts) {
    if (!allowed) throw invalid_argument(sentence(parts...));
}

}  // namespace imbrex
