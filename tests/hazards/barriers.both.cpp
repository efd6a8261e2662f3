// Transaction barriers: arrivals, phases and bytes. barriers_setup.both.cpp has their initialisation.
#include "hazards/corpus.hpp"

using namespace imbrex_hazards;

namespace {

struct one_copy {
    tile values;
    transaction_barrier landing;
};

// The wait for the copy is missing.
template <bool Fixed>
struct load_without_wait : hazard_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            }
            if constexpr (Fixed) shared.landing.wait(self, 0);
            warp_tile<float, 16, 32> values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
            if constexpr (!Fixed) shared.landing.wait(self, 0);
        });
    }
};
HAZARD(barriers, load_without_wait, 1, read_before_landed, uninitialised_read)

// The consumer waits for phase 1 when phase 0 is meant.
template <bool Fixed>
struct wait_for_the_next_phase : hazard_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        fence_barriers(block);
        block.sync();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            }
            shared.landing.wait(self, Fixed ? 0 : 1);
            warp_tile<float, 16, 32> values;
            load(self, values, shared.values.subtile<16>(16 * self.index()));
            store(self, args.out.at(16 * self.index(), 0), values);
        });
    }
};
HAZARD(barriers, wait_for_the_next_phase, 1, wrong_phase, read_before_landed)

using warp_rows = warp_tile<float, 16, 32>;
using group_rows = warpgroup_tile<float, 64, 32>;

// The fence and the sync after the initialisation of all barriers.
template <class Block>
IMBREX_KERNEL void barriers_ready(Block& block) {
    fence_barriers(block);
    block.sync();
}

// Loads tile number `number` of the input.
IMBREX_KERNEL void begin_load(const warp& self, const corpus_arguments& args, tile& to, int number,
                              transaction_barrier& landing) {
    landing.expect(self, tile::bytes);
    load_async(self, to, args.in_tensor.tile(number, 0), landing);
}

// Writes the warp's 16 rows of a tile to tile number `number` of the output.
IMBREX_KERNEL void write_rows(const warp& self, const corpus_arguments& args, const tile& from, int number) {
    warp_rows values;
    load(self, values, from.subtile<16>(16 * self.index()));
    store(self, args.out.at(tile::rows * number + 16 * self.index(), 0), values);
}

// Fills the warp's 16 rows of a tile from tile number `number` of the input.
IMBREX_KERNEL void fill_own_rows(const warp& self, const corpus_arguments& args, tile& to, int number) {
    warp_rows values;
    load(self, values, args.in.at(tile::rows * number + 16 * self.index(), 0));
    store(self, to.subtile<16>(16 * self.index()), values);
}

// Writes the 16 rows of the next of four warps.
IMBREX_KERNEL void write_next_rows(const warp& self, const corpus_arguments& args, const tile& from, int number) {
    warp_rows values;
    load(self, values, from.subtile<16>(16 * ((self.index() + 1) % 4)));
    store(self, args.out.at(tile::rows * number + 16 * self.index(), 0), values);
}

IMBREX_KERNEL void write_tile(const warpgroup& self, const corpus_arguments& args, const tile& from, int number) {
    group_rows values;
    load(self, values, from);
    store(self, args.out.at(tile::rows * number, 0), values);
}

struct copy_and_readers {
    tile values;
    transaction_barrier landing;
    transaction_barrier read;
};

// Every iteration waits for phase 0, not for the phase of its own copy.
template <bool Fixed>
struct stale_phase_in_a_loop : hazard_kernel<4> {
    using shared_memory = copy_and_readers;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        shared.read.init(block, 4);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 3; ++i) {
                if (self.index() == 0) {
                    shared.read.wait(self, i - 1);
                    begin_load(self, args, shared.values, i, shared.landing);
                }
                shared.landing.wait(self, Fixed ? i : 0);
                write_rows(self, args, shared.values, i);
                shared.read.arrive(self);
                if (self.index() != 0) shared.read.wait(self, i);
            }
        });
    }
};
HAZARD_THAT_HANGS(barriers, stale_phase_in_a_loop, 1, wrong_phase, read_before_landed, refilled_before_release,
                  deadlock)

