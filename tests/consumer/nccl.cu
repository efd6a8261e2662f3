// A program whose ranks are processes finds NCCL, at compile time and when it is linked.
#include <imbrex/comm/nccl_transport.hpp>

int main() {
    int version = 0;
    return imbrex::transport<imbrex::nccl_transport> && ncclGetVersion(&version) == ncclSuccess ? 0 : 1;
}
