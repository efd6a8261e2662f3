// The file of `imbrex bench --step-costs`: a line of JSON for each step, with what it computed and the seconds that it
// took. The first line describes the replica, so that a simulated one has the same scheduler and KV cache.
#pragma once

#include <fstream>
#include <string>

#include "engine/serving/text_engine.hpp"

namespace imbrex::engine {

class step_cost_file {
  public:
    // Without a path nothing is written.
    step_cost_file(const std::string& path, const text_engine& model, const engine_options& options,
                   const std::string& name);

    // The lines that follow carry this name: a row of the table, or a trace.
    void begin(const std::string& source) { source_ = source; }
    void add(const step_load& load, double seconds);
    // Throws unless everything has been written.
    void close();

  private:
    std::string path_, source_;
    std::ofstream file_;
};

}  // namespace imbrex::engine
