// TMA does not convert element types.
// expect: a tensor's elements and its tile's must be of one type
#include <imbrex/imbrex.hpp>

using namespace imbrex;

auto wrong(float* pointer) {
    return make_tma_tensor<shared_tile<bf16, 64, 64>>(matrix(pointer, 64, 64));
}
