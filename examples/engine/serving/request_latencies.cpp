#include "engine/serving/request_latencies.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace imbrex::engine {

latency_percentiles percentiles_of(std::vector<double> values) {
    if (values.empty()) return {};
    const auto count = static_cast<double>(values.size());
    const auto rank = [&](double share) {
        const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::ceil(share * count)) - 1;
        std::nth_element(values.begin(), nth, values.end());
        return *nth;
    };
    return {.mean = std::accumulate(values.begin(), values.end(), 0.0) / count,
            .p50 = rank(0.5),
            .p90 = rank(0.9),
            .p99 = rank(0.99),
            .max = *std::ranges::max_element(values)};
}

int request_latencies::arrived(double time) {
    requests_.push_back({.arrival = time});
    return static_cast<int>(requests_.size()) - 1;
}

void request_latencies::token(int request, double time) {
    auto& it = requests_.at(static_cast<std::size_t>(request));
    if (it.tokens++ == 0) {
        it.first = time;
    } else {
        gaps_.push_back(time - it.last);
    }
    it.last = time;
}

void request_latencies::finished(int request) {
    requests_.at(static_cast<std::size_t>(request)).finished = true;
}

bool request_latencies::meets(const request& one, const latency_limits& limits) {
    const double gaps = std::max(one.tokens - 1, 1);
    return one.finished && one.first - one.arrival <= limits.ttft && (one.last - one.first) / gaps <= limits.itl;
}

latency_summary request_latencies::summary(const latency_limits& limits) const {
    latency_summary made;
    made.requests = static_cast<int>(requests_.size());
    std::vector<double> ttfts;
    int good = 0;
    for (const request& one : requests_) {
        made.finished += one.finished ? 1 : 0;
        good += meets(one, limits) ? 1 : 0;
        made.tokens += one.tokens;
        made.seconds = std::max(made.seconds, one.last);
        if (one.tokens > 0) ttfts.push_back(one.first - one.arrival);
    }
    made.tokens_per_second = made.seconds > 0 ? static_cast<double>(made.tokens) / made.seconds : 0;
    made.ttft = percentiles_of(std::move(ttfts));
    made.itl = percentiles_of(gaps_);
    made.goodput = requests_.empty() ? 1 : static_cast<double>(good) / made.requests;
    return made;
}

std::string latency_summary::json() const {
    const auto of = [](const latency_percentiles& one) {
        return nlohmann::ordered_json{
            {"mean", one.mean}, {"p50", one.p50}, {"p90", one.p90}, {"p99", one.p99}, {"max", one.max}};
    };
    return nlohmann::ordered_json{{"requests", requests},
                                  {"finished", finished},
                                  {"tokens", tokens},
                                  {"seconds", seconds},
                                  {"tokens_per_second", tokens_per_second},
                                  {"ttft", of(ttft)},
                                  {"itl", of(itl)},
                                  {"goodput", goodput}}
        .dump();
}

}  // namespace imbrex::engine
