// architectures: 80 89 100a 120a
// paged_append on every GPU from sm_80 on, with each kind of cache.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/paged_append/kernel.hpp>

using namespace imbrex;

template <class Kernel>
void launch_append() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

void launch_appends() {
    launch_append<paged_append_kernel<bf16, bf16>>();
    launch_append<paged_append_kernel<fp16, e4m3>>();
    launch_append<paged_append_kernel<bf16, std::int8_t>>();
    launch_append<paged_append_kernel<bf16, bf16, append_tiling::narrow>>();
    launch_append<paged_append_kernel<fp16, e4m3, append_tiling::narrow>>();
    launch_append<paged_append_kernel<fp16, fp16, append_tiling::unaligned>>();
    launch_append<paged_append_kernel<bf16, e4m3, append_tiling::unaligned>>();
    launch_append<paged_append_kernel<float, float>>();
    launch_append<paged_append_kernel<float, bf16>>();
    launch_append<paged_append_kernel<float, float, append_tiling::narrow>>();
    launch_append<paged_append_kernel<float, float, append_tiling::unaligned>>();
}
