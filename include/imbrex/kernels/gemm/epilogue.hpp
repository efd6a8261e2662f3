// What is done to a product before it is stored: D = epilogue(A B). An epilogue is any type with
//
//     template <class Scope, class Tile>
//     IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place at) const;
//
// It is called for every part of D, with that part's values in fp32 in a register tile (in row order) and where in D they
// belong, and changes the values with the vocabulary's operations. Epilogues are joined by `then`, done from left to right:
//
//     auto epilogue = then(scaled{0.5f}, biased<bf16>{{bias, n}}, activated<silu>{}, plus<bf16>{residual_view});
//
// Parts may hang over the edge of D; what is beyond it is not stored, and the steps here do not read beyond either.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/global_view.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <cstdint>

namespace imbrex {

// Where the first of the values lies: which product of a batch, which row and column of it.
struct gemm_place {
    int batch;
    int row;
    int column;
};

// A vector in global memory that goes with D: one value for each of its rows, or for each of its columns.
template <class T>
struct gemm_vector {
    const T* pointer = nullptr;
    int count = 0;
    std::int64_t batch_stride = 0;  // 0: the same for every product of a batch

    IMBREX_FN const T* from(int batch, int first) const { return pointer + batch * batch_stride + first; }
    IMBREX_FN int left(int first) const { return count - first; }
};

// A matrix like D, or one for each product of a batch.
template <class T>
using gemm_view = global_view<T, dimensions<dynamic, dynamic, dynamic>, dimensions<dynamic, dynamic, 1>>;

template <class T>
IMBREX_FN gemm_view<T> gemm_matrix_like(T* pointer, std::int64_t rows, std::int64_t columns,
                                        std::int64_t row_stride = 0, std::int64_t batch_stride = 0) {
    return {pointer, {1, rows, columns}, {batch_stride, row_stride == 0 ? columns : row_stride}};
}

// The product as it is.
struct plain_product {
    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope&, Tile&, gemm_place) const {}
};

// All values times a number that the host knows (alpha).
struct scaled {
    float factor = 1;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place) const {
        const float times = factor;
        map(self, values, [=](float x) { return x * times; });
    }
};

// The same with numbers in global memory: the product of one or two of them, as e4m3 operands bring each their own.
struct scaled_by {
    const float* first = nullptr;
    const float* second = nullptr;  // may be left out

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place) const {
        const float times = second == nullptr ? *first : *first * *second;
        map(self, values, [=](float x) { return x * times; });
    }
};

// Each row, or each column, times its own number.
struct scaled_rows {
    gemm_vector<float> factors;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place at) const {
        row_values_of<Tile> times;
        load(self, times, factors.from(at.batch, at.row), factors.left(at.row));
        combine_with_rows(self, values, times, multiply{});
    }
};
struct scaled_columns {
    gemm_vector<float> factors;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place at) const {
        column_values_of<Tile> times;
        load(self, times, factors.from(at.batch, at.column), factors.left(at.column));
        combine_with_columns(self, values, times, multiply{});
    }
};

// Divided by a scale in global memory. With D of e4m3 or int8, into which values are rounded and saturated, this is
// quantisation.
struct quantised {
    const float* scale = nullptr;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place) const {
        const float times = 1.0f / *scale;
        map(self, values, [=](float x) { return x * times; });
    }
};

// A number added to each column.
template <class T>
struct biased {
    gemm_vector<T> bias;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place at) const {
        column_values_of<Tile, T> numbers;
        load(self, numbers, bias.from(at.batch, at.column), bias.left(at.column));
        combine_with_columns(self, values, numbers, [](float x, T b) { return x + convert<float>(b); });
    }
};

// Another matrix added, `factor` times: a residual, or beta C. It may be D itself.
template <class T>
struct plus {
    gemm_view<const T> other;
    float factor = 1;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place at) const {
        hw::fragment<T, Tile::rows, Tile::columns, Tile::warps> more;
        load(self, more, other.at(at.batch, at.row, at.column));
        const float times = factor;
        combine(self, values, more, [=](float x, T y) { return hw::fma(times, convert<float>(y), x); });
    }
};

// Activations, as functions of one number.
struct relu {
    IMBREX_KERNEL float operator()(float x) const { return hw::max(x, 0.0f); }
};
struct silu {
    IMBREX_KERNEL float operator()(float x) const { return x * hw::reciprocal(1 + hw::exp2(x * -1.4426950408889634f)); }
};
// By the error function, and the approximation by a hyperbolic tangent that some models were trained with.
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

template <class Activation>
struct activated {
    Activation activation;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place) const {
        map(self, values, activation);
    }
};

// D = activation(A G) * (A U), where B is G and U side by side: B has twice the columns of D. It can only be the first step:
// the ones that follow see the one matrix that is left.
template <class Activation>
struct gated {
    Activation activation;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& gate, const Tile& up, gemm_place) const {
        const Activation f = activation;
        combine(self, gate, up, [=](float g, float u) { return f(g) * u; });
    }
};

// Steps one after the other.
template <class... Steps>
struct epilogue_steps;

template <class Last>
struct epilogue_steps<Last> {
    Last last;

    template <class Scope, class Tile, class... More>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, const More&... more) const {
        last(self, values, more...);
    }
};
template <class First, class... Rest>
struct epilogue_steps<First, Rest...> {
    First first;
    epilogue_steps<Rest...> rest;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_place at) const {
        first(self, values, at);
        rest(self, values, at);
    }
    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& gate, const Tile& up, gemm_place at) const {
        first(self, gate, up, at);
        rest(self, gate, at);
    }
};

template <class Last>
epilogue_steps<Last> then(Last last) {
    return {last};
}
template <class First, class... Rest>
epilogue_steps<First, Rest...> then(First first, Rest... rest) {
    return {first, then(rest...)};
}

// Whether an epilogue begins with a gate and so takes two tiles.
template <class Epilogue>
inline constexpr bool is_gated = false;
template <class Activation>
inline constexpr bool is_gated<gated<Activation>> = true;
template <class First, class... Rest>
inline constexpr bool is_gated<epilogue_steps<First, Rest...>> = is_gated<First>;

}  // namespace imbrex
