// GEMM epilogues: functors applied to the fp32 accumulator before it is stored, D = epilogue(A B). Scaling, bias,
// residual, activation, SwiGLU and quantisation are here. An epilogue is any type with
//
//     template <class Scope, class Tile>
//     IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const;
//
// It is called for every subtile of D with the fp32 values in a row-major register tile and the coordinate of the
// subtile in D, and modifies the values with the register operations (ops/register). `compose` chains epilogues from
// left to right:
//
//     auto e = epilogue::compose(epilogue::scale{0.5f}, epilogue::bias<bf16>{{bias, n}},
//                                epilogue::activation<activation::silu>{}, epilogue::residual<bf16>{residual_view});
//
// Subtiles may extend past the edge of D. Out-of-bounds values are not stored, and the epilogues here do not read out
// of bounds.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/global_view.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <cstdint>

namespace imbrex {

// The coordinate of the first value of a tile in D.
struct gemm_coord {
    int batch;
    int row;
    int column;
};

// A vector in global memory with one value per row or per column of D.
template <class T>
struct gemm_vector {
    const T* pointer = nullptr;
    int count = 0;
    std::int64_t batch_stride = 0;  // 0: every batch uses this vector

    IMBREX_FN const T* from(int batch, int first) const { return pointer + batch * batch_stride + first; }
    IMBREX_FN int remaining(int first) const { return count - first; }
};

// A matrix with the extents of D, batched.
template <class T>
using gemm_view = global_view<T, dimensions<dynamic, dynamic, dynamic>, dimensions<dynamic, dynamic, 1>>;

template <class T>
IMBREX_FN gemm_view<T> gemm_matrix_view(T* pointer, std::int64_t rows, std::int64_t columns,
                                        std::int64_t row_stride = 0, std::int64_t batch_stride = 0) {
    return {pointer, {1, rows, columns}, {batch_stride, row_stride == 0 ? columns : row_stride}};
}

namespace epilogue {

// Stores the product unchanged.
struct identity {
    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope&, Tile&, gemm_coord) const {}
};

// alpha: multiplies by a factor known on the host.
struct scale {
    float factor = 1;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord) const {
        const float times = factor;
        map(self, values, [=](float x) { return x * times; });
    }
};

// alpha in global memory: one factor or the product of two, such as the per-tensor scales of two e4m3 operands.
struct scale_by_pointer {
    const float* first = nullptr;
    const float* second = nullptr;  // optional

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord) const {
        const float times = second == nullptr ? *first : *first * *second;
        map(self, values, [=](float x) { return x * times; });
    }
};

// One factor per row, or one per column.
struct scale_rows {
    gemm_vector<float> factors;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const {
        row_values_of<Tile> times;
        load(self, times, factors.from(at.batch, at.row), factors.remaining(at.row));
        combine_with_rows(self, values, times, functional::multiply{});
    }
};
struct scale_columns {
    gemm_vector<float> factors;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const {
        column_values_of<Tile> times;
        load(self, times, factors.from(at.batch, at.column), factors.remaining(at.column));
        combine_with_columns(self, values, times, functional::multiply{});
    }
};

// Divides by a scale in global memory. If D is e4m3 or int8, the conversion that follows rounds and saturates.
struct quantise {
    const float* scale = nullptr;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord) const {
        const float times = 1.0f / *scale;
        map(self, values, [=](float x) { return x * times; });
    }
};

// Adds one value per column.
template <class T>
struct bias {
    gemm_vector<T> vector;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const {
        column_values_of<Tile, T> numbers;
        load(self, numbers, vector.from(at.batch, at.column), vector.remaining(at.column));
        combine_with_columns(self, values, numbers, [](float x, T b) { return x + convert<float>(b); });
    }
};

// Adds `factor` times another matrix: a residual connection, or beta C. It may be D itself.
template <class T>
struct residual {
    gemm_view<const T> other;
    float factor = 1;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const {
        hw::fragment<T, Tile::rows, Tile::columns, Tile::warps> more;
        load(self, more, other.at(at.batch, at.row, at.column));
        const float times = factor;
        combine(self, values, more, [=](float x, T y) { return hw::fma(times, convert<float>(y), x); });
    }
};

}  // namespace epilogue