// The producer completes two phases before the consumer tests the first one, whose parity has come back by then.
template <bool Fixed>
struct producer_laps_the_parity : hazard_kernel<8> {
    struct shared_memory {
        tile values[2];
        transaction_barrier landing;
        transaction_barrier seen;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        shared.seen.init(block, 4);
        barriers_ready(block);
        block.roles(producer([&](warp& self) {
                        begin_load(self, args, shared.values[0], 0, shared.landing);
                        shared.landing.wait(self, 0);
                        if constexpr (Fixed) shared.seen.wait(self, 0);
                        begin_load(self, args, shared.values[1], 1, shared.landing);
                    }),
                    consumers<1>([&](warpgroup& self) {
                        for (int i = 0; i < 2; ++i) {
                            shared.landing.wait(self, i);
                            if (i == 0) shared.seen.arrive(self);
                            write_tile(self, args, shared.values[i], i);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(barriers, producer_laps_the_parity, 1, wrong_phase, deadlock)

// A warp arrives for the second phase without knowing that the first one is complete.
template <bool Fixed>
struct arrives_again_without_waiting : hazard_kernel<4> {
    struct shared_memory {
        tile values[2];
        transaction_barrier written;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, 4);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 2; ++i) {
                fill_own_rows(self, args, shared.values[i], i);
                shared.written.arrive(self);
                if (Fixed || i == 1) shared.written.wait(self, i);
            }
            for (int i = 0; i < 2; ++i) write_next_rows(self, args, shared.values[i], i);
        });
    }
};
HAZARD(barriers, arrives_again_without_waiting, 1, arrived_too_often, wrong_phase, race, uninitialised_read)

struct one_exchange {
    tile values;
    transaction_barrier written;
};

// The barrier counts three of the four writers.
template <bool Fixed>
struct counts_one_writer_too_few : hazard_kernel<4> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, Fixed ? 4 : 3);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            fill_own_rows(self, args, shared.values, 0);
            shared.written.arrive(self);
            shared.written.wait(self, 0);
            write_next_rows(self, args, shared.values, 0);
        });
    }
};
HAZARD(barriers, counts_one_writer_too_few, 1, arrived_too_often, race, uninitialised_read)

// The barrier counts a fifth writer, which does not exist.
template <bool Fixed>
struct counts_one_writer_too_many : hazard_kernel<4> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, Fixed ? 4 : 5);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            fill_own_rows(self, args, shared.values, 0);
            shared.written.arrive(self);
            shared.written.wait(self, 0);
            write_next_rows(self, args, shared.values, 0);
        });
    }
};
HAZARD_THAT_HANGS(barriers, counts_one_writer_too_many, 1, incomplete_collective, deadlock)

// The arrival of a warpgroup counts four warps; the barrier expects one.
template <bool Fixed>
struct warpgroup_counted_as_one_arrival : hazard_kernel<8> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, Fixed ? 4 : 1);
        barriers_ready(block);
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 0) {
                group_rows values;
                load(self, values, args.in.at(0, 0));
                store(self, shared.values, values);
                shared.written.arrive(self);
            } else {
                shared.written.wait(self, 0);
                write_tile(self, args, shared.values, 0);
            }
        });
    }
};
HAZARD_THAT_HANGS(barriers, warpgroup_counted_as_one_arrival, 1, arrived_too_often, race, uninitialised_read)

// One warp returns before it has arrived.
template <bool Fixed>
struct warp_returns_before_its_arrival : hazard_kernel<4> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, 4);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            fill_own_rows(self, args, shared.values, 0);
            if (!Fixed && self.index() == 2) return;
            shared.written.arrive(self);
            if (self.index() == 2) return;
            shared.written.wait(self, 0);
            write_next_rows(self, args, shared.values, 0);
        });
    }
};
HAZARD_THAT_HANGS(barriers, warp_returns_before_its_arrival, 1, incomplete_collective, deadlock)

// The writer arrives before it writes.
template <bool Fixed>
struct arrives_before_its_write : hazard_kernel<8> {
    using shared_memory = one_exchange;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, 4);
        barriers_ready(block);
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 0) {
                group_rows values;
                if constexpr (!Fixed) shared.written.arrive(self);
                load(self, values, args.in.at(0, 0));
                store(self, shared.values, values);
                if constexpr (Fixed) shared.written.arrive(self);
            } else {
                shared.written.wait(self, 0);
                write_tile(self, args, shared.values, 0);
            }
        });
    }
};
HAZARD(barriers, arrives_before_its_write, 1, race, uninitialised_read)

// The barrier expects 64 bytes less than land on it.
template <bool Fixed>
struct expects_fewer_bytes : hazard_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, tile::bytes - (Fixed ? 0 : 64));
                load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            }
            shared.landing.wait(self, 0);
            write_rows(self, args, shared.values, 0);
        });
    }
};
HAZARD_THAT_HANGS(barriers, expects_fewer_bytes, 1, wrong_byte_count)

