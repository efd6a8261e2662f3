// Launches the kernel of a norm that fits its rows: Norm::kernel<Columns, WarpsPerRow> if they are aligned and have up
// to 16384 columns, else Norm::two_pass_kernel<alignment> (kernels/norm/kernel.hpp).
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/ops/register/vector_row.hpp>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class Norm>
struct norm_launcher {
    world where;
    const typename Norm::arguments& args;
    void* stream;

    void launch(row_alignment alignment) const {
        const int columns = args.columns;
        if (alignment == row_alignment::unaligned) {
            launch_two_pass<row_alignment::unaligned>();
        } else if (columns <= 64) {
            launch_one_pass<64, 1>();
        } else if (columns <= 128) {
            launch_one_pass<128, 1>();
        } else if (columns <= 256) {
            launch_one_pass<256, 1>();
        } else if (columns <= 512) {
            launch_one_pass<512, 1>();
        } else if (columns <= 1024) {
            launch_one_pass<512, 2>();
        } else if (columns <= 2048) {
            launch_one_pass<512, 4>();
        } else if (columns <= 4096) {
            launch_one_pass<512, 8>();
        } else if (columns <= 8192) {
            launch_one_pass<512, 16>();
        } else if (columns <= 16384) {
            launch_one_pass<512, 32>();
        } else {
            launch_two_pass<row_alignment::aligned>();
        }
    }

  private:
    template <int Columns, int WarpsPerRow>
    void launch_one_pass() const {
        launch_kernel<typename Norm::template kernel<Columns, WarpsPerRow>>();
    }
    template <row_alignment Known>
    void launch_two_pass() const {
        launch_kernel<typename Norm::template two_pass_kernel<Known>>();
    }
    template <class Kernel>
    void launch_kernel() const {
        imbrex::launch<Kernel>(where, Kernel::grid_of(args), args, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
