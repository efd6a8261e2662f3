// A fiber: a function with a stack of its own that can stop in the middle and go on later, always on the thread that
// started it. The host world runs each warp or warpgroup as one. The switch is the C library's (ucontext); what is
// added here is what AddressSanitizer must be told about stacks, and a cache of stacks, since a grid makes many fibers.
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

// Register tiles of the host world lie on these stacks whole, so they are large. Pages never touched cost nothing.
inline constexpr std::size_t fiber_stack_bytes = std::size_t{4} << 20;

// Stacks of this thread that are not in use.
class stack_cache {
  public:
    static void* take() {
        std::vector<void*>& free = spare().stacks;
        if (!free.empty()) {
            void* stack = free.back();
            free.pop_back();
            return stack;
        }
        void* stack = mmap(nullptr, fiber_stack_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) throw std::bad_alloc();
        // Stacks grow downwards: one that is too deep ends here and not in its neighbour.
        mprotect(stack, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);
        return stack;
    }
    static void give(void* stack) { spare().stacks.push_back(stack); }

  private:
    struct owner {
        std::vector<void*> stacks;
        ~owner() {
            for (void* stack : stacks) munmap(stack, fiber_stack_bytes);
        }
    };
    static owner& spare() {
        thread_local owner stacks;
        return stacks;
    }
};

class fiber {
  public:
    template <class Function>
    explicit fiber(Function function) : stack_(stack_cache::take()), body_(new body_of<Function>(std::move(function))) {
        getcontext(&own_);
        own_.uc_stack.ss_sp = stack_;
        own_.uc_stack.ss_size = fiber_stack_bytes;
        own_.uc_link = nullptr;
        // makecontext passes ints only: the pointer travels as two halves.
        const auto address = reinterpret_cast<std::uintptr_t>(this);
        makecontext(&own_, reinterpret_cast<void (*)()>(&fiber::enter), 2, static_cast<unsigned>(address >> 32),
                    static_cast<unsigned>(address & 0xffffffffu));
    }
    fiber(const fiber&) = delete;
    fiber& operator=(const fiber&) = delete;
    ~fiber() { stack_cache::give(stack_); }

    bool finished() const { return finished_; }

    // The exception that ended the function, if one did.
    std::exception_ptr failure() const { return failure_; }

    // Runs the function until it suspends or ends. Called from the scheduler's own stack.
    void resume() {
        before_switch(&scheduler_fake_stack_, stack_, fiber_stack_bytes);
        swapcontext(&scheduler_, &own_);
        after_switch(scheduler_fake_stack_, nullptr, nullptr);
    }

    // Called inside the function: goes back to whoever resumed it.
    void suspend() {
        before_switch(&own_fake_stack_, scheduler_stack_, scheduler_stack_bytes_);
        swapcontext(&own_, &scheduler_);
        after_switch(own_fake_stack_, &scheduler_stack_, &scheduler_stack_bytes_);
    }

  private:
    struct body {
        virtual ~body() = default;
        virtual void run() = 0;
    };
    template <class Function>
    struct body_of final : body {
        explicit body_of(Function f) : function(std::move(f)) {}
        void run() override { function(); }
        Function function;
    };

    static void enter(unsigned high, unsigned low) {
        auto* self = reinterpret_cast<fiber*>((static_cast<std::uintptr_t>(high) << 32) | low);
        after_switch(nullptr, &self->scheduler_stack_, &self->scheduler_stack_bytes_);
        try {
            self->body_->run();
        } catch (...) {
            self->failure_ = std::current_exception();
        }
        self->finished_ = true;
        before_switch(nullptr, self->scheduler_stack_, self->scheduler_stack_bytes_);
        setcontext(&self->scheduler_);
    }

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

    void* stack_;
    owned<body> body_;
    ucontext_t own_{};
    ucontext_t scheduler_{};
    bool finished_ = false;
    std::exception_ptr failure_;
    void* own_fake_stack_ = nullptr;
    void* scheduler_fake_stack_ = nullptr;
    const void* scheduler_stack_ = nullptr;
    std::size_t scheduler_stack_bytes_ = 0;
};

}  // namespace imbrex::hw
