// Correct kernels with unusual barriers and pipelines.
#include "hazards/corpus.hpp"

#include <utility>

using namespace imbrex_hazards;

namespace {

using warp_rows = warp_tile<float, 16, 32>;
using group_rows = warpgroup_tile<float, 64, 32>;
using group_sum = warpgroup_tile<float, 64, 64>;

constexpr int items = 7;

template <class Block>
IMBREX_KERNEL void all_ready(Block& block) {
    fence_barriers(block);
    block.sync();
}

IMBREX_KERNEL void begin_load(const warp& self, const corpus_arguments& args, tile& to, int number,
                              transaction_barrier& landing) {
    landing.expect(self, tile::bytes);
    load_async(self, to, args.in_tensor.tile(number, 0), landing);
}

template <class Ring>
IMBREX_KERNEL void produce(const warp& self, const corpus_arguments& args, Ring& ring, int count = items) {
    auto filling = ring.producer(self);
    for (int i = 0; i < count; ++i) {
        auto slot = filling.acquire();
        load_async(self, *slot, args.in_tensor.tile(i, 0), slot);
    }
}

IMBREX_KERNEL void fill_tile(const warpgroup& self, const corpus_arguments& args, tile& to, int number) {
    group_rows values;
    load(self, values, args.in.at(tile::rows * number, 0));
    store(self, to, values);
}
IMBREX_KERNEL void write_tile(const warpgroup& self, const corpus_arguments& args, const tile& from, int number) {
    group_rows values;
    load(self, values, from);
    store(self, args.out.at(tile::rows * number, 0), values);
}
IMBREX_KERNEL void write_rows(const warp& self, const corpus_arguments& args, const tile& from, int number) {
    warp_rows values;
    load(self, values, from.subtile<16>(16 * self.index()));
    store(self, args.out.at(tile::rows * number + 16 * self.index(), 0), values);
}

// Both sides go through the stages from the last to the first: they agree on the order, which may be any.
struct ring_used_backwards : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 3> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        all_ready(block);
        block.roles(producer([&](warp& self) {
                        for (int i = 0; i < items; ++i) {
                            const int stage = 2 - i % 3;
                            shared.ring.empty[stage].wait(self, i / 3 - 1);
                            begin_load(self, args, shared.ring.items[stage], i, shared.ring.full[stage]);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        for (int i = 0; i < items; ++i) {
                            const int stage = 2 - i % 3;
                            shared.ring.full[stage].wait(self, i / 3);
                            write_tile(self, args, shared.ring.items[stage], i);
                            shared.ring.empty[stage].arrive(self);
                        }
                    }));
    }
};
CORRECT(pipelines, ring_used_backwards, 1)

// One barrier says both that the writers have written and that the readers have read: everybody arrives and waits, and
// the roles alternate.
struct barrier_shared_by_two_roles : hazard_kernel<8> {
    struct shared_memory {
        tile values;
        transaction_barrier turn;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.turn.init(block, 8);
        all_ready(block);
        block.each_warpgroup([&](warpgroup& self) {
            for (int i = 0; i < 6; ++i) {
                if (i % 2 == 0) {
                    if (self.index() == i / 2 % 2) fill_tile(self, args, shared.values, i / 2);
                } else if (self.index() != i / 2 % 2) {
                    write_tile(self, args, shared.values, i / 2);
                }
                shared.turn.arrive(self);
                shared.turn.wait(self, i);
            }
        });
    }
};
CORRECT(barriers, barrier_shared_by_two_roles, 1)

// The barrier is initialised again, for another count, when its phase is complete and all warps know it.
struct barrier_initialised_for_another_count : hazard_kernel<4> {
    struct shared_memory {
        tile values[2];
        transaction_barrier barrier;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.barrier.init(block, 1);
        all_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) begin_load(self, args, shared.values[0], 0, shared.barrier);
            shared.barrier.wait(self, 0);
            write_rows(self, args, shared.values[0], 0);
        });
        block.sync();
        shared.barrier.invalidate(block);
        shared.barrier.init(block, 2);
        all_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() < 2) shared.barrier.expect(self, tile::bytes / 2);
            if (self.index() == 0) load_async(self, shared.values[1], args.in_tensor.tile(1, 0), shared.barrier);
            shared.barrier.wait(self, 0);
            write_rows(self, args, shared.values[1], 1);
        });
    }
};
CORRECT(barriers, barrier_initialised_for_another_count, 1)

