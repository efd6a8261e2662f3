// rope behind a plain function (../variant.hpp).
#pragma once

#include "../calls/rope.hpp"
#include "../rope.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/rope.hpp>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class T>
struct rope {
    using call = rope_call;

    static void run(const execution& on, const call& c) {
        require(c.first_position == static_cast<int>(c.first_position), "first_position: ", c.first_position,
                "; must be a 32-bit integer");
        const apply_rope_problem<T> p{.x = rows_of<const T>(c.x, "x"),
                                      .positions = elements_of<const int>(c.positions, "positions", c.x.sizes[0]),
                                      .first_position = static_cast<int>(c.first_position),
                                      .rope = rope_of(c.inv_freq, c.style, c.attention_factor),
                                      .out = rows_of<T>(c.out, "out")};
        launch_or_check<apply_rope<T>>(on, p);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
