// Lets SIGTERM and Ctrl-C end a program in order. While a termination_guard exists, the first of these signals lets wait()
// return; the second ends the program at once.
#pragma once

#include <cerrno>
#include <csignal>

#include <semaphore.h>

namespace imbrex::engine {

class termination_guard {
  public:
    termination_guard() {
        sem_init(&wanted_, 0, 0);
        struct sigaction action {};
        action.sa_handler = [](int signal) {
            sem_post(&wanted_);
            std::signal(signal, SIG_DFL);
        };
        action.sa_flags = SA_RESTART;
        sigaction(SIGTERM, &action, &before_term_);
        sigaction(SIGINT, &action, &before_int_);
    }
    ~termination_guard() {
        sigaction(SIGTERM, &before_term_, nullptr);
        sigaction(SIGINT, &before_int_, nullptr);
        sem_destroy(&wanted_);
    }
    termination_guard(const termination_guard&) = delete;
    termination_guard& operator=(const termination_guard&) = delete;

    void wait() {
        while (sem_wait(&wanted_) != 0 && errno == EINTR) {}
    }

  private:
    static inline sem_t wanted_{};  // sem_post may be called from a signal handler
    struct sigaction before_term_ {
    }, before_int_{};
};

}  // namespace imbrex::engine
