#include "findings.hpp"

namespace two_compilers {

findings cuda_findings() {
    return find();
}
void cuda_require(const problem& p) {
    imbrex::require_attention(imbrex::world::host, p);
}
std::string caught_by_cuda(const std::function<void()>& call) {
    return error_of(call, "nothing was thrown");
}

}  // namespace two_compilers
