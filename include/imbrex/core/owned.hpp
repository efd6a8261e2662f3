// An owning pointer, a subset of std::unique_ptr. Including <memory> costs nvcc half a second per file.
#pragma once

#include <utility>

namespace imbrex {

template <class T>
class owned {
  public:
    owned() = default;
    explicit owned(T* pointer) : pointer_(pointer) {}
    template <class Derived>
    owned(owned<Derived>&& other) : pointer_(other.give_up()) {}
    owned(owned&& other) noexcept : pointer_(other.give_up()) {}
    owned& operator=(owned&& other) noexcept {
        delete std::exchange(pointer_, other.give_up());
        return *this;
    }
    ~owned() { delete pointer_; }

    T& operator*() const { return *pointer_; }
    T* operator->() const { return pointer_; }
    T* get() const { return pointer_; }
    explicit operator bool() const { return pointer_ != nullptr; }
    T* give_up() { return std::exchange(pointer_, nullptr); }

  private:
    T* pointer_ = nullptr;
};

template <class T, class... Arguments>
owned<T> make_owned(Arguments&&... arguments) {
    return owned<T>(new T(std::forward<Arguments>(arguments)...));
}

}  // namespace imbrex
