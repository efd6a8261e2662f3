// Global memory that is addressed wrongly: outside a view, never written, or twice by one operation.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using warp_rows = warp_tile<float, 16, 32>;

// The row above the first tile is before the view.
template <bool Fixed>
struct halo_above_the_first_row : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const auto lower = matrix(args.in.at(64, 0).pointer, rows - 64, columns);
            const int own = 16 * block.index().x;
            warp_rows values, above;
            load(self, values, lower.at(own, 0));
            load(self, above, lower.at(Fixed && own == 0 ? 0 : own - 1, 0));
            combine(self, values, above, functional::add{});
            store(self, args.out.at(own, 0), values);
        });
    }
};
HAZARD(global_memory, halo_above_the_first_row, 2, outside_tile)

// The tiles are counted from -1.
template <bool Fixed>
struct store_to_tile_minus_one : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const auto lower = matrix(args.out.at(64, 0).pointer, rows - 64, columns);
            warp_tile<float, 64, 32> values;
            load(self, values, args.in.at(64 * block.index().x, 0));
            store(self, lower.tile<tile>(Fixed ? block.index().x : block.index().x - 1, 0), values);
        });
    }
};
HAZARD(global_memory, store_to_tile_minus_one, 2, outside_tile)

// The columns to the left of the first are the end of the row before.
template <bool Fixed>
struct columns_left_of_the_first : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const auto lower = matrix(args.in.at(64, 0).pointer, rows - 64, columns);
            const int own = 32 * block.index().x;
            warp_rows values;
            load(self, values, lower.at(0, Fixed && own == 0 ? 0 : own - 32));
            store(self, args.out.at(0, own), values);
        });
    }
};
HAZARD(global_memory, columns_left_of_the_first, 2, outside_tile)

// An atomic sum goes to the tile before the view.
template <bool Fixed>
struct atomic_add_before_the_view : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            const auto lower = matrix(args.out.at(64, 0).pointer, rows - 64, columns);
            warp_rows values;
            load(self, values, args.in.at(16 * block.index().x, 0));
            atomic_add(self, lower.at(16 * (Fixed ? block.index().x : block.index().x - 1), 0), values);
        });
    }
};
HAZARD(global_memory, atomic_add_before_the_view, 2, outside_tile)

// The rows are written at one place and read at another, which nobody writes.
template <bool Fixed>
struct work_rows_never_written : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows values;
            load(self, values, args.in.at(0, 0));
            store(self, args.work.at(0, 0), values);
            load(self, values, args.work.at(Fixed ? 0 : 16, 0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(global_memory, work_rows_never_written, 1, uninitialised_read)

// Only half of the columns are initialised.
template <bool Fixed>
struct half_of_the_work_columns_written : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows values;
            load(self, values, args.in.at(0, 0));
            store(self, args.work.at(0, 0), values);
            if constexpr (Fixed) store(self, args.work.at(0, 32), values);
            self.sync();
            warp_tile<float, 16, 64> both;
            load(self, both, args.work.at(0, 0));
            store(self, args.out.at(0, 0), both);
        });
    }
};
HAZARD(global_memory, half_of_the_work_columns_written, 1, uninitialised_read)

// The sum starts from memory that nobody has set to zero.
template <bool Fixed>
struct atomic_sum_of_unwritten_memory : hazard_kernel<1> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            warp_rows values;
            fill(self, values, 0.0f);
            if constexpr (Fixed) store(self, args.work.at(0, 0), values);
            self.sync();
            load(self, values, args.in.at(0, 0));
            atomic_add(self, args.work.at(0, 0), values);
            self.sync();
            load(self, values, args.work.at(0, 0));
            store(self, args.out.at(0, 0), values);
        });
    }
};
HAZARD(global_memory, atomic_sum_of_unwritten_memory, 1, uninitialised_read)

// Two rows of one scattered store go to the same address.
template <bool Fixed>
struct scattered_rows_meet : hazard_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 32> values;
            load(self, values, args.in.at(0, 0));
            store_rows_to(
                self, [&](int row) { return args.out.at(Fixed ? row : row % 32, 0).pointer; }, values);
        });
    }
};
HAZARD(global_memory, scattered_rows_meet, 1, race, unsynchronised_scope)

// A saved register tile takes 512 elements, but the places of the warps are 256 apart.
template <bool Fixed>
struct saved_registers_overlap : hazard_kernel<4> {
    template <class Block, class Shared>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, Shared&) {
        block.each_warp([&](warp& self) {
            float* const place = args.work.pointer + (Fixed ? 512 : 256) * self.index();
            warp_rows values;
            load(self, values, args.in.at(16 * self.index(), 0));
            save(self, place, values);
            restore(self, values, place);
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(global_memory, saved_registers_overlap, 1, race)

}  // namespace
