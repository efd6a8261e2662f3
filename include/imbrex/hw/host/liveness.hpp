// Whether a run still gets anywhere, by what the latest steps did. A synchronisation, an access to shared memory, an
// asynchronous operation that completes, a scope that starts or ends: progress. An atomic operation that writes may end
// the wait of another scope; but a loop of nothing else, such as one that counts, may never end.
#pragma once

namespace imbrex::hw {

class liveness {
  public:
    void progress() { idle_ = only_atomic_ = 0; }
    void atomic_write() { idle_ = 0; }
    // One more step; false if there have been too many in which nothing was written.
    bool step() {
        ++only_atomic_;
        return ++idle_ <= most_steps;
    }
    int idle() const { return idle_; }
    // There have been too many of nothing but atomic operations.
    bool only_atomic() const { return only_atomic_ > most_steps; }

  private:
    static constexpr int most_steps = 200000;
    int idle_ = 0;
    int only_atomic_ = 0;
};

}  // namespace imbrex::hw
