// Tale accuracy of a model in the engine, for each of the given weight formats: the engine continues first paragraphs
// of held-out tales (openings.txt), and the checker counts correct statements.
//
//     tale_accuracy examples/tales/model examples/tales 200 0.8 bf16 e4m3 int8 int4 int4@cuda
#include <imbrex/core/error.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/serving/text_engine.hpp"
#include "tales/tale_checker.hpp"

using namespace imbrex;
using namespace imbrex::engine;

namespace {

std::string content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    require(file.good(), path.string(), ": cannot be read");
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> first_lines(const std::string& text, std::size_t count) {
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < text.size() && lines.size() < count;) {
        const std::size_t end = text.find('\n', at);
        if (end == std::string::npos) break;
        lines.push_back(text.substr(at, end + 1 - at));
        at = end + 1;
    }
    return lines;
}

// "int4" runs on a CPU, "int4@cuda" on a GPU.
engine_options options_named(const std::string& name) {
    const std::string on_gpu = "@cuda";
    const bool is_gpus = name.ends_with(on_gpu);
    const std::string form = name.substr(0, name.size() - (is_gpus ? on_gpu.size() : 0));
    for (const weight_format format :
         {weight_format::f32, weight_format::bf16, weight_format::e4m3, weight_format::int8, weight_format::int4}) {
        if (form == name_of(format)) return {.where = is_gpus ? world::device : world::host, .weights = format};
    }
    throw error(
        str_cat("weights: ", name, "; f32, bf16, e4m3, int8 or int4 is allowed, with @cuda behind it or without"));
}

tale_figures figures_of(const std::filesystem::path& model, const std::vector<std::string>& openings, float temperature,
                        const tale_checker& checker, const engine_options& how) {
    text_engine engine(open_model(model), how);
    std::unordered_map<sequence_id, std::size_t> numbers;
    std::vector<std::string> tales = openings;
    for (std::size_t i = 0; i < openings.size(); ++i) {
        text_options options;
        options.sampling.temperature = temperature;
        options.sampling.seed = i;
        numbers.emplace(engine.submit(openings[i], options), i);
    }
    while (!engine.idle()) {
        for (const text_event& each : engine.step()) tales[numbers.at(each.id)] += each.text;
    }
    tale_figures figures;
    for (std::size_t i = 0; i < tales.size(); ++i) figures.add(checker.check(tales[i], openings[i].size()));
    return figures;
}

}  // namespace

int main(int count, char** arguments) try {
    require(count > 5, "usage: ", arguments[0], " MODEL TALES_FOLDER COUNT TEMPERATURE FORM...");
    const std::filesystem::path model = arguments[1], folder = arguments[2];
    const auto openings = first_lines(content(folder / "openings.txt"), std::strtoul(arguments[3], nullptr, 10));
    const float temperature = std::strtof(arguments[4], nullptr);
    const tale_checker checker(content(folder / "grammar.txt"));
    std::printf("%zu tales, temperature %g\n\n", openings.size(), static_cast<double>(temperature));
    std::printf(
        "| weights | statements right | tales wholly right | sentences that parse |\n| --- | --- | --- | --- |\n");
    for (int i = 5; i < count; ++i) {
        const tale_figures figures = figures_of(model, openings, temperature, checker, options_named(arguments[i]));
        std::printf("| %s | %.2f%% | %.1f%% | %.2f%% |\n", arguments[i], 100 * figures.statements_right(),
                    100 * figures.tales_wholly_right(), 100 * figures.sentences_parsed());
        std::fflush(stdout);
    }
    return 0;
} catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
}
