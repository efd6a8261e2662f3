// The latencies of requests as their clients see them: time to first token (TTFT), inter-token latency (ITL), and the
// share of requests within limits for both (goodput). Times are arguments, so that a simulation can use it too.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace imbrex::engine {

struct latency_limits {
    double ttft = 1;    // seconds
    double itl = 0.05;  // seconds, mean of the request
};

// In seconds. A percentile is the smallest value that so many percent of the values do not exceed.
struct latency_percentiles {
    double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
latency_percentiles percentiles_of(std::vector<double> values);

struct latency_summary {
    int requests = 0;
    int finished = 0;
    std::int64_t tokens = 0;        // generated
    double seconds = 0;             // from 0 to the last token
    double tokens_per_second = 0;   // generated
    latency_percentiles ttft, itl;  // ITL: of all gaps between tokens
    double goodput = 0;             // share of requests that finished within both limits

    std::string json() const;  // one object, on one line
};

class request_latencies {
  public:
    int arrived(double time);  // the number of the request
    void token(int request, double time);
    void finished(int request);

    latency_summary summary(const latency_limits& limits) const;

  private:
    struct request {
        double arrival = 0, first = 0, last = 0;
        int tokens = 0;
        bool finished = false;
    };
    static bool meets(const request& one, const latency_limits& limits);

    std::vector<request> requests_;
    std::vector<double> gaps_;
};

}  // namespace imbrex::engine
