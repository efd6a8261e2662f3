// A trace (serving/request_trace.hpp) through an engine in this process, by the wall clock: an open loop, in which
// requests arrive whether or not the engine keeps up.
#pragma once

#include "engine/cli/step_cost_file.hpp"
#include "engine/serving/request_latencies.hpp"
#include "engine/serving/request_trace.hpp"
#include "engine/serving/text_engine.hpp"

namespace imbrex::engine {

// Latencies count from the time at which a request was due. Traces with different seeds share no tokens.
request_latencies run_trace(text_engine& model, const request_trace& trace, int seed, step_cost_file& costs);

}  // namespace imbrex::engine
