// The exceptions of the host API: imbrex::error and its subclasses. Each message names the argument, its value and what
// is allowed. `require` builds the message only if the condition fails.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace imbrex {

class error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// An argument of a host function is not allowed.
class invalid_argument : public error {
  public:
    using error::error;
};

// A call of the CUDA runtime or driver failed.
class cuda_error : public error {
  public:
    using error::error;
};

namespace detail {

// A part of a message: a string, a number or a pointer. The formatting is not a template: the library has many
// messages, and each instantiation would cost compile time.
class message_part {
  public:
    message_part(const char* text) : kind_(kind::text), text_(text) {}
    message_part(const std::string& text) : kind_(kind::text), text_(text.c_str()) {}
    template <class Number>
    requires std::is_arithmetic_v<Number> message_part(Number number) {
        if constexpr (std::is_floating_point_v<Number>) {
            kind_ = kind::real;
            real_ = static_cast<double>(number);
        } else if constexpr (std::is_signed_v<Number>) {
            kind_ = kind::whole;
            whole_ = static_cast<std::int64_t>(number);
        } else {
            kind_ = kind::natural;
            natural_ = static_cast<std::uint64_t>(number);
        }
    }
    message_part(char* text) : message_part(static_cast<const char*>(text)) {}  // otherwise the next one would match
    template <class T>
    message_part(T* pointer) : kind_(kind::pointer), pointer_(pointer) {}

    void append_to(std::string& all) const {
        char number[32] = "";
        switch (kind_) {
            case kind::text:
                all += text_;
                return;
            case kind::whole:
                all += std::to_string(whole_);
                return;
            case kind::natural:
                all += std::to_string(natural_);
                return;
            case kind::real:
                std::snprintf(number, sizeof number, "%g", real_);
                break;
            case kind::pointer:
                std::snprintf(number, sizeof number, "%p", pointer_);
                break;
        }
        all += number;
    }

  private:
    enum class kind { text, whole, natural, real, pointer };
    kind kind_;
    union {
        const char* text_;
        std::int64_t whole_;
        std::uint64_t natural_;
        double real_;
        const void* pointer_;
    };
};

inline std::string joined(std::initializer_list<message_part> parts) {
    std::string all;
    for (const message_part& part : parts) part.append_to(all);
    return all;
}

[[noreturn]] inline void throw_invalid_argument(std::initializer_list<message_part> parts) {
    throw invalid_argument(joined(parts));
}

}  // namespace detail

template <class... Parts>
std::string str_cat(const Parts&... parts) {
    return detail::joined({detail::message_part(parts)...});
}

template <class... Parts>
void require(bool allowed, const Parts&... parts) {
    if (!allowed) detail::throw_invalid_argument({detail::message_part(parts)...});
}

}  // namespace imbrex
