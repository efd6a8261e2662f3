// serve: the model behind OpenAI's API, until SIGTERM or Ctrl-C; then requests that run are finished.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <imbrex/core/error.hpp>
#include <optional>
#include <ostream>
#include <sstream>

#include "engine/cli/command_model.hpp"
#include "engine/cli/termination_guard.hpp"
#include "engine/server/http_server.hpp"

namespace imbrex::engine {

namespace {

constexpr int spare_connections = 64;  // for short requests, beside those that generate
constexpr int most_connections =
    960;  // some versions of the HTTP library wait with select(), for file descriptors below 1024

std::chrono::milliseconds milliseconds(double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::vector<std::string> read_api_keys(const serve_command& command) {
    std::vector<std::string> keys = command.api_keys;
    if (const char* const variable = std::getenv("IMBREX_API_KEY")) {
        std::istringstream list(variable);
        for (std::string key; std::getline(list, key, ',');) keys.push_back(key);
    }
    std::erase(keys, "");
    for (const std::string& key : command.api_keys)
        require(!key.empty(), "--api-key: it is empty; a key has a character");
    return keys;
}

// "model" for path/to/model.gguf and for the folder path/to/model/.
std::string name_of_path(const std::string& path) {
    const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
    const std::filesystem::path name = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
    return name.extension() == ".gguf" || name.extension() == ".bin" ? name.stem() : name;
}

server::api_settings settings_of(const serve_command& command) {
    check(command.text.sampling);
    require(command.text.json_schema.empty() && command.text.regex.empty(),
            "--json-schema, --regex: a server's requests have a schema of their own, in \"response_format\"");
    return {.model_name = !command.name.empty()           ? command.name
                          : !command.model.random.empty() ? command.model.random
                                                          : name_of_path(command.model.path),
            .sampling = command.text.sampling,
            .max_tokens = command.text.max_tokens,
            .seed = command.text.seed,
            .template_variables = variables_of(command.format),
            .max_prompt_tokens = command.max_prompt,
            .pooling = command.pooling == "last" ? pooling_mode::last : pooling_mode::mean};
}

}  // namespace

int run_serve(const serve_command& command, const command_streams& streams) {
    model_files files = open_model(command.model, streams.err);
    const server::api_settings settings = settings_of(command);
    const server::http_options options{
        .host = command.host,
        .port = command.port,
        .api_keys = read_api_keys(command),
        .cors_origin = command.cors_origin,
        .max_body = static_cast<std::size_t>(command.max_body),
        .connections = std::min(command.model.sequences + command.queue + spare_connections, most_connections)};
    background_engine_loader loading(std::move(files), options_of(command.model));
    const std::unique_ptr<text_engine> model = loading.wait(streams.err);

    termination_guard ends;
    server::model_generation_engine engine(*model);
    server::generation_service service(
        engine,
        {.running = command.model.sequences, .queue = command.queue, .time_limit = milliseconds(command.time_limit)});
    const server::api_context context{.model = *model,
                                      .service = service,
                                      .format = format_of(command.format, model->tokens(), model->chat()),
                                      .settings = settings,
                                      .max_sequence_length = model->max_sequence_length(),
                                      .started = server::unix_time()};
    std::optional<server::http_server> http(std::in_place, context, options);
    streams.err << settings.model_name << " is served at http://" << command.host << ":" << http->port() << "\n"
                << std::flush;
    ends.wait();
    streams.err << "finishing " << service.figures().sequences << " sequences\n" << std::flush;
    if (!service.drain(milliseconds(command.drain_time))) streams.err << "some took too long and were ended\n";
    http.reset();
    write_statistics(command.model, *model, streams);
    return exit_success;
}

}  // namespace imbrex::engine