// The reader never meets the writer: the middle group, which does not touch the tile, waits for one and tells the other.
struct order_through_a_third_group : hazard_kernel<12> {
    struct shared_memory {
        tile values;
        transaction_barrier written, told;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.written.init(block, 4);
        shared.told.init(block, 4);
        all_ready(block);
        block.each_warpgroup([&](warpgroup& self) {
            if (self.index() == 0) {
                fill_tile(self, args, shared.values, 0);
                shared.written.arrive(self);
            } else if (self.index() == 1) {
                shared.written.wait(self, 0);
                shared.told.arrive(self);
            } else {
                shared.told.wait(self, 0);
                write_tile(self, args, shared.values, 0);
            }
        });
    }
};
CORRECT(barriers, order_through_a_third_group, 1)

// A wait for a phase that is known to be complete does nothing, and so does a wait for phase -1.
struct waits_without_need : hazard_kernel<4> {
    struct shared_memory {
        tile values;
        transaction_barrier landing;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        all_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.wait(self, self.index() - 1);
                begin_load(self, args, shared.values, 0, shared.landing);
            }
            shared.landing.wait(self, 0);
            shared.landing.wait(self, 0);
            write_rows(self, args, shared.values, 0);
            shared.landing.wait_converged_if(self, 0, true);
        });
    }
};
CORRECT(barriers, waits_without_need, 1)

// The copy is issued before its bytes are expected: the phase cannot complete before the arrival that expects them.
struct copy_issued_before_its_expect : hazard_kernel<4> {
    struct shared_memory {
        tile values;
        transaction_barrier landing;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.landing.init(block, 1);
        all_ready(block);
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                load_async(self, shared.values, args.in_tensor.tile(0, 0), shared.landing);
                shared.landing.expect(self, tile::bytes);
            }
            shared.landing.wait(self, 0);
            write_rows(self, args, shared.values, 0);
        });
    }
};
CORRECT(barriers, copy_issued_before_its_expect, 1)

// One phase waits for a copy and for the ordinary writes of the other warps.
struct one_phase_for_copy_and_stores : hazard_kernel<4> {
    struct shared_memory {
        tile copied, stored;
        transaction_barrier ready;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ready.init(block, 4);
        all_ready(block);
        block.each_warp([&](warp& self) {
            warp_rows values;
            load(self, values, args.in.at(64 + 16 * self.index(), 0));
            store(self, shared.stored.subtile<16>(16 * (3 - self.index())), values);
            if (self.index() == 2) {
                begin_load(self, args, shared.copied, 0, shared.ready);
            } else {
                shared.ready.arrive(self);
            }
            shared.ready.wait(self, 0);
            write_rows(self, args, shared.copied, 0);
            write_rows(self, args, shared.stored, 1);
        });
    }
};
CORRECT(barriers, one_phase_for_copy_and_stores, 1)

struct turn {
    static constexpr int count = 2;
};
using turns = named_barriers<turn>;

// Two groups take turns at one tile: each syncs at its own named barrier and arrives at the other one's.
struct named_barriers_hand_over_turns : hazard_kernel<8> {
    struct shared_memory {
        tile values;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        block.each_warpgroup([&](warpgroup& self) {
            const auto mine = turns::of<turn>(self.index()), other = turns::of<turn>(1 - self.index());
            if (self.index() == 1) other.arrive(self, 8);
            for (int i = self.index(); i < 6; i += 2) {
                mine.sync(self, 8);
                fill_tile(self, args, shared.values, i);
                self.sync();
                store(self, args.out.at(tile::rows * i, 0), shared.values);
                if (i < 5) other.arrive(self, 8);
            }
        });
    }
};
CORRECT(barriers, named_barriers_hand_over_turns, 1)

// The stages are released long after their last read and in reverse order; the ring has more of them.
struct stages_released_in_reverse : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 4> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        all_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring, 6); }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < 6; i += 3) {
                            auto first = full.wait();
                            write_tile(self, args, *first, i);
                            auto second = full.wait();
                            write_tile(self, args, *second, i + 1);
                            auto third = full.wait();
                            write_tile(self, args, *third, i + 2);
                            third.release();
                            second.release();
                            first.release();
                        }
                    }));
    }
};
CORRECT(pipelines, stages_released_in_reverse, 1)

// The handle goes through a function, a move and assignments; only the one that holds the stage is used, and a second
// release does nothing.
struct handle_passed_on : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 2> ring;
    };

    template <class Cursor>
    IMBREX_KERNEL static auto take(Cursor& full) {
        auto stage = full.wait();
        return stage;
    }
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        all_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto held = full.no_stage();
                        for (int i = 0; i < items; ++i) {
                            auto taken = take(full);
                            auto mine = std::move(taken);
                            taken.release();
                            held = std::move(mine);
                            write_tile(self, args, *held, i);
                            if (i % 3 == 0) {
                                held.release();
                                held.release();
                            }
                        }
                    }));
    }
};
CORRECT(pipelines, handle_passed_on, 1)

