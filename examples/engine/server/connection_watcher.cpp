#include "engine/server/connection_watcher.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <imbrex/core/error.hpp>
#include <optional>
#include <utility>

namespace imbrex::engine::server {

namespace {

struct endpoint {
    std::string address;
    int port = 0;
};

template <class GetName>
std::optional<endpoint> endpoint_of(int socket, GetName get_name) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    if (get_name(socket, plain, &length) != 0) return {};
    if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return {};
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    constexpr int numeric = NI_NUMERICHOST | NI_NUMERICSERV;
    if (getnameinfo(plain, length, host.data(), host.size(), port.data(), port.size(), numeric) != 0) return {};
    return endpoint{host.data(), std::atoi(port.data())};
}

bool is_connection(int socket, const std::string& address, int port, int local_port) {
    const auto peer = endpoint_of(socket, getpeername);
    if (!peer || peer->port != port || peer->address != address) return false;
    const auto own = endpoint_of(socket, getsockname);
    return own && own->port == local_port;
}

// Calls the function with each open file descriptor, until it returns true.
template <class Function>
void visit_descriptors(Function function) {
    DIR* const folder = opendir("/proc/self/fd");
    if (folder == nullptr) return;
    while (const dirent* const entry = readdir(folder)) {
        const int descriptor = std::atoi(entry->d_name);
        if (descriptor > 2 && function(descriptor)) break;
    }
    closedir(folder);
}

}  // namespace

connection_watcher::connection_watcher() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC)) {
    require(epoll_ >= 0 && wake_ >= 0, "the system has no more file descriptors");
    epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
    thread_ = std::thread([this] { run(); });
}

connection_watcher::~connection_watcher() {
    const std::uint64_t one = 1;
    if (write(wake_, &one, sizeof one) == sizeof one) thread_.join();
    close(wake_);
    close(epoll_);
}

std::unique_ptr<connection_watcher::watch> connection_watcher::when_gone(int socket, std::function<void()> call) {
    const std::scoped_lock lock(mutex_);
    const std::uint64_t id = next_id_++;
    entries_.emplace(id, entry{socket, std::move(call)});
    epoll_event event{.events = EPOLLRDHUP | EPOLLONESHOT, .data = {.u64 = id}};  // EPOLLHUP and EPOLLERR always count
    epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event);
    return std::make_unique<watch>(*this, id);
}

void connection_watcher::forget(std::uint64_t id) {
    const std::scoped_lock lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, found->second.socket, nullptr);
    entries_.erase(found);
}

void connection_watcher::run() {
    std::array<epoll_event, 64> events{};
    for (;;) {
        const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
        const std::scoped_lock lock(mutex_);
        for (int i = 0; i < count; ++i) {
            const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
            if (id == 0) return;
            // An id that has been forgotten meanwhile belongs to no entry: ids are not used again.
            if (const auto found = entries_.find(id); found != entries_.end() && found->second.call)
                std::exchange(found->second.call, {})();
        }
    }
}

int socket_of_peer(const std::string& address, int port, int local_port) {
    // A thread usually serves further requests of the same connection.
    static thread_local int latest = -1;
    if (latest >= 0 && is_connection(latest, address, port, local_port)) return latest;
    latest = -1;
    visit_descriptors([&](int socket) {
        if (!is_connection(socket, address, port, local_port)) return false;
        latest = socket;
        return true;
    });
    return latest;
}

void shut_down_connections(int local_port) {
    visit_descriptors([&](int socket) {
        const auto own = endpoint_of(socket, getsockname);
        if (own && own->port == local_port && endpoint_of(socket, getpeername)) shutdown(socket, SHUT_RDWR);
        return false;
    });
}

}  // namespace imbrex::engine::server
