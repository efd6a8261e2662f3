// Options that several commands have: of the model, of the text, of the chat template.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "engine/cli/commands.hpp"

namespace imbrex::engine {

// A range check without a description in the help; the error message has it.
CLI::Validator between(int least, int most);

CLI::Option* add_path(CLI::App& app, std::string& path);
// --random and --random-type; the path is that of add_path.
void add_random_options(CLI::App& app, model_args& model, CLI::Option* path);

CLI::Option* add_budget(CLI::App& app, std::optional<double>& bits);
void add_device_options(CLI::App& app, model_args& model);
void add_model_options(CLI::App& app, model_args& model);  // with those of the device
void add_text_options(CLI::App& app, generation_args& text);
void add_template_options(CLI::App& app, template_args& format);

}  // namespace imbrex::engine
