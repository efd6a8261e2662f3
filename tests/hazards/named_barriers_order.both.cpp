// Named barriers: the order of accesses that a hand-over between warpgroups gives, and the order of the hand-overs.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

using group_values = warpgroup_tile<float, 64, 32>;

struct full {};
struct empty {};
struct turn {
    static constexpr int count = 2;
};
using names = named_barriers<full, empty, turn>;

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

// The reader only arrives: it does not wait for the writer.
template <bool Fixed>
struct reader_arrives_and_goes_on : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 0) {
                write(self, shared.values[0], args, 0);
                names::of<full>().arrive(self, 8);
                return;
            }
            if constexpr (Fixed) {
                names::of<full>().sync(self, 8);
            } else {
                names::of<full>().arrive(self, 8);
            }
            read(self, args, 0, shared.values[0]);
        });
    }
};
HAZARD(named_barriers, reader_arrives_and_goes_on, 1, race, uninitialised_read)

// The writer arrives before its last write.
template <bool Fixed>
struct writer_arrives_before_its_last_write : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 0) {
                write(self, shared.values[0], args, 0);
                if constexpr (!Fixed) names::of<full>().arrive(self, 8);
                write(self, shared.values[1], args, 1);
                if constexpr (Fixed) names::of<full>().arrive(self, 8);
            } else {
                names::of<full>().sync(self, 8);
                read(self, args, 1, shared.values[1]);
                read(self, args, 0, shared.values[0]);
            }
        });
    }
};
HAZARD(named_barriers, writer_arrives_before_its_last_write, 1, race, uninitialised_read)

// The writer arrives again without knowing that the last use of the barrier is complete.
template <bool Fixed>
struct writer_arrives_twice_in_a_row : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 3; ++i) {
                if (self.index() == 0) {
                    if (Fixed && i > 0) names::of<empty>().sync(self, 8);
                    write(self, shared.values[i], args, i);
                    names::of<full>().arrive(self, 8);
                } else {
                    names::of<full>().sync(self, 8);
                    if (Fixed && i < 2) names::of<empty>().arrive(self, 8);
                    read(self, args, i, shared.values[i]);
                }
            }
        });
    }
};
HAZARD_THAT_HANGS(named_barriers, writer_arrives_twice_in_a_row, 1, named_barrier_conflict, race, uninitialised_read)

// Two warpgroups sync at two barriers in opposite order.
template <bool Fixed>
struct meetings_in_opposite_order : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            write(self, shared.values[self.index()], args, self.index());
            const int first = Fixed ? 0 : self.index();
            names::of<turn>(first).sync(self, 8);
            names::of<turn>(1 - first).sync(self, 8);
            read(self, args, self.index(), shared.values[1 - self.index()]);
        });
    }
};
HAZARD_THAT_HANGS(named_barriers, meetings_in_opposite_order, 1, deadlock)

// Two warpgroups take turns, and nobody gives the first turn.
template <bool Fixed>
struct first_turn_never_given : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            const int index = self.index();
            if (Fixed && index == 1) names::of<turn>(0).arrive(self, 8);
            for (int i = 0; i < 2; ++i) {
                names::of<turn>(index).sync(self, 8);
                if (index == 1) read(self, args, i, shared.values[0]);
                if (index == 0) write(self, shared.values[0], args, i);
                if (index == 0 || i == 0) names::of<turn>(1 - index).arrive(self, 8);
            }
        });
    }
};
HAZARD_THAT_HANGS(named_barriers, first_turn_never_given, 1, deadlock)

// One barrier for both directions: the writer's arrival and its wait for the reader complete it without the reader.
template <bool Fixed>
struct one_barrier_for_both_directions : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const named_barrier back = Fixed ? names::of<empty>() : names::of<full>();
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 3; ++i) {
                if (self.index() == 0) {
                    write(self, shared.values[0], args, i);
                    names::of<full>().arrive(self, 8);
                    back.sync(self, 8);
                } else {
                    names::of<full>().sync(self, 8);
                    read(self, args, i, shared.values[0]);
                    back.arrive(self, 8);
                }
            }
        });
    }
};
HAZARD_THAT_HANGS(named_barriers, one_barrier_for_both_directions, 1, named_barrier_conflict, race, uninitialised_read)

// The proxy fence follows the hand-over, in the reader: it does not cover the writer's writes.
template <bool Fixed>
struct fence_by_the_receiving_group : hazard_kernel<8> {
    using shared_memory = four_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 0) {
                write(self, shared.values[0], args, 0);
                if constexpr (Fixed) fence_async(self);
                names::of<full>().arrive(self, 8);
            } else {
                names::of<full>().sync(self, 8);
                if constexpr (!Fixed) fence_async(self);
                store_async(self, args.out_tensor.tile(0, 0), shared.values[0]);
                commit_stores(self);
                wait_stores_read(self);
            }
        });
    }
};
HAZARD(named_barriers, fence_by_the_receiving_group, 1, missing_proxy_fence)

struct one_copy {
    tile values;
    transaction_barrier landing;
};

// The consumer arrives at the named barrier, by which it releases the tile, before it reads the tile.
template <bool Fixed>
struct arrives_at_empty_before_its_read : hazard_kernel<8> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        for (int i = 0; i < 3; ++i) {
                            if (i > 0) names::of<empty>().sync(self, 5);
                            shared.landing.expect(self, tile::bytes);
                            load_async(self, shared.values, args.in_tensor.tile(i, 0), shared.landing);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        for (int i = 0; i < 3; ++i) {
                            shared.landing.wait(self, i);
                            if (!Fixed && i < 2) names::of<empty>().arrive(self, 5);
                            read(self, args, i, shared.values);
                            if (Fixed && i < 2) names::of<empty>().arrive(self, 5);
                        }
                    }));
    }
};
HAZARD(named_barriers, arrives_at_empty_before_its_read, 1, refilled_before_release, read_before_landed)

struct operand_of_both {
    operand a;
    transaction_barrier landing;
};

// A warpgroup hands an operand over while its product may still read it.
template <bool Fixed>
struct operand_handed_over_in_flight : hazard_kernel<8> {
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    using shared_memory = operand_of_both;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() != 0) return;
            shared.landing.expect(self, operand::bytes);
            load_async(self, shared.a, args.a_tensor.tile(0, 0), shared.landing);
        });
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 0) {
                warpgroup_tile<float, 64, 64> sum;
                fill(self, sum, 0.0f);
                shared.landing.wait(self, 0);
                mma_ab_async(self, sum, shared.a, shared.a);
                if constexpr (Fixed) wait_mma(self, sum);
                names::of<empty>().arrive(self, 8);
                wait_mma(self, sum);
                store(self, args.out.at(0, 0), sum);
            } else {
                names::of<empty>().sync(self, 8);
                fill(self, shared.a, bf16(1.0f));
            }
        });
    }
};
HAZARD(named_barriers, operand_handed_over_in_flight, 1, overwritten_in_flight)

}  // namespace
