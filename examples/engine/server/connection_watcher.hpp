// Notices when the peer of a connection is gone while its request is served: also one that waits for an answer, to which
// nothing is written. One thread waits for all connections (epoll). A peer that closes only its sending side counts as gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

namespace imbrex::engine::server {

class connection_watcher {
  public:
    connection_watcher();
    ~connection_watcher();
    connection_watcher(const connection_watcher&) = delete;
    connection_watcher& operator=(const connection_watcher&) = delete;

    // Ends the watch when it is destroyed; the function is then not running and will not be called.
    class watch {
      public:
        watch(connection_watcher& watcher, std::uint64_t id) : watcher_(watcher), id_(id) {}
        ~watch() { watcher_.forget(id_); }
        watch(const watch&) = delete;
        watch& operator=(const watch&) = delete;

      private:
        connection_watcher& watcher_;
        std::uint64_t id_;
    };

    // Calls the function at most once, on the watcher's thread. The socket must stay open as long as the watch.
    std::unique_ptr<watch> when_gone(int socket, std::function<void()> call);

  private:
    struct entry {
        int socket;
        std::function<void()> call;
    };
    void run();
    void forget(std::uint64_t id);

    int epoll_, wake_;
    std::mutex mutex_;
    std::uint64_t next_id_ = 1;
    std::unordered_map<std::uint64_t, entry> entries_;
    std::thread thread_;
};

// The connected socket of this process whose peer has this address and port, and whose own port is `local_port`; -1 if there
// is none. An HTTP library that hides its sockets tells these.
int socket_of_peer(const std::string& address, int port, int local_port);

// Ends all connections to this port of this process: threads that wait for a further request return.
void shut_down_connections(int local_port);

}  // namespace imbrex::engine::server