// The stages of one ring go to two consumers in turn, of which one takes more; the empty barriers count one of them. The
// number of stages is even, so each consumer sees every phase of its own stages.
struct consumers_take_turns_by_skipping : hazard_kernel<12> {
    struct shared_memory {
        pipeline<tile, 4> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        all_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<2>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        full.skip(self.index());
                        for (int i = self.index(); i < items; i += 2) {
                            auto stage = full.wait();
                            write_tile(self, args, *stage, i);
                            full.skip(1);
                        }
                    }));
    }
};
CORRECT(pipelines, consumers_take_turns_by_skipping, 1)

// Two rings of different depth with different trip counts: each consumer ends when its own ring does.
struct uneven_trip_counts : hazard_kernel<12> {
    struct shared_memory {
        pipeline<tile, 2> left;
        pipeline<tile, 3> right;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.left.init(block, 4);
        shared.right.init(block, 4);
        all_ready(block);
        const auto consume = [&](warpgroup& self, auto& ring, int count, int first) {
            auto full = ring.consumer(self);
            for (int i = 0; i < count; ++i) {
                auto stage = full.wait();
                write_tile(self, args, *stage, first + i);
            }
        };
        block.roles(single_warps<2>("producer",
                                    [&](warp& self) {
                                        if (self.index() == 0) {
                                            produce(self, args, shared.left, 1);
                                        } else {
                                            produce(self, args, shared.right, 7);
                                        }
                                    }),
                    consumers<2>([&](warpgroup& self) {
                        if (self.index() == 0) {
                            consume(self, shared.left, 1, 0);
                        } else {
                            consume(self, shared.right, 7, 1);
                        }
                    }));
    }
};
CORRECT(pipelines, uneven_trip_counts, 1)

// One warp is both producer and consumer: it fills the ring ahead and takes the oldest stage.
struct one_warp_produces_and_consumes : hazard_kernel<1> {
    struct shared_memory {
        pipeline<tile, 3> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 1);
        all_ready(block);
        block.each_warp([&](warp& self) {
            auto filling = shared.ring.producer(self);
            auto full = shared.ring.consumer(self);
            for (int i = 0; i < items + 2; ++i) {
                if (i < items) {
                    auto slot = filling.acquire();
                    load_async(self, *slot, args.in_tensor.tile(i, 0), slot);
                }
                if (i < 2) continue;
                auto stage = full.wait();
                warp_tile<float, 64, 32> values;
                load(self, values, *stage);
                store(self, args.out.at(tile::rows * (i - 2), 0), values);
            }
        });
    }
};
CORRECT(pipelines, one_warp_produces_and_consumes, 1)

// Blocks without work return before the set-up; a block may do so as long as all of its warps do.
struct some_blocks_return_early : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 2> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        const int mine = block.index().x;
        if (mine % 2 == 1) return;
        shared.ring.init(block, 4);
        all_ready(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int number : {mine, mine + 4}) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in_tensor.tile(number, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int number : {mine, mine + 4}) {
                            auto stage = full.wait();
                            write_tile(self, args, *stage, number);
                        }
                    }));
    }
};
CORRECT(pipelines, some_blocks_return_early, 4)

// Another role releases the stages: the reader tells it through a named barrier that it has read.
struct stages_released_by_another_role : hazard_kernel<12> {
    struct shared_memory {
        pipeline<tile, 2> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 1);
        all_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }),
                    single_warps<1>("releaser",
                                    [&](warp& self) {
                                        for (int i = 0; i < items; ++i) {
                                            turns::of<turn>(i % 2).sync(self, 5);
                                            shared.ring.empty[i % 2].arrive(self);
                                        }
                                    }),
                    consumers<1>([&](warpgroup& self) {
                        for (int i = 0; i < items; ++i) {
                            shared.ring.full[i % 2].wait(self, i / 2);
                            write_tile(self, args, shared.ring.items[i % 2], i);
                            turns::of<turn>(i % 2).sync(self, 5);
                        }
                    }));
    }
};
CORRECT(pipelines, stages_released_by_another_role, 1)