namespace activation {

// Elementwise activation functions.
struct relu {
    IMBREX_KERNEL float operator()(float x) const { return hw::max(x, 0.0f); }
};
struct silu {
    IMBREX_KERNEL float operator()(float x) const { return x * hw::reciprocal(1 + hw::exp2(x * -1.4426950408889634f)); }
};
// The exact GELU (erf) and its tanh approximation.
struct gelu {
    IMBREX_KERNEL float operator()(float x) const { return 0.5f * x * (1 + hw::erf(x * 0.7071067811865476f)); }
};
struct gelu_tanh {
    IMBREX_KERNEL float operator()(float x) const {
        // x * sigmoid(2 u) is 0.5 x (1 + tanh u).
        const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
        return x * hw::reciprocal(1 + hw::exp2(u * -2.8853900817779268f));
    }
};

// Functions of gate and up. The clamped SwiGLU of GPT-OSS: gate at most `limit`, up within it, and up + 1. With an
// infinite limit, alpha 1 and up_offset 0 it is swiglu.
struct swiglu {
    IMBREX_KERNEL float operator()(float gate, float up) const { return silu{}(gate)*up; }
};
struct clamped_swiglu {
    float limit = 7;
    float alpha = 1.702f;
    float up_offset = 1;

    IMBREX_KERNEL float operator()(float gate, float up) const {
        const float g = hw::min(gate, limit), u = hw::min(hw::max(up, -limit), limit);
        return g * hw::reciprocal(1 + hw::exp2(alpha * g * -1.4426950408889634f)) * (u + up_offset);
    }
};

}  // namespace activation

namespace epilogue {

template <class Activation>
struct activation {
    Activation function;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord) const {
        map(self, values, function);
    }
};

// Gated linear unit: D = activation(A G) * (A U), with B = [G U], twice the columns of D. It must be the first step of
// a composition; the steps after it see one matrix. SwiGLU is glu<silu>.
template <class Activation>
struct glu {
    Activation function;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& gate, const Tile& up, gemm_coord) const {
        const Activation f = function;
        combine(self, gate, up, [=](float g, float u) { return f(g) * u; });
    }
};

using swiglu = glu<imbrex::activation::silu>;

// A GLU of biased products, with any function of gate and up: D = function(A G + bias, A U + bias). The bias vector has
// 2 n values, gate and up side by side as in B.
template <class T, class Function>
struct biased_glu {
    gemm_vector<T> bias;
    Function function;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& gate, const Tile& up, gemm_coord at) const {
        const int columns = bias.count / 2, left = columns - at.column;
        column_values_of<Tile, T> of_gate, of_up;
        load(self, of_gate, bias.from(at.batch, at.column), left);
        load(self, of_up, bias.from(at.batch, columns + at.column), left);
        Tile biased_up = up;
        combine_with_columns(self, biased_up, of_up, [](float x, T b) { return x + convert<float>(b); });
        const Function f = function;
        combine_with_columns(self, gate, biased_up, of_gate,
                             [=](float g, float u, T b) { return f(g + convert<float>(b), u); });
    }
};

// A sequence of steps, applied from left to right.
template <class... Steps>
struct composition;

template <class Last>
struct composition<Last> {
    Last last;

    template <class Scope, class Tile, class... More>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, const More&... more) const {
        last(self, values, more...);
    }
};
template <class First, class... Rest>
struct composition<First, Rest...> {
    First first;
    composition<Rest...> rest;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const {
        first(self, values, at);
        rest(self, values, at);
    }
    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& gate, const Tile& up, gemm_coord at) const {
        first(self, gate, up, at);
        rest(self, gate, at);
    }
};

template <class Last>
composition<Last> compose(Last last) {
    return {last};
}
template <class First, class... Rest>
composition<First, Rest...> compose(First first, Rest... rest) {
    return {first, compose(rest...)};
}

// Whether an epilogue starts with a GLU and therefore takes two accumulator tiles.
template <class Epilogue>
inline constexpr bool is_glu = false;
template <class Activation>
inline constexpr bool is_glu<glu<Activation>> = true;
template <class T, class Function>
inline constexpr bool is_glu<biased_glu<T, Function>> = true;
template <class First, class... Rest>
inline constexpr bool is_glu<composition<First, Rest...>> = is_glu<First>;

}  // namespace epilogue

template <class Epilogue>
concept gemm_epilogue = requires(const Epilogue& epilogue, const warp& self, warp_tile<float, 16, 16>& values,
                                 gemm_coord at) {
    epilogue(self, values, at);
}
|| requires(const Epilogue& epilogue, const warp& self, warp_tile<float, 16, 16>& gate,
            const warp_tile<float, 16, 16>& up, gemm_coord at) {
    epilogue(self, gate, up, at);
};

}  // namespace imbrex
