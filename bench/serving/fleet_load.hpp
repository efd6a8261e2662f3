// Generated load for a fleet: arrivals (Poisson or in bursts), lengths by distributions, shared system prompts and
// conversations of several turns. The same choice and seed give the same trace with every compiler.
#pragma once

#include <engine/serving/request_trace.hpp>

#include <cstdint>
#include <random>
#include <string>

namespace bench {

// A number by one of: fixed:value, uniform:least,most, lognormal:median,sigma, exponential:mean.
class distribution {
  public:
    distribution(const char* text) : distribution(std::string(text)) {}
    explicit distribution(const std::string& text);

    double draw(std::mt19937_64& chance) const;
    int draw_count(std::mt19937_64& chance, int least) const;  // rounded, at least `least`
    const std::string& text() const { return text_; }

  private:
    enum class kind { fixed, uniform, lognormal, exponential };

    std::string text_;
    kind kind_ = kind::fixed;
    double first_ = 0, second_ = 0;
};

struct load_options {
    double rate = 1;        // conversations a second
    double seconds = 60;    // of arrivals
    double burstiness = 1;  // variance of the time between arrivals over its mean squared; 1: Poisson
    distribution input = "lognormal:512,0.8";
    distribution output = "lognormal:128,0.6";
    distribution turns = "fixed:1";
    distribution think = "exponential:10";  // seconds from an answer to the next turn
    int systems = 0;                        // different system prompts, equally likely; 0: none
    distribution system_tokens = "fixed:1024";
    int max_tokens = 0;  // of a conversation: turns that would exceed it are left out; 0: no limit
    std::uint64_t seed = 1;
};

imbrex::engine::request_trace generate_load(const load_options& options);

}  // namespace bench
