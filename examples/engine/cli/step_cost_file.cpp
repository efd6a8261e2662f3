#include "engine/cli/step_cost_file.hpp"

#include <imbrex/core/error.hpp>
#include <nlohmann/json.hpp>

#include "engine/cli/command_model.hpp"

namespace imbrex::engine {

using json = nlohmann::ordered_json;

step_cost_file::step_cost_file(const std::string& path, const text_engine& model, const engine_options& options,
                               const std::string& name)
    : path_(path) {
    if (path.empty()) return;
    file_.open(path);
    require(file_.is_open(), "--step-costs: ", path, " cannot be written");
    json groups = json::array();
    for (int i = 0; i < model.cache().num_groups(); ++i) {
        const cache_group& group = model.cache().group(i);
        groups.push_back({{"blocks", group.blocks}, {"window", group.window}, {"block_bytes", group.block_bytes}});
    }
    file_ << json{{"model", name},
                  {"world", name_of(options.where)},
                  {"replica",
                   {{"context", model.max_sequence_length()},
                    {"max_num_batched_tokens", options.max_num_batched_tokens},
                    {"max_num_seqs", std::min(options.max_num_seqs, options.max_num_batched_tokens)},
                    {"overlaps", options.overlap && options.where == world::device},
                    {"block_size", model.cache().block_size()},
                    {"groups", groups}}}}
                 .dump()
          << '\n';
}

void step_cost_file::add(const step_load& load, double seconds) {
    if (!file_.is_open() || load == step_load{}) return;  // a step may wait for files
    file_ << json{{"source", source_},
                  {"seconds", seconds},
                  {"prompts", load.prompts},
                  {"prompt_tokens", load.prompt_tokens},
                  {"prompt_context", load.prompt_context},
                  {"decodes", load.decodes},
                  {"decode_context", load.decode_context}}
                 .dump()
          << '\n';
}

void step_cost_file::close() {
    if (!file_.is_open()) return;
    file_.close();
    require(!file_.fail(), "--step-costs: ", path_, " cannot be written");
}

}  // namespace imbrex::engine
