// layer_norm behind a plain function (../variant.hpp).
#pragma once

#include "../calls/layer_norm.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/layer_norm.hpp>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class T, class Weight>
struct layer_norm {
    using call = layer_norm_call;

    static void run(const execution& on, const call& c) {
        const std::int64_t columns = c.x.sizes[c.x.rank - 1];
        layer_norm_problem<T, Weight> p{.x = rows_of<const T>(c.x, "x"),
                                        .weight = elements_of<const Weight>(c.weight, "weight", columns),
                                        .bias = elements_of<const Weight>(c.bias, "bias", columns),
                                        .out = rows_of<T>(c.out, "out"),
                                        .epsilon = c.epsilon};
        if (c.residual.given()) p.residual = rows_of<T>(c.residual, "residual");
        launch_or_check<imbrex::layer_norm<T, Weight>>(on, p);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
