// A transport with a missing function.
// first: imbrex: Transport must have int rank(); int ranks(); world where();
#include <imbrex/kernels/ring_attention.hpp>

struct wrong_transport {
    int rank() const { return 0; }
    int ranks() const { return 1; }
};

void attend(wrong_transport& comm, const imbrex::ring_plan& plan) {
    using attention = imbrex::ring_attention<imbrex::bf16, imbrex::attention_head_dim_set{64}>;
    attention::launch(comm, plan, {}, {}, nullptr);
}
