// The frequencies of a rotary position embedding, from what a model's configuration says of them: base, rotated columns and
// scaling, by the formulas with which Hugging Face's transformers initialise theirs (ROPE_INIT_FUNCTIONS). Everything is computed
// in double, on the host and once.
//
//     pair i of n / 2 turns by base^(-2 i / n) radians a position; then by what the scaling makes of it:
//
//     rope_default     nothing
//     rope_linear    all of them divided by a factor
//     rope_llama3    those that turn seldom in the original context are divided, those that turn often are not
//     rope_yarn      the same along a ramp over the pairs; and what is rotated is multiplied by an attention factor
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
    double high_freq_factor = 4;  // those with more are not
    double original_max_position_embeddings = 8192;
};

struct rope_yarn {
    double factor = 1;
    double original_max_position_embeddings = 0;
    double beta_fast = 32;  // pairs with more turns in the original context are left as they are
    double beta_slow = 1;   // those with fewer are divided
    std::optional<double> attention_factor = {};
    std::optional<double> mscale = {};  // with the next one, says the attention factor if that is left out
    std::optional<double> mscale_all_dim = {};
    bool truncate = true;  // the ramp begins and ends at whole pairs
};

using rope_scaling = std::variant<rope_default, rope_linear, rope_llama3, rope_yarn>;

namespace detail {

inline constexpr double pi = 3.14159265358979323846;

inline void require_positive(double value, const char* name) {
    require(std::isfinite(value) && value > 0, name, ": ", value, "; a positive number is needed");
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
            "; it must be greater than the low one, which is ", scaling.low_freq_factor);
    require_positive(scaling.original_max_position_embeddings, "scaling.original_max_position_embeddings");
}
inline void require_scaling(const rope_yarn& scaling) {
    require_positive(scaling.factor, "scaling.factor");
    require_positive(scaling.original_max_position_embeddings, "scaling.original_max_position_embeddings");
    require_positive(scaling.beta_slow, "scaling.beta_slow");
    require_positive(scaling.beta_fast, "scaling.beta_fast");
    require(scaling.beta_fast >= scaling.beta_slow, "scaling.beta_fast: ", scaling.beta_fast,
            "; it must not be less than the slow one, which is ", scaling.beta_slow);
    if (scaling.attention_factor) require_positive(*scaling.attention_factor, "scaling.attention_factor");
    for (const auto& part : {scaling.mscale, scaling.mscale_all_dim}) {
        require(!part || (std::isfinite(*part) && *part >= 0),
                "scaling.mscale, scaling.mscale_all_dim: ", part.value_or(0), "; neither may be negative");
    }
}

// Frequencies without scaling are given; they are in radians a position.
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
    // The pair, counted in parts of one, that turns so often in the original context.
    const auto pair_of = [&](double turns) {
        return pairs * std::log(scaling.original_max_position_embeddings / (turns * 2 * pi)) / std::log(theta);
    };
    double first = pair_of(scaling.beta_fast), last = pair_of(scaling.beta_slow);
    if (scaling.truncate) {
        first = std::floor(first);
        last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, 2 * pairs - 1);  // columns, as the formula of the others has it
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

// In 2^-64 turns, without whole ones.
inline std::uint64_t inv_freq_fixed_point(double radians) {
    const double turns = radians / (2 * pi);
    return static_cast<std::uint64_t>(std::ldexp(turns - std::floor(turns), 64));
}

}  // namespace detail

struct rope_frequencies {
    double theta = 10000;
    int rotary_dim = 0;  // that are rotated: all of a head, or fewer
    rope_scaling scaling = rope_default{};

    // One for each pair of columns, in radians a position.
    std::vector<double> inv_freq_double() const {
        require_valid();
        std::vector<double> frequencies(static_cast<std::size_t>(rotary_dim / 2));
        for (std::size_t i = 0; i < frequencies.size(); ++i) {
            frequencies[i] = std::pow(theta, -2 * static_cast<double>(i) / rotary_dim);
        }
        std::visit([&](const auto& kind) { detail::scale_frequencies(kind, theta, frequencies); }, scaling);
        return frequencies;
    }
    // The same as others have them.
    std::vector<float> inv_freq_float() const {
        const std::vector<double> all = inv_freq_double();
        return {all.begin(), all.end()};
    }
    // And as kernels do, in parts of a turn.
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

    // What a kernel takes, with the turns where it can read them.
    rope_embedding embedding(const std::uint64_t* inv_freq, rope_style style) const {
        require(inv_freq != nullptr, "inv_freq: null; ", rotary_dim / 2, " numbers are needed");
        return {inv_freq, rotary_dim, style, attention_factor()};
    }

  private:
    void require_valid() const {
        require(std::isfinite(theta) && theta > 1, "theta: ", theta, "; a number greater than 1 is needed");
        require(rotary_dim >= 2 && rotary_dim <= 256 && rotary_dim % 2 == 0, "rotary_dim: ", rotary_dim,
                "; pairs are rotated, an even number of columns from 2 to 256");
        std::visit([](const auto& kind) { detail::require_scaling(kind); }, scaling);
    }
};

// Frequencies from elsewhere, in radians a position, as kernels have them. Then embedding is rope_embedding{turns, columns, style}.
template <class Number = float>
std::vector<std::uint64_t> rope_fixed_point_inv_freq(const std::vector<Number>& inv_freq) {
    std::vector<std::uint64_t> all;
    for (const Number frequency : inv_freq) {
        require(std::isfinite(frequency) && frequency >= 0, "inv_freq[", all.size(), "]: ", frequency,
                "; a frequency is finite and not negative");
        all.push_back(detail::inv_freq_fixed_point(frequency));
    }
    return all;
}

}  // namespace imbrex
