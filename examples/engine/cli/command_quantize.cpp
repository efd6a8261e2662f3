// The command "quantize": converts the weights once and writes a file that is used as it lies on the disk.
#include <filesystem>

#include "engine/cli/command_model.hpp"
#include "engine/cli/progress_bar.hpp"
#include "engine/model/quantise_file.hpp"

namespace imbrex::engine {

int run_quantize(const quantize_command& command, const command_streams& streams) {
    {
        progress_bar bar(streams.err, is_terminal(streams.err), "writing", "MB", 1000000);
        quantise_file(command.from, command.to, weight_format_named(command.weights),
                      mixture_size(command.weights, command.weights_budget),
                      [&](std::int64_t done, std::int64_t all) { bar.update(done, all); });
    }
    const std::filesystem::path to = command.to;
    const bool is_folder = std::filesystem::is_directory(to);
    const std::uintmax_t bytes = std::filesystem::file_size(is_folder ? to / "model.gguf" : to);
    streams.err << to.string() << ": " << bytes / 1000000 << " MB\n";
    return exit_success;
}

}  // namespace imbrex::engine
