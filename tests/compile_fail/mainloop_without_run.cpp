// A mainloop with a wrong signature.
// first: imbrex: Mainloop must have template <operand_transpose A, operand_transpose B, int Parts
#include <imbrex/kernels/gemm.hpp>

struct wrong_mainloop {};

int main() {
    using product =
        imbrex::gemm<imbrex::bf16, imbrex::bf16, imbrex::gemm_options{}, imbrex::epilogue::identity, wrong_mainloop>;
    product::launch(imbrex::world::host, {});
}
