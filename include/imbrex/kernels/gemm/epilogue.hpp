// What is done to a product before it is stored: D = epilogue(A B). An epilogue is any type with
//
//     template <class Scope, class Tile>
//     IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const;
//
// It is called for every part of D, with that part's values in fp32 in a register tile (in row order) and where in D they
// belong, and changes the values with the vocabulary's operations. Epilogues are joined by `epilogue::compose`, done from left to right:
//
//     auto epilogue = epilogue::compose(epilogue::scale{0.5f}, epilogue::bias<bf16>{{bias, n}}, epilogue::activation<activation::silu>{}, epilogue::residual<bf16>{residual_view});
//
// Parts may hang over the edge of D; what is beyond it is not stored, and the steps here do not read beyond either.
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

// Where the first of the values lies: which product of a batch, which row and column of it.
struct gemm_coord {
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
    IMBREX_FN int remaining(int first) const { return count - first; }
};

// A matrix like D, or one for each product of a batch.
template <class T>
using gemm_view = global_view<T, dimensions<dynamic, dynamic, dynamic>, dimensions<dynamic, dynamic, 1>>;

template <class T>
IMBREX_FN gemm_view<T> gemm_matrix_view(T* pointer, std::int64_t rows, std::int64_t columns,
                                        std::int64_t row_stride = 0, std::int64_t batch_stride = 0) {
    return {pointer, {1, rows, columns}, {batch_stride, row_stride == 0 ? columns : row_stride}};
}

namespace epilogue {

// The product as it is.
struct identity {
    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope&, Tile&, gemm_coord) const {}
};

// All values times a number that the host knows (alpha).
struct scale {
    float factor = 1;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord) const {
        const float times = factor;
        map(self, values, [=](float x) { return x * times; });
    }
};

// The same with numbers in global memory: the product of one or two of them, as e4m3 operands bring each their own.
struct scale_by_pointer {
    const float* first = nullptr;
    const float* second = nullptr;  // may be left out

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord) const {
        const float times = second == nullptr ? *first : *first * *second;
        map(self, values, [=](float x) { return x * times; });
    }
};

// Each row, or each column, times its own number.
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

// Divided by a scale in global memory. With D of e4m3 or int8, into which values are rounded and saturated, this is
// quantisation.
struct quantise {
    const float* scale = nullptr;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord) const {
        const float times = 1.0f / *scale;
        map(self, values, [=](float x) { return x * times; });
    }
};

// A number added to each column.
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

// Another matrix added, `factor` times: a residual, or beta C. It may be D itself.
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

// D = activation(A G) * (A U), where B is G and U side by side: B has twice the columns of D. It can only be the first step:
// the ones that follow see the one matrix that is left.
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

// Steps one after the other.
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

// Whether an epilogue begins with a gate and so takes two tiles.
template <class Epilogue>
inline constexpr bool is_glu = false;
template <class Activation>
inline constexpr bool is_glu<glu<Activation>> = true;
template <class First, class... Rest>
inline constexpr bool is_glu<composition<First, Rest...>> = is_glu<First>;

}  // namespace epilogue

}  // namespace imbrex
