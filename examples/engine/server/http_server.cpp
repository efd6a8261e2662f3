#include "engine/server/http_server.hpp"

#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <imbrex/core/error.hpp>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/server/api_routes.hpp"
#include "engine/server/connection_watcher.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::server {

namespace {

// A thread for each connection that is served, up to a limit; threads are started as they are needed and stay.
class connection_threads final : public httplib::TaskQueue {
    // void, or bool in later versions of the library
    using enqueue_result = decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>()));

  public:
    explicit connection_threads(int most) : most_(static_cast<std::size_t>(most)) {}

    enqueue_result enqueue(std::function<void()> task) override {
        const std::scoped_lock lock(mutex_);
        tasks_.push_back(std::move(task));
        if (tasks_.size() > idle_ && threads_.size() < most_) threads_.emplace_back([this] { run(); });
        changed_.notify_one();
        return static_cast<enqueue_result>(true);
    }

    void shutdown() override {
        {
            const std::scoped_lock lock(mutex_);
            ends_ = true;
        }
        changed_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

  private:
    void run() {
        std::unique_lock lock(mutex_);
        for (;;) {
            ++idle_;
            changed_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
            --idle_;
            if (tasks_.empty()) return;
            const std::function<void()> task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            lock.lock();
        }
    }

    const std::size_t most_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    std::vector<std::thread> threads_;
    std::size_t idle_ = 0;
    bool ends_ = false;
};

// Replies that are being made or written.
class reply_count {
  public:
    void add(int change) {
        const std::scoped_lock lock(mutex_);
        count_ += change;
        if (count_ == 0) none_.notify_all();
    }
    void wait_for_none(std::chrono::seconds at_most) {
        std::unique_lock lock(mutex_);
        none_.wait_for(lock, at_most, [&] { return count_ == 0; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable none_;
    int count_ = 0;
};

// Does not tell by its time how much of a key is right.
bool equals_secret(const std::string& given, const std::string& secret) {
    unsigned difference = given.size() == secret.size() ? 0 : 1;
    for (std::size_t i = 0; i < given.size(); ++i)
        difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(secret[i % secret.size()]);
    return difference == 0;
}

// The reply to a generation while it is streamed.
struct stream_state {
    std::shared_ptr<generation> work;
    std::unique_ptr<reply_writer> writer;
    std::vector<generation_event> first{};  // events before the status was sent
    std::unique_ptr<connection_watcher::watch> watch{};
    std::string text{};

    ~stream_state() { work->cancel(); }  // nothing if it has ended

    // The next text for the client; true at the end.
    bool next() {
        text.clear();
        try {
            std::vector<generation_event> events = first.empty() ? work->wait() : std::exchange(first, {});
            for (generation_event& each : events) writer->take(each, text);
            if (!events.empty()) return false;
            text = writer->finish();
        } catch (const api_error& failure) {
            text = writer->fail(failure);
        }
        return true;
    }
};

constexpr int keep_alive_seconds = 10;
constexpr std::size_t keep_alive_requests = 100000;
constexpr std::chrono::seconds longest_last_write{10};
constexpr int write_timeout_seconds = 30;  // of a client that reads nothing

}  // namespace

class http_server::implementation {
  public:
    implementation(const api_context& context, const http_options& options) : context_(context), options_(options) {
        configure();
        bind();
        thread_ = std::thread([this] { server_.listen_after_bind(); });
        while (!server_.is_running()) std::this_thread::yield();
    }

    ~implementation() {
        replies_.wait_for_none(longest_last_write);
        server_.stop();
        shut_down_connections(port_);  // those that wait for a further request
        thread_.join();
    }

    int port() const { return port_; }

  private:
    void configure() {
        server_.new_task_queue = [this] { return new connection_threads(options_.connections); };
        server_.set_payload_max_length(options_.max_body);
        server_.set_keep_alive_max_count(keep_alive_requests);
        server_.set_keep_alive_timeout(keep_alive_seconds);
        server_.set_write_timeout(write_timeout_seconds);
        server_.set_tcp_nodelay(true);
        // The library's default lets two servers share a port.
        server_.set_socket_options([this](socket_t socket) {
            const int yes = 1;
            setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
            listening_ = socket;
        });
        const auto handle = [this](const httplib::Request& request, httplib::Response& response) {
            answer(request, response);
        };
        server_.Get(".*", handle).Post(".*", handle).Put(".*", handle).Patch(".*", handle).Delete(".*", handle);
        server_.Options(".*", handle);
        // Requests that the library refuses have no body yet.
        server_.set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
            if (response.body.empty()) refuse(request, response, error_of_status(response.status));
        });
    }

    void bind() {
        if (options_.port == 0) {
            port_ = server_.bind_to_any_port(options_.host);
        } else if (server_.bind_to_port(options_.host, options_.port)) {
            port_ = options_.port;
        }
        require(port_ > 0, "--host, --port: ", options_.host, ":", options_.port,
                " cannot be used; another program may have the port");
        // The library lets five connections wait to be accepted: the next ones of a burst would try again after a second.
        ::listen(listening_, SOMAXCONN);
    }