// The ring's memory becomes the staging of the result when the consumer has taken the last item, and an operand of
// another type after that; fences precede every change from ordinary writes to TMA.
struct ring_memory_reused_for_the_result : hazard_kernel<8> {
    struct shared_memory {
        pipeline_barriers<tile, 2> ring;
        overlay<tile[2], operand> memory;
        transaction_barrier landing;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        auto& tiles = shared.memory.template as<tile[2]>();
        shared.ring.init(block, tiles, 4);
        shared.landing.init(block, 1);
        all_ready(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self, tiles);
                        for (int i = 0; i < items; ++i) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in_tensor.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self, tiles);
                        group_rows sum, values;
                        fill(self, sum, 0.0f);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            load(self, values, *stage);
                            combine(self, sum, values, [](float x, float y) { return x + y; });
                        }
                        self.sync();
                        store(self, tiles[0], sum);
                        fence_async(self);
                        self.sync();
                        store_async(self, args.out_tensor.tile(0, 0), tiles[0]);
                        commit_stores(self);
                        wait_stores_read(self);
                    }));
        block.sync();
        auto& other = shared.memory.template as<operand>();
        block.each_warp([&](warp& self) {
            if (self.index() == 0) {
                shared.landing.expect(self, operand::bytes);
                load_async(self, other, args.a_tensor.tile(0, 0), shared.landing);
            }
            shared.landing.wait(self, 0);
            if (self.index() >= 4) return;
            warp_tile<bf16, 16, 64> values;
            warp_tile<float, 16, 64> wide;
            load(self, values, other.template subtile<16>(16 * self.index()));
            convert(self, wide, values);
            store(self, args.out.at(64 + 16 * self.index(), 0), wide);
        });
    }
};
CORRECT(pipelines, ring_memory_reused_for_the_result, 1)

// Every second stage is transformed by the producer and completed by an ordinary arrival, the others by their copy.
struct some_stages_are_transformed : hazard_kernel<8> {
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    struct shared_memory {
        pipeline<operand, 3> ring;
        transaction_barrier landed;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        shared.landed.init(block, 1);
        all_ready(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < items; ++i) {
                            if (i % 2 == 0) {
                                auto slot = filling.acquire();
                                load_async(self, *slot, args.a_tensor.tile(i, 0), slot);
                                continue;
                            }
                            auto slot = filling.acquire_for_transform(shared.landed);
                            load_async(self, *slot, args.a_tensor.tile(i, 0), slot);
                            shared.landed.wait(self, i / 2);
                            map(self, *slot, [](bf16 x) { return convert<bf16>(2 * convert<float>(x)); });
                            fence_async(self);
                            filling.publish(slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto before = full.no_stage();
                        group_sum sum;
                        fill(self, sum, 0.0f);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            mma_abt_async(self, sum, *stage, *stage);
                            wait_mma<1>(self);
                            before = std::move(stage);
                        }
                        wait_mma(self, sum);
                        store(self, args.out.at(0, 0), sum);
                    }));
    }
};
CORRECT(pipelines, some_stages_are_transformed, 1)

constexpr int tiles = 8;

// One reader of the scheduler holds each item until it has the next, as many as are drawn ahead; the other does not.
struct scheduler_readers_at_different_speed : hazard_kernel<12> {
    struct shared_memory {
        dynamic_tile_scheduler<3, int, 2> queue;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.queue.init(block, 8);
        all_ready(block);
        const auto copy = [&](warpgroup& self, int number, int column) {
            group_rows values;
            load(self, values, args.in.at(tile::rows * number, column));
            store(self, args.out.at(tile::rows * number, column), values);
        };
        block.roles(producer([&](warp& self) {
                        auto drawing = shared.queue.draw(self, block, tiles, args.flags);
                        while (drawing.next() < tiles) {}
                    }),
                    consumers<2>([&](warpgroup& self) {
                        auto reading = shared.queue.read(self);
                        if (self.index() == 0) {
                            auto held = reading.hold();
                            while (held.get() < tiles) {
                                auto next = reading.hold();
                                copy(self, held.get(), 0);
                                held = std::move(next);
                            }
                        } else {
                            for (int number = reading.next(); number < tiles; number = reading.next()) {
                                copy(self, number, 32);
                            }
                        }
                    }));
    }
};
CORRECT(pipelines, scheduler_readers_at_different_speed, 3)

// The producer role changes hands half way: the second warp continues when the first one has told it through a named
// barrier, with the same stages and phases.
struct producer_changes_half_way : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 2> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        all_ready(block);
        block.roles(single_warps<2>("producer",
                                    [&](warp& self) {
                                        const int half = 3, first = self.index() == 0 ? 0 : half;
                                        if (self.index() == 1) turns::of<turn>().sync(self, 2);
                                        for (int i = first; i < (self.index() == 0 ? half : items); ++i) {
                                            const int stage = i % 2;
                                            shared.ring.empty[stage].wait(self, i / 2 - 1);
                                            begin_load(self, args, shared.ring.items[stage], i,
                                                       shared.ring.full[stage]);
                                        }
                                        if (self.index() == 0) turns::of<turn>().arrive(self, 2);
                                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            write_tile(self, args, *stage, i);
                        }
                    }));
    }
};
CORRECT(pipelines, producer_changes_half_way, 1)

}  // namespace
