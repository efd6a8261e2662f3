// RoPE frequencies (inv_freq) from a model's configuration: theta, rotary_dim and scaling, by the formulas of Hugging
// Face transformers (ROPE_INIT_FUNCTIONS). Computed in double, once, on the host.
//
//     inv_freq[i] = theta^(-2 i / rotary_dim) radians per position, for pair i; then the scaling:
//
//     rope_default   none
//     rope_linear    all divided by a factor
//     rope_llama3    low frequencies are divided, high ones are not, measured by their turns in the original context
//     rope_yarn      the same along a ramp over the pairs, plus an attention factor on the rotated columns
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/kernels/rope/embedding.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace imbrex {

struct rope_default {};

struct rope_linear {
    double factor = 1;
};

struct rope_llama3 {
    double factor = 8;
    double low_freq_factor = 1;   // pairs with fewer turns in the original context are divided
    double high_freq_factor = 4;  // pairs with more are not
    double original_max_position_embeddings = 8192;
};

struct rope_yarn {
    double factor = 1;
    double original_max_position_embeddings = 0;
    double beta_fast = 32;  // pairs with more turns in the original context are not divided
    double beta_slow = 1;   // pairs with fewer are divided
    std::optional<double> attention_factor = {};
    std::optional<double> mscale = {};  // with mscale_all_dim: determines the attention factor if that is not given
    std::optional<double> mscale_all_dim = {};
    bool truncate = true;  // round the ends of the ramp to whole pairs
};

using rope_scaling = std::variant<rope_default, rope_linear, rope_llama3, rope_yarn>;

namespace detail {

inline constexpr double pi = 3.14159265358979323846;

inline void require_positive(double value, const char* name) {
    require(std::isfinite(value) && value > 0, name, ": ", value, "; must be positive");
}

inline void require_scaling(const rope_default&) {}
inline void require_scaling(const rope_linear& scaling) {
    require_positive(scaling.factor, "scaling.factor");
}
inline void require_scaling(const rope_llama3& scaling) {
    require_positive(scaling.factor, "scaling.factor");
    require_positive(scaling.low_freq_factor, "scaling.low_freq_factor");
    require_positive(scaling.high_freq_factor, "scaling.high_freq_factor");
    require(scaling.high_freq_factor > scaling.low_freq_factor, "scaling.high_freq_factor: ", scaling.high_freq_factor,
            "; must be greater than low_freq_factor, ", scaling.low_freq_factor);
    require_positive(scaling.original_max_position_embeddings, "scaling.original_max_position_embeddings");
}
inline void require_scaling(const rope_yarn& scaling) {
    require_positive(scaling.factor, "scaling.factor");
    require_positive(scaling.original_max_position_embeddings, "scaling.original_max_position_embeddings");
    require_positive(scaling.beta_slow, "scaling.beta_slow");
    require_positive(scaling.beta_fast, "scaling.beta_fast");
    require(scaling.beta_fast >= scaling.beta_slow, "scaling.beta_fast: ", scaling.beta_fast,
            "; must not be less than beta_slow, ", scaling.beta_slow);
    if (scaling.attention_factor) require_positive(*scaling.attention_factor, "scaling.attention_factor");
    for (const auto& part : {scaling.mscale, scaling.mscale_all_dim}) {
        require(!part || (std::isfinite(*part) && *part >= 0),
                "scaling.mscale, scaling.mscale_all_dim: ", part.value_or(0), "; neither may be negative");
    }
}

// Scales inv_freq in place, in radians per position.
inline void scale_frequencies(const rope_default&, double, std::vector<double>&) {}

inline void scale_frequencies(const rope_linear& scaling, double, std::vector<double>& frequencies) {
    for (double& frequency : frequencies) frequency /= scaling.factor;
}

inline void scale_frequencies(const rope_llama3& scaling, double, std::vector<double>& frequencies) {
    const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
    for (double& frequency : frequencies) {
        const double turns = scaling.original_max_position_embeddings * frequency / (2 * pi);
        const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
        frequency = (1 - kept) * frequency / scaling.factor + kept * frequency;
    }
}

inline void scale_frequencies(const rope_yarn& scaling, double theta, std::vector<double>& frequencies) {
    const double pairs = static_cast<double>(frequencies.size());
    // The fractional pair index with this many turns in the original context.
    const auto pair_of = [&](double turns) {
        return pairs * std::log(scaling.original_max_position_embeddings / (turns * 2 * pi)) / std::log(theta);
    };
    double first = pair_of(scaling.beta_fast), last = pair_of(scaling.beta_slow);
    if (scaling.truncate) {
        first = std::floor(first);
        last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, 2 * pairs - 1);  // the bound is in columns, as in the original formula
    if (first == last) last += 0.001;
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double divided = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
        frequencies[i] = divided * frequencies[i] / scaling.factor + (1 - divided) * frequencies[i];
    }
}

template <class Scaling>
double attention_factor_of(const Scaling&) {
    return 1;
}
inline double attention_factor_of(const rope_yarn& scaling) {
    if (scaling.attention_factor) return *scaling.attention_factor;
    const auto grown = [&](double by) { return scaling.factor <= 1 ? 1.0 : 0.1 * by * std::log(scaling.factor) + 1; };
    const double all = scaling.mscale_all_dim.value_or(0), own = scaling.mscale.value_or(0);
    return own != 0 && all != 0 ? grown(own) / grown(all) : grown(1);
}

// In 2^-64 turns per position, modulo one turn.
inline std::uint64_t inv_freq_fixed_point(double radians) {
    const double turns = radians / (2 * pi);
    return static_cast<std::uint64_t>(std::ldexp(turns - std::floor(turns), 64));
}

}  // namespace detail

