// Lets Ctrl-C end a text instead of the program. While an interrupt_guard exists, SIGINT sets a flag; a second SIGINT
// before the flag is read ends the program. The default handler is restored afterwards.
#pragma once

#include <csignal>

namespace imbrex::engine {

class interrupt_guard {
  public:
    interrupt_guard() {
        noted_ = 0;
        struct sigaction action {};
        action.sa_handler = [](int) {
            if (noted_) {
                std::signal(SIGINT, SIG_DFL);
                std::raise(SIGINT);
            }
            noted_ = 1;
        };
        action.sa_flags = SA_RESTART;
        sigaction(SIGINT, &action, &before_);
    }
    ~interrupt_guard() { sigaction(SIGINT, &before_, nullptr); }
    interrupt_guard(const interrupt_guard&) = delete;
    interrupt_guard& operator=(const interrupt_guard&) = delete;

    bool wanted() const { return noted_ != 0; }

  private:
    static inline volatile std::sig_atomic_t noted_ = 0;
    struct sigaction before_ {};
};

}  // namespace imbrex::engine
