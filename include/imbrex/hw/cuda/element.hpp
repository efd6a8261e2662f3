// One element of a shared tile or vector on the device: its address.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>

namespace imbrex::hw {

template <class Shared>
IMBREX_KERNEL auto element_at(Shared& shared, int row, int column, source) {
    return shared.address(row, column);
}
template <class Shared>
IMBREX_KERNEL auto element_at(Shared& shared, int index, source) {
    return shared.address(index);
}

}  // namespace imbrex::hw