// The barrier expects the bytes of two tiles; one is loaded.
template <bool Fixed>
struct expects_a_copy_that_is_not_made : hazard_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, Fixed ? tile::bytes : 2 * tile::bytes);
                load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            }
            shared.landing.wait(self, 0);
            write_rows(self, args, shared.values, 0);
        });
    }
};
HAZARD_THAT_HANGS(barriers, expects_a_copy_that_is_not_made, 1, wrong_byte_count, deadlock)

// Two copies land on one barrier, which expects the bytes of one.
template <bool Fixed>
struct expects_one_of_two_copies : hazard_kernel<4> {
    struct shared_memory {
        tile values[2];
        transaction_barrier landing;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, Fixed ? 2 * tile::bytes : tile::bytes);
                load_async(self, shared.values[0], args.in_tensor.tile(0, 0), shared.landing);
                load_async(self, shared.values[1], args.in_tensor.tile(1, 0), shared.landing);
            }
            shared.landing.wait(self, 0);
            for (int i = 0; i < 2; ++i) write_rows(self, args, shared.values[i], i);
        });
    }
};
HAZARD(barriers, expects_one_of_two_copies, 1, wrong_byte_count, read_before_landed, uninitialised_read)

struct two_copies {
    tile values[2];
    transaction_barrier landing[2];
};

// The first tile is read after the wait for the second one's barrier.
template <bool Fixed>
struct waits_for_the_other_barrier : hazard_kernel<4> {
    using shared_memory = two_copies;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        for (int i = 0; i < 2; ++i) shared.landing[i].init(block, 1);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                for (int i = 0; i < 2; ++i) begin_load(self, args, shared.values[i], i, shared.landing[i]);
            }
            shared.landing[Fixed ? 0 : 1].wait(self, 0);
            write_rows(self, args, shared.values[0], 0);
            shared.landing[Fixed ? 1 : 0].wait(self, 0);
            write_rows(self, args, shared.values[1], 1);
        });
    }
};
HAZARD(barriers, waits_for_the_other_barrier, 1, read_before_landed, uninitialised_read)

// A second copy into the tile is issued before the first one has landed; which of them lands last is open.
template <bool Fixed>
struct second_copy_into_the_same_tile : hazard_kernel<4> {
    struct shared_memory {
        tile values;
        transaction_barrier landing[2];
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        for (int i = 0; i < 2; ++i) shared.landing[i].init(block, 1);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                begin_load(self, args, shared.values, 0, shared.landing[0]);
                if constexpr (Fixed) shared.landing[0].wait(self, 0);
                begin_load(self, args, shared.values, 1, shared.landing[1]);
            }
            shared.landing[0].wait(self, 0);
            shared.landing[1].wait(self, 0);
            write_rows(self, args, shared.values, 0);
        });
    }
};
HAZARD(barriers, second_copy_into_the_same_tile, 1, overwritten_in_flight, race)

// Only the warp that issued the copy waits for it; the others read without.
template <bool Fixed>
struct only_the_issuing_warp_waits : hazard_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) begin_load(self, args, shared.values, 0, shared.landing);
            if (Fixed || self.index() == 0) shared.landing.wait(self, 0);
            write_rows(self, args, shared.values, 0);
        });
    }
};
HAZARD(barriers, only_the_issuing_warp_waits, 1, read_before_landed, uninitialised_read, race, refilled_before_release)

// The tile is refilled when its first copy has landed, not when all warps have read it.
template <bool Fixed>
struct refill_without_waiting_for_readers : hazard_kernel<4> {
    struct shared_memory {
        tile values;
        transaction_barrier landing[2];
        transaction_barrier read;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        for (int i = 0; i < 2; ++i) shared.landing[i].init(block, 1);
        shared.read.init(block, 4);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            for (int i = 0; i < 2; ++i) {
                if (self.index() == 0) {
                    if constexpr (Fixed) shared.read.wait(self, i - 1);
                    begin_load(self, args, shared.values, i, shared.landing[i]);
                }
                shared.landing[i].wait(self, 0);
                write_rows(self, args, shared.values, i);
                if (i == 0) shared.read.arrive(self);
            }
        });
    }
};
HAZARD(barriers, refill_without_waiting_for_readers, 1, refilled_before_release, read_before_landed,
       overwritten_in_flight)

