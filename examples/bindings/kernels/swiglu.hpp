// swiglu behind a plain function (../variant.hpp).
#pragma once

#include "../calls/swiglu.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/swiglu.hpp>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class T, class Activation>
struct swiglu {
    using call = swiglu_call;

    static void run(const execution& on, const call& c) {
        const swiglu_problem<T> p{.gate = rows_of<const T>(c.gate, "gate"),
                                  .up = rows_of<const T>(c.up, "up"),
                                  .out = rows_of<T>(c.out, "out")};
        launch_or_check<swiglu_activation<T, Activation>>(on, p, Activation{});
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
