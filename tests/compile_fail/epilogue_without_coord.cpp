// An epilogue with a wrong signature.
// first: imbrex: Epilogue must have template <class Scope, class Tile> IMBREX_KERNEL void operator()(const Scope& self, Tile& values, gemm_coord at) const
#include <imbrex/kernels/gemm.hpp>

struct wrong_epilogue {
    template <class Tile>
    void operator()(Tile&) const {}
};

int main() {
    imbrex::gemm<imbrex::bf16, imbrex::bf16, imbrex::gemm_options{}, wrong_epilogue>::launch(imbrex::world::host, {});
}
