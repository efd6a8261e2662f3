#include "findings.hpp"

namespace two_compilers {

findings host_findings() {
    return find();
}
void host_require(const problem& p) {
    imbrex::require_attention(imbrex::world::host, p);
}
std::string caught_by_host(const std::function<void()>& call) {
    return error_of(call, "nothing was thrown");
}

}  // namespace two_compilers
