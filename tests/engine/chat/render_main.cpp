// Renders chat templates for compare_templates.py. Each line of the standard input is {"template": ..., "variables": {...},
// "now": "2026-01-31"}; each line of the output is {"text": ...} or {"error": ...}.
#include <imbrex/core/error.hpp>
#include <iostream>
#include <string>

#include "engine/chat/jinja_template.hpp"

int main() {
    using namespace imbrex::engine;
    for (std::string line; std::getline(std::cin, line);) {
        nlohmann::ordered_json result;
        try {
            const auto input = nlohmann::ordered_json::parse(line);
            jinja::render_options options;
            const std::string now = input.at("now");
            options.now.tm_year = std::stoi(now.substr(0, 4)) - 1900;
            options.now.tm_mon = std::stoi(now.substr(5, 2)) - 1;
            options.now.tm_mday = std::stoi(now.substr(8, 2));
            std::mktime(&options.now);
            const jinja::jinja_template text(input.at("template").get<std::string>(), "template");
            result["text"] = text.render(input.at("variables"), options);
        } catch (const imbrex::error& failure) {
            result["error"] = failure.what();
        }
        std::cout << result.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << "\n";
    }
}
