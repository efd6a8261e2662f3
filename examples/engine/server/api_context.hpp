// What the endpoints share: the model, the service that runs it, and the settings of the server.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/chat/chat_format.hpp"
#include "engine/server/generation_service.hpp"
#include "engine/server/request_fields.hpp"

namespace imbrex::engine::server {

struct api_settings {
    std::string model_name;               // as clients name it
    sampling_params sampling{};           // defaults of requests
    std::optional<int> max_tokens{};      // the default; else the rest of the context in a chat, 16 in a completion
    std::optional<std::uint64_t> seed{};  // of requests without one; else a random one
    json template_variables = json::object();
    int max_prompt_tokens = 0;                  // 0: as many as fit
    int max_choices = 64;                       // sequences of a request
    pooling_mode pooling = pooling_mode::mean;  // of embeddings
};

// Compiled constraints of requests. Thread-safe.
class constraint_cache {
  public:
    std::shared_ptr<const token_constraint> find(const std::string& key) const;  // or null
    void keep(const std::string& key, std::shared_ptr<const token_constraint> made);

  private:
    mutable std::mutex mutex_;
    std::map<std::string, std::shared_ptr<const token_constraint>, std::less<>> constraints_;
};

struct api_context {
    const text_engine& model;  // what does not change while it generates
    generation_service& service;
    std::optional<chat_format> format;  // none: the model continues texts
    api_settings settings;
    int max_sequence_length = 0;
    std::int64_t started = 0;  // Unix time
    std::shared_ptr<constraint_cache> constraints = std::make_shared<constraint_cache>();
};

// Writes the reply to a generation, as a whole or as a stream.
class reply_writer {
  public:
    virtual ~reply_writer() = default;

    // Takes the next event. A stream's text for the client is appended to `out`.
    virtual void take(generation_event& event, std::string& out) = 0;
    // After the last event: the end of the stream, or the body.
    virtual std::string finish() = 0;
    // The end of a stream that failed.
    virtual std::string fail(const api_error& failure) { return "data: " + dumped(failure.json()) + "\n\n"; }
};

// The reply of an endpoint: a body, or the work that makes it and its writer.
struct api_reply {
    std::string body{};
    std::string content_type = "application/json";
    int status = 200;
    std::shared_ptr<generation> work{};
    std::unique_ptr<reply_writer> writer{};
    bool streams = false;
};

// A random id with a prefix: "chatcmpl-5f0c...".
std::string new_id(const char* prefix);

std::int64_t unix_time();

// Throws 404 unless the request names this model, or none.
void check_model(const api_context& context, request_fields& fields);

// Throws 400 if a prompt is empty, too long, or has unknown tokens.
void check_prompt(const api_context& context, const char* field, const std::vector<int>& prompt);

}  // namespace imbrex::engine::server
