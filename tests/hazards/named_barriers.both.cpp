// Named barriers: who meets, how many warps are counted, and the barrier's number.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using group_values = warpgroup_tile<float, 64, 32>;

struct meeting {};
struct other_meeting {};
struct pair {
    static constexpr int count = 2;
};
using names = named_barriers<meeting, other_meeting>;
using names_of_pairs = named_barriers<pair, meeting>;

struct four_tiles {
    tile values[4];
};

// A tile of the input to shared memory, and a shared tile to the output.
IMBREX_KERNEL void write(const warpgroup& self, tile& to, const corpus_arguments& args, int number) {
    group_values values;
    load(self, values, args.in.at(64 * number, 0));
    store(self, to, values);
}
IMBREX_KERNEL void read(const warpgroup& self, const corpus_arguments& args, int number, const tile& from) {
    group_values values;
    load(self, values, from);
    store(self, args.out.at(64 * number, 0), values);
}

// Two pairs of warpgroups meet at one barrier.
template <bool Fixed>
struct two_pairs_at_one_barrier : hazard_kernel<16> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            const int index = self.index();
            write(self, shared.values[index], args, index);
            names_of_pairs::of<pair>(Fixed ? index / 2 : 0).sync(self, 8);
            read(self, args, index, shared.values[index ^ 1]);
        });
    }
};
HAZARD(named_barriers, two_pairs_at_one_barrier, 1, named_barrier_conflict, race, uninitialised_read)

// One warpgroup counts eight warps, the other twelve.
template <bool Fixed>
struct counts_of_a_meeting_differ : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            write(self, shared.values[self.index()], args, self.index());
            names::of<meeting>().sync(self, self.index() == 0 || Fixed ? 8 : 12);
            read(self, args, self.index(), shared.values[1 - self.index()]);
        });
    }
};
HAZARD_THAT_HANGS(named_barriers, counts_of_a_meeting_differ, 1, named_barrier_conflict)

// One warpgroup leaves before the meeting.
template <bool Fixed>
struct group_leaves_before_the_meeting : hazard_kernel<12> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 2) {
                if constexpr (Fixed) names::of<meeting>().arrive(self, 12);
                return;
            }
            write(self, shared.values[self.index()], args, self.index());
            names::of<meeting>().sync(self, 12);
            read(self, args, self.index(), shared.values[1 - self.index()]);
        });
    }
};
HAZARD_THAT_HANGS(named_barriers, group_leaves_before_the_meeting, 1, incomplete_collective, deadlock)

// One warpgroup does one more round of meetings than the other.
template <bool Fixed>
struct group_meets_once_more : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            const int rounds = Fixed || self.index() == 0 ? 2 : 3;
            for (int i = 0; i < rounds; ++i) {
                write(self, shared.values[self.index()], args, 2 * i + self.index());
                names::of<meeting>().sync(self, 8);
                read(self, args, 2 * i + self.index(), shared.values[1 - self.index()]);
                names::of<meeting>().sync(self, 8);
            }
        });
    }
};
HAZARD_THAT_HANGS(named_barriers, group_meets_once_more, 1, incomplete_collective, deadlock)

// The producer is one warp; the count includes the three idle warps of its warpgroup.
template <bool Fixed>
struct idle_warps_counted : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        constexpr int count = Fixed ? 5 : 8;
        block.roles(producer([&](warp& self) {
                        load(self, shared.values[0], args.in.at(0, 0));
                        names::of<meeting>().arrive(self, count);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        names::of<meeting>().sync(self, count);
                        read(self, args, 0, shared.values[0]);
                    }));
    }
};
HAZARD_THAT_HANGS(named_barriers, idle_warps_counted, 1, incomplete_collective, deadlock)

// Three warpgroups meet, and the count is that of two.
template <bool Fixed>
struct third_group_not_counted : hazard_kernel<12> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            write(self, shared.values[self.index()], args, self.index());
            names::of<meeting>().sync(self, Fixed ? 12 : 8);
            read(self, args, self.index(), shared.values[(self.index() + 1) % 3]);
        });
    }
};
HAZARD_THAT_HANGS(named_barriers, third_group_not_counted, 1, named_barrier_conflict, incomplete_collective, race,
                  uninitialised_read)

// The count is that of one warpgroup, so nobody waits for the other.
template <bool Fixed>
struct each_group_meets_itself : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            write(self, shared.values[self.index()], args, self.index());
            names::of<meeting>().sync(self, Fixed ? 8 : 4);
            read(self, args, self.index(), shared.values[1 - self.index()]);
        });
    }
};
HAZARD(named_barriers, each_group_meets_itself, 1, named_barrier_conflict, race, uninitialised_read)

// The number belongs to warpgroup 0, which syncs there too.
template <bool Fixed>
struct number_of_a_warpgroup : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const named_barrier met = Fixed ? names::of<meeting>() : named_barrier{1};
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 0) {
                load(self, shared.values[1], args.in.at(0, 0));
                self.sync();
                write(self, shared.values[0], args, 1);
            }
            met.sync(self, 8);
            read(self, args, self.index(), shared.values[self.index()]);
        });
    }
};
HAZARD_THAT_HANGS(named_barriers, number_of_a_warpgroup, 1, named_barrier_conflict)

// There is no barrier 16.
template <bool Fixed>
struct number_of_no_barrier : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            write(self, shared.values[self.index()], args, self.index());
            named_barrier{Fixed ? 15 : 16}.sync(self, 8);
            read(self, args, self.index(), shared.values[1 - self.index()]);
        });
    }
};
HAZARD(named_barriers, number_of_no_barrier, 1, beyond_limits)

// Number 2 of a name with two barriers is the barrier of the next name.
template <bool Fixed>
struct index_past_the_count : hazard_kernel<16> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            const int index = self.index();
            write(self, shared.values[index], args, index);
            names_of_pairs::of<pair>(index / 2 + (Fixed ? 0 : 1)).sync(self, 8);
            read(self, args, index, shared.values[index ^ 1]);
            names_of_pairs::of<meeting>().sync(self, 16);
            read(self, args, 4 + index, shared.values[3 - index]);
        });
    }
};
HAZARD_THAT_HANGS(named_barriers, index_past_the_count, 1, named_barrier_conflict, beyond_limits)

}  // namespace