// Two warpgroups read the tile; the barrier of the readers counts one of them.
template <bool Fixed>
struct release_by_one_of_two_groups : hazard_kernel<12> {
    struct shared_memory {
        tile values;
        transaction_barrier landing[2];
        transaction_barrier read;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        for (int i = 0; i < 2; ++i) shared.landing[i].init(block, 1);
        shared.read.init(block, Fixed ? 8 : 4);
        barriers_ready(block);
        block.roles(producer([&](warp& self) {
                        for (int i = 0; i < 2; ++i) {
                            shared.read.wait(self, i - 1);
                            begin_load(self, args, shared.values, i, shared.landing[i]);
                        }
                    }),
                    consumers<2>([&](warpgroup& self) {
                        for (int i = 0; i < 2; ++i) {
                            shared.landing[i].wait(self, 0);
                            write_tile(self, args, shared.values, 2 * i + self.index());
                            if (i == 0 && (Fixed || self.index() == 0)) shared.read.arrive(self);
                        }
                    }));
    }
};
HAZARD(barriers, release_by_one_of_two_groups, 1, refilled_before_release, read_before_landed, overwritten_in_flight)

// The first load waits for phase 0 of the readers' barrier, which they complete only after it; phase -1 is meant.
template <bool Fixed>
struct first_load_waits_for_a_release : hazard_kernel<8> {
    using shared_memory = copy_and_readers;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        shared.read.init(block, 4);
        barriers_ready(block);
        block.roles(producer([&](warp& self) {
                        for (int i = 0; i < 3; ++i) {
                            shared.read.wait(self, Fixed ? i - 1 : i);
                            begin_load(self, args, shared.values, i, shared.landing);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        for (int i = 0; i < 3; ++i) {
                            shared.landing.wait(self, i);
                            write_tile(self, args, shared.values, i);
                            shared.read.arrive(self);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(barriers, first_load_waits_for_a_release, 1, deadlock, wrong_phase)

// Each of two roles waits for the other one's arrival before it arrives.
template <bool Fixed>
struct two_roles_wait_for_each_other : hazard_kernel<8> {
    struct shared_memory {
        tile values[2];
        transaction_barrier written[2];
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        for (int i = 0; i < 2; ++i) shared.written[i].init(block, 4);
        barriers_ready(block);
        block.each_warpgroup([&](warpgroup& self) {
            const int mine = self.index(), other = 1 - mine;
            group_rows values;
            load(self, values, args.in.at(tile::rows * mine, 0));
            store(self, shared.values[mine], values);
            if constexpr (Fixed) shared.written[mine].arrive(self);
            shared.written[other].wait(self, 0);
            if constexpr (!Fixed) shared.written[mine].arrive(self);
            write_tile(self, args, shared.values[other], mine);
        });
    }
};
HAZARD_THAT_HANGS(barriers, two_roles_wait_for_each_other, 1, deadlock)

// The condition of the wait leaves out the first iteration.
template <bool Fixed>
struct conditional_wait_leaves_out_the_first : hazard_kernel<4> {
    using shared_memory = two_copies;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        for (int i = 0; i < 2; ++i) shared.landing[i].init(block, 1);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                for (int i = 0; i < 2; ++i) begin_load(self, args, shared.values[i], i, shared.landing[i]);
            }
            for (int i = 0; i < 2; ++i) {
                shared.landing[i].wait_converged_if(self, 0, Fixed || i > 0);
                write_rows(self, args, shared.values[i], i);
            }
            if constexpr (!Fixed) shared.landing[0].wait(self, 0);
        });
    }
};
HAZARD(barriers, conditional_wait_leaves_out_the_first, 1, read_before_landed, uninitialised_read)

// All four warps expect the bytes of the one copy, at a barrier for one arrival.
template <bool Fixed>
struct every_warp_expects_the_copy : hazard_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            if (!Fixed || self.index() == 0) shared.landing.expect(self, tile::bytes);
            if (self.index() == 0) load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
            shared.landing.wait(self, 0);
            write_rows(self, args, shared.values, 0);
        });
    }
};
HAZARD_THAT_HANGS(barriers, every_warp_expects_the_copy, 1, arrived_too_often, wrong_byte_count)

// The tile is overwritten by its reader while the copy into it is in flight.
template <bool Fixed>
struct local_store_under_a_copy : hazard_kernel<4> {
    using shared_memory = one_copy;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        barriers_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) begin_load(self, args, shared.values, 0, shared.landing);
            if constexpr (Fixed) shared.landing.wait(self, 0);
            fill_own_rows(self, args, shared.values, 1);
            if constexpr (!Fixed) shared.landing.wait(self, 0);
            write_rows(self, args, shared.values, 0);
        });
    }
};
HAZARD(barriers, local_store_under_a_copy, 1, overwritten_in_flight, race, missing_proxy_fence)

}  // namespace
