// A fiber: a function with its own stack that can be suspended and resumed, always on the thread that started it. The
// host world runs each simulated warp as a fiber.
//
// A stack is first entered through ucontext. swapcontext also sets the signal mask by a system call, which takes longer
// than everything else. So later switches use GCC's __builtin_setjmp, and a stack whose function has ended waits there
// for the next function. Clang, which lacks it for some processors, and AddressSanitizer, which does not support it,
// use swapcontext each time.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <imbrex/core/owned.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define IMBREX_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IMBREX_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(IMBREX_ADDRESS_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#endif

namespace imbrex::hw {

// Register tiles of the host world are stored whole on these stacks, so they are large. Untouched pages cost nothing.
inline constexpr std::size_t fiber_stack_bytes = std::size_t{4} << 20;

// The point at which a suspended stack resumes.
#if defined(__clang__) || defined(IMBREX_ADDRESS_SANITIZER)
class switch_point {
  public:
    static void change(switch_point& from, switch_point& to) { swapcontext(&from.context_, &to.context_); }
    static void enter(switch_point& from, ucontext_t& to) { swapcontext(&from.context_, &to); }

  private:
    ucontext_t context_{};
};
#else
class switch_point {
  public:
    // __builtin_setjmp relies on its caller to save registers on the stack, so these are functions.
    [[gnu::noinline]] static void change(switch_point& from, switch_point& to) {
        if (__builtin_setjmp(from.words_) == 0) to.go_on();
    }
    [[gnu::noinline]] static void enter(switch_point& from, ucontext_t& to) {
        if (__builtin_setjmp(from.words_) == 0) setcontext(&to);
    }

  private:
    [[gnu::noinline, noreturn]] void go_on() { __builtin_longjmp(words_, 1); }

    void* words_[5];  // the size that GCC requires
};
#endif

// A function to run on a stack.
class fiber_body {
  public:
    virtual ~fiber_body() = default;
    virtual void run() = 0;
};

// A stack that runs one function after the other.
class fiber_stack {
  public:
    fiber_stack() {
        memory_ = mmap(nullptr, fiber_stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
        if (memory_ == MAP_FAILED) throw std::bad_alloc();
        // Stacks grow downwards: an overflow faults here instead of reaching the neighbouring stack.
        mprotect(memory_, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
    }
    fiber_stack(const fiber_stack&) = delete;
    fiber_stack& operator=(const fiber_stack&) = delete;
    ~fiber_stack() { munmap(memory_, fiber_stack_bytes); }

    // An unused stack of this thread.
    static owned<fiber_stack> take() {
        std::vector<owned<fiber_stack>>& free = spare();
        if (free.empty()) return make_owned<fiber_stack>();
        owned<fiber_stack> one = std::move(free.back());
        free.pop_back();
        return one;
    }
    static void give(owned<fiber_stack> one) {
        // A function that was suspended never resumes: the stack is entered anew.
        if (one->running_ != nullptr) one->entered_ = false;
        spare().push_back(std::move(one));
    }

    // Runs or resumes the function until it suspends or ends. True if it has ended. Called from the scheduler's stack.
    bool go_on(fiber_body& body) {
        running_ = &body;
        before_switch(&outer_fake_stack_, memory_, fiber_stack_bytes);
        if (entered_) {
            switch_point::change(outside_, inside_);
        } else {
            entered_ = true;
            ucontext_t first;
            getcontext(&first);
            first.uc_stack.ss_sp = memory_;
            first.uc_stack.ss_size = fiber_stack_bytes;
            first.uc_link = nullptr;
            // makecontext passes ints only: the pointer is split in two halves.
            const auto address = reinterpret_cast<std::uintptr_t>(this);
            makecontext(&first, reinterpret_cast<void (*)()>(&fiber_stack::run_all), 2,
                        static_cast<unsigned>(address >> 32), static_cast<unsigned>(address & 0xffffffffu));
            switch_point::enter(outside_, first);
        }
        after_switch(outer_fake_stack_, nullptr, nullptr);
        return running_ == nullptr;
    }

    // Called on this stack: returns to the caller of go_on.
    void leave() {
        before_switch(&fake_stack_, outer_memory_, outer_bytes_);
        switch_point::change(inside_, outside_);
        after_switch(fake_stack_, &outer_memory_, &outer_bytes_);
    }

  private:
    static std::vector<owned<fiber_stack>>& spare() {
        thread_local std::vector<owned<fiber_stack>> stacks;
        return stacks;
    }

    static void run_all(unsigned high, unsigned low) {
        auto* self = reinterpret_cast<fiber_stack*>((static_cast<std::uintptr_t>(high) << 32) | low);
        after_switch(nullptr, &self->outer_memory_, &self->outer_bytes_);
        for (;;) {
            self->running_->run();
            self->running_ = nullptr;
            self->leave();
        }
    }

    // AddressSanitizer's annotations of stack switches.
#if defined(IMBREX_ADDRESS_SANITIZER)
    static void before_switch(void** save, const void* bottom, std::size_t size) {
        __sanitizer_start_switch_fiber(save, bottom, size);
    }
    static void after_switch(void* saved, const void** bottom, std::size_t* size) {
        __sanitizer_finish_switch_fiber(saved, bottom, size);
    }
#else
    static void before_switch(void**, const void*, std::size_t) {}
    static void after_switch(void*, const void**, std::size_t*) {}
#endif

    void* memory_;
    switch_point inside_, outside_;
    fiber_body* running_ = nullptr;
    bool entered_ = false;
    void* fake_stack_ = nullptr;
    void* outer_fake_stack_ = nullptr;
    const void* outer_memory_ = nullptr;
    std::size_t outer_bytes_ = 0;
};

class fiber {
  public:
    template <class Function>
    explicit fiber(Function function)
        : body_(new body_of<Function>(std::move(function))), stack_(fiber_stack::take()) {}
    fiber(const fiber&) = delete;
    fiber& operator=(const fiber&) = delete;
    ~fiber() { fiber_stack::give(std::move(stack_)); }

    bool finished() const { return finished_; }

    // The exception that ended the function, if any.
    std::exception_ptr failure() const { return body_->failure; }

    // Runs the function until it suspends or ends. Called from the scheduler's stack.
    void resume() { finished_ = stack_->go_on(*body_); }

    // Called inside the function: returns to the caller of resume.
    void suspend() { stack_->leave(); }

  private:
    struct body : fiber_body {
        std::exception_ptr failure;
    };
    template <class Function>
    struct body_of final : body {
        explicit body_of(Function f) : function(std::move(f)) {}
        void run() override {
            try {
                function();
            } catch (...) {
                this->failure = std::current_exception();
            }
        }
        Function function;
    };

    owned<body> body_;
    owned<fiber_stack> stack_;
    bool finished_ = false;
};

}  // namespace imbrex::hw
