// rms_norm behind a plain function (../variant.hpp).
#pragma once

#include "../calls/rms_norm.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/rms_norm.hpp>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class T, class Weight>
struct rms_norm {
    using call = rms_norm_call;

    static void run(const execution& on, const call& c) {
        rms_norm_problem<T, Weight> p{.x = rows_of<const T>(c.x, "x"),
                                      .weight = elements_of<const Weight>(c.weight, "weight", c.x.sizes[c.x.rank - 1]),
                                      .out = rows_of<T>(c.out, "out"),
                                      .epsilon = c.epsilon};
        if (c.residual.given()) p.residual = rows_of<T>(c.residual, "residual");
        launch_or_check<imbrex::rms_norm<T, Weight>>(on, p);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
