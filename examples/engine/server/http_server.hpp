// The API over HTTP, by cpp-httplib: routes, keys, CORS, limits of size, server-sent events. This is the only file pair that
// knows the library, and no other part of the engine knows HTTP.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

struct http_options {
    std::string host = "127.0.0.1";
    int port = 8080;                              // 0: any free one
    std::vector<std::string> api_keys{};          // none: no key is needed
    std::string cors_origin{};                    // of pages that may use the API: "*" or one origin; empty: none
    std::size_t max_body = std::size_t{8} << 20;  // bytes
    int connections = 512;                        // served at once; further ones wait
};

class http_server {
  public:
    // Binds the port, or throws, and serves in threads of its own.
    http_server(const api_context& context, const http_options& options);
    // Waits for replies that are being written, and ends. Drain the service before.
    ~http_server();
    http_server(const http_server&) = delete;
    http_server& operator=(const http_server&) = delete;

    int port() const;

  private:
    class implementation;
    std::unique_ptr<implementation> implementation_;
};

}  // namespace imbrex::engine::server
