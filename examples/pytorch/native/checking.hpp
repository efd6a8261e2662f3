// imbrex_torch.check: while a thread checks, operators on CPU tensors run in the checked host world.
#pragma once

#include "../../bindings/variant.hpp"

namespace imbrex_torch {

// Turns an execution in the host world into a checked one, if the thread checks.
void give_check(imbrex::bindings::execution& on);

}  // namespace imbrex_torch