    api_error error_of_status(int status) const {
        if (status == 413) {
            return {413, str_cat("the body is too large; at most ", options_.max_body, " bytes are allowed")};
        }
        return {status < 400 ? 400 : status, "the request is not valid HTTP, or not supported"};
    }

    void answer(const httplib::Request& request, httplib::Response& response) {
        replies_.add(1);
        bool streams = false;
        try {
            if (request.method == "OPTIONS") {
                preflight(request, response);
            } else {
                const api_route& route = route_of(request.method, request.path);
                if (route.needs_key) check_key(request);
                api_reply reply = route.answer(context_, request.body);
                streams = reply.streams;
                send(request, response, reply);
            }
        } catch (const api_error& failure) {
            streams = false;
            refuse(request, response, failure);
        } catch (const std::exception& failure) {
            streams = false;
            refuse(request, response, api_error(500, failure.what()));
        }
        add_cors(response);
        if (!streams) replies_.add(-1);
    }

    void send(const httplib::Request& request, httplib::Response& response, api_reply& reply) {
        response.status = reply.status;
        if (!reply.work) {
            response.set_content(reply.body, reply.content_type.c_str());
            return;
        }
        const std::shared_ptr<stream_state> state(
            new stream_state{.work = reply.work, .writer = std::move(reply.writer)});
        const int socket = socket_of_peer(request.remote_addr, request.remote_port, port_);
        if (socket >= 0) state->watch = watcher_.when_gone(socket, [work = reply.work] { work->cancel(); });
        if (reply.streams) {
            send_stream(response, state);
        } else {
            send_whole(response, *state);
        }
    }

    static void send_whole(httplib::Response& response, stream_state& state) {
        std::string unused;
        for (;;) {
            std::vector<generation_event> events = state.work->wait();
            if (events.empty()) break;
            for (generation_event& each : events) state.writer->take(each, unused);
        }
        response.set_content(state.writer->finish(), "application/json");
    }

    // The status is sent with the first token, so that a request that fails before it gets an error status.
    void send_stream(httplib::Response& response, const std::shared_ptr<stream_state>& state) {
        state->first = state->work->wait();
        response.set_header("Cache-Control", "no-cache");
        response.set_header("X-Accel-Buffering", "no");  // for a proxy
        const auto provide = [state](std::size_t, httplib::DataSink& sink) {
            const bool ends = state->next();
            if (!state->text.empty() && !sink.write(state->text.data(), state->text.size())) return false;
            if (ends) sink.done();
            return true;
        };
        const auto release = [this, state](bool) {
            state->watch.reset();
            state->work->cancel();
            replies_.add(-1);
        };
        response.set_chunked_content_provider("text/event-stream", provide, release);
    }

    void check_key(const httplib::Request& request) const {
        if (options_.api_keys.empty()) return;
        const std::string header = request.get_header_value("Authorization");
        constexpr std::string_view scheme = "Bearer ";
        const std::string given = header.starts_with(scheme) ? header.substr(scheme.size()) : "";
        bool is_known = false;
        for (const std::string& key : options_.api_keys) is_known |= equals_secret(given, key);
        if (!is_known) {
            throw api_error(401,
                            header.empty() ? "this server needs an API key: the header \"Authorization: Bearer <key>\""
                                           : "the API key is not one of this server's",
                            {}, "invalid_api_key");
        }
    }

    static void refuse(const httplib::Request& request, httplib::Response& response, const api_error& failure) {
        response.status = failure.status();
        if (failure.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
        if (failure.status() == 405) response.set_header("Allow", allowed_methods(request.path));
        if (failure.status() == 429 || failure.status() == 503) response.set_header("Retry-After", "1");
        response.set_content(dumped(failure.json()), "application/json");
    }

    void preflight(const httplib::Request& request, httplib::Response& response) const {
        const std::string methods = allowed_methods(request.path);
        if (methods.empty()) route_of("OPTIONS", request.path);  // throws
        response.status = 204;
        response.set_header("Allow", methods);
        if (options_.cors_origin.empty()) return;
        response.set_header("Access-Control-Allow-Methods", methods);
        response.set_header("Access-Control-Allow-Headers", "*, Authorization");
        response.set_header("Access-Control-Max-Age", "86400");
    }

    void add_cors(httplib::Response& response) const {
        if (options_.cors_origin.empty()) return;
        response.set_header("Access-Control-Allow-Origin", options_.cors_origin);
        response.set_header("Vary", "Origin");
    }

    const api_context& context_;
    const http_options options_;
    reply_count replies_;
    connection_watcher watcher_;
    httplib::Server server_;
    socket_t listening_ = INVALID_SOCKET;
    int port_ = 0;
    std::thread thread_;
};

http_server::http_server(const api_context& context, const http_options& options)
    : implementation_(std::make_unique<implementation>(context, options)) {}

http_server::~http_server() = default;

int http_server::port() const {
    return implementation_->port();
}

}  // namespace imbrex::engine::server
