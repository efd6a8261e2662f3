// An error in the form of OpenAI's API: {"error": {"message": ..., "type": ..., "param": ..., "code": ...}} with an HTTP
// status.
#pragma once

#include <exception>
#include <nlohmann/json.hpp>

#include <string>
#include <utility>

namespace imbrex::engine::server {

class api_error : public std::exception {
  public:
    api_error(int status, std::string message, std::string param = {}, std::string code = {})
        : status_(status), message_(std::move(message)), param_(std::move(param)), code_(std::move(code)) {}

    const char* what() const noexcept override { return message_.c_str(); }

    int status() const { return status_; }
    const std::string& param() const { return param_; }  // the field of the request; may be empty

    nlohmann::ordered_json json() const {
        const auto or_null = [](const std::string& text) {
            return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
        };
        return {
            {"error", {{"message", what()}, {"type", type()}, {"param", or_null(param_)}, {"code", or_null(code_)}}}};
    }

  private:
    const char* type() const {
        switch (status_) {
            case 401:
                return "authentication_error";
            case 404:
                return "not_found_error";
            case 429:
                return "rate_limit_error";
            case 503:
                return "service_unavailable_error";
            case 504:
                return "timeout_error";
            default:
                return status_ < 500 ? "invalid_request_error" : "server_error";
        }
    }

    int status_;
    std::string message_, param_, code_;
};

}  // namespace imbrex::engine::server