struct rope_frequencies {
    double theta = 10000;
    int rotary_dim = 0;  // at most head_dim
    rope_scaling scaling = rope_default{};

    // One per pair of columns, in radians per position.
    std::vector<double> inv_freq_double() const {
        require_valid();
        std::vector<double> frequencies(static_cast<std::size_t>(rotary_dim / 2));
        for (std::size_t i = 0; i < frequencies.size(); ++i) {
            frequencies[i] = std::pow(theta, -2 * static_cast<double>(i) / rotary_dim);
        }
        std::visit([&](const auto& kind) { detail::scale_frequencies(kind, theta, frequencies); }, scaling);
        return frequencies;
    }
    // The same in float, as in other libraries.
    std::vector<float> inv_freq_float() const {
        const std::vector<double> all = inv_freq_double();
        return {all.begin(), all.end()};
    }
    // The fixed-point form that kernels read, in 2^-64 turns per position.
    std::vector<std::uint64_t> fixed_point_inv_freq() const {
        std::vector<std::uint64_t> all;
        for (const double frequency : inv_freq_double()) all.push_back(detail::inv_freq_fixed_point(frequency));
        return all;
    }

    float attention_factor() const {
        require_valid();
        return static_cast<float>(
            std::visit([](const auto& kind) { return detail::attention_factor_of(kind); }, scaling));
    }

    // The kernel argument. `inv_freq` is fixed_point_inv_freq() in the memory of the kernel's world.
    rope_embedding embedding(const std::uint64_t* inv_freq, rope_style style) const {
        require(inv_freq != nullptr, "inv_freq: null; ", rotary_dim / 2, " numbers are needed");
        return {inv_freq, rotary_dim, style, attention_factor()};
    }

  private:
    void require_valid() const {
        require(std::isfinite(theta) && theta > 1, "theta: ", theta, "; must be greater than 1");
        require(rotary_dim >= 2 && rotary_dim <= 256 && rotary_dim % 2 == 0, "rotary_dim: ", rotary_dim,
                "; must be even, from 2 to 256");
        std::visit([](const auto& kind) { detail::require_scaling(kind); }, scaling);
    }
};

// Fixed-point form of frequencies from elsewhere, in radians per position. Then use rope_embedding{inv_freq,
// rotary_dim, style}.
template <class Number = float>
std::vector<std::uint64_t> rope_fixed_point_inv_freq(const std::vector<Number>& inv_freq) {
    std::vector<std::uint64_t> all;
    for (const Number frequency : inv_freq) {
        require(std::isfinite(frequency) && frequency >= 0, "inv_freq[", all.size(), "]: ", frequency,
                "; must be finite and not negative");
        all.push_back(detail::inv_freq_fixed_point(frequency));
    }
    return all;
}

}  // namespace imbrex
