// The norms of a model in the memory of one world: RMSNorm, or LayerNorm with weight and bias.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/layer_norm.hpp>
#include <imbrex/kernels/rms_norm.hpp>
#include <imbrex/kernels/row_view.hpp>

#include <cstdint>
#include <vector>

#include "engine/model/world_buffer.hpp"

namespace imbrex::engine {

// As loaded. Without weights there is no norm; with a bias it is LayerNorm.
struct norm_weights {
    std::vector<float> weight, bias;
    float epsilon = 0;

    bool given() const { return !weight.empty(); }
    bool is_rms() const { return given() && bias.empty(); }
};

inline namespace IMBREX_WORLDS {

class model_norm {
  public:
    model_norm() = default;
    model_norm(world where, const norm_weights& from)
        : weight_(where, from.weight), bias_(where, from.bias), epsilon_(from.epsilon) {}

    bool given() const { return weight_.size() > 0; }
    bool is_rms() const { return given() && bias_.size() == 0; }
    const float* weight() const { return weight_.data(); }
    float epsilon() const { return epsilon_; }

    // out = norm(x); with a residual: residual += x, out = norm(residual). `out` may be x.
    template <class T>
    void launch(world where, const T* x, T* out, std::int64_t rows, T* residual, void* stream) const {
        const std::int64_t columns = weight_.size();
        const row_view<T> sum = residual == nullptr ? row_view<T>{} : as_rows(residual, rows, columns);
        if (bias_.size() > 0) {
            layer_norm<T, float>::launch(where,
                                         {.x = as_rows(x, rows, columns),
                                          .weight = weight_.data(),
                                          .bias = bias_.data(),
                                          .out = as_rows(out, rows, columns),
                                          .residual = sum,
                                          .epsilon = epsilon_},
                                         stream);
        } else {
            rms_norm<T, float>::launch(where,
                                       {.x = as_rows(x, rows, columns),
                                        .weight = weight_.data(),
                                        .out = as_rows(out, rows, columns),
                                        .residual = sum,
                                        .epsilon = epsilon_},
                                       stream);
        }
    }

  private:
    world_buffer<float> weight_, bias_;
    float epsilon_ = 0;
};

// What attention and MLP end with: out += norm(x W^T + bias). Bias and norm are optional.
template <class Matrix>
struct residual_projection {
    Matrix weights;
    world_buffer<float> bias;
    model_norm after;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
