// Consumers of pipelines: stages and their handles, releases, counts. pipelines_producers.both.cpp has the producers,
// and tile schedulers.

// With optimisation, the compiler also sees that a released handle has no stage.
#pragma GCC diagnostic ignored "-Warray-bounds"

#include "hazards/corpus.hpp"

#include <utility>

using namespace imbrex_hazards;

namespace {

using group_rows = warpgroup_tile<float, 64, 32>;
using group_sum = warpgroup_tile<float, 64, 64>;

constexpr int items = 5;

// The barriers are initialised: the rest of the set-up.
template <class Block>
IMBREX_KERNEL void rings_ready(Block& block) {
    fence_barriers(block);
    block.sync();
}

// A correct producer: tiles 0, 1, ... of the input.
template <class Ring>
IMBREX_KERNEL void produce(const warp& self, const corpus_arguments& args, Ring& ring, int count = items) {
    auto filling = ring.producer(self);
    for (int i = 0; i < count; ++i) {
        auto slot = filling.acquire();
        load_async(self, *slot, args.in_tensor.tile(i, 0), slot);
    }
}

// Writes a tile to tile number `number` of the output.
IMBREX_KERNEL void write_tile(const warpgroup& self, const corpus_arguments& args, const tile& from, int number) {
    group_rows values;
    load(self, values, from);
    store(self, args.out.at(tile::rows * number, 0), values);
}

// A producer and one consumer around a ring. The guard is what lies in front of stage 0.
template <int Stages>
struct ring_after_a_guard {
    tile guard;
    pipeline<tile, Stages> ring;

    template <class Block>
    IMBREX_KERNEL void init(Block& block) {
        fill(block, guard, 0.0f);
        ring.init(block, 4);
        rings_ready(block);
    }
};

// The stage is read through its handle after the handle has released it.
template <bool Fixed>
struct stage_read_after_release : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            if constexpr (!Fixed) stage.release();
                            write_tile(self, args, *stage, i);
                            if constexpr (Fixed) stage.release();
                        }
                    }));
    }
};
HAZARD(pipelines, stage_read_after_release, 1, used_after_release)

// The same in a ring of one stage, where the handle still finds the tile.
template <bool Fixed>
struct single_stage_read_after_release : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<1>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            if constexpr (!Fixed) stage.release();
                            write_tile(self, args, *stage, i);
                            if constexpr (Fixed) stage.release();
                        }
                    }));
    }
};
HAZARD(pipelines, single_stage_read_after_release, 1, used_after_release, refilled_before_release, read_before_landed)

// The stage is read through a handle that has been moved from.
template <bool Fixed>
struct read_through_a_moved_from_handle : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            auto mine = std::move(stage);
                            write_tile(self, args, Fixed ? *mine : *stage, i);
                        }
                    }));
    }
};
HAZARD(pipelines, read_through_a_moved_from_handle, 1, used_after_release)

// The same after a move assignment, as in a loop that keeps the current stage in one variable.
template <bool Fixed>
struct read_through_an_assigned_from_handle : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto held = full.no_stage();
                        for (int i = 0; i < items; ++i) {
                            auto next = full.wait();
                            held = std::move(next);
                            write_tile(self, args, Fixed ? *held : *next, i);
                        }
                    }));
    }
};
HAZARD(pipelines, read_through_an_assigned_from_handle, 1, used_after_release)

// A handle that holds no stage yet is read.
template <bool Fixed>
struct read_through_an_empty_handle : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring, 1); }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto stage = full.no_stage();
                        if constexpr (Fixed) stage = full.wait();
                        write_tile(self, args, *stage, 0);
                        if constexpr (!Fixed) stage = full.wait();
                    }));
    }
};
HAZARD(pipelines, read_through_an_empty_handle, 1, used_after_release)

// The assignment of the next stage releases the older one, which is still read through a reference.
template <bool Fixed>
struct assignment_releases_the_older_stage : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto held = full.wait();
                        for (int i = 0; i < items - 1; ++i) {
                            const tile& older = *held;
                            if constexpr (Fixed) write_tile(self, args, older, i);
                            held = full.wait();
                            if constexpr (!Fixed) write_tile(self, args, older, i);
                        }
                        write_tile(self, args, *held, items - 1);
                    }));
    }
};
HAZARD(pipelines, assignment_releases_the_older_stage, 1, refilled_before_release, read_before_landed,
       used_after_release)

// The handle is a temporary: the stage is released at the end of the line that waits for it.
template <bool Fixed>
struct stage_of_a_temporary_handle : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < items; ++i) {
                            auto handle = full.no_stage();
                            const tile* values = Fixed ? &*(handle = full.wait()) : &*full.wait();
                            write_tile(self, args, *values, i);
                        }
                    }));
    }
};
HAZARD(pipelines, stage_of_a_temporary_handle, 1, refilled_before_release, read_before_landed, used_after_release)

struct pair {
    tile first, second;
};

// The release of the stage precedes the read of its second tile.
template <bool Fixed>
struct release_before_the_last_read : hazard_kernel<8> {
    struct shared_memory {
        pipeline<pair, 1> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        rings_ready(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < 3; ++i) {
                            auto slot = filling.acquire();
                            load_async(self, slot->first, args.in_tensor.tile(i, 0), slot);
                            load_async(self, slot->second, args.in_tensor.tile(i, 1), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < 3; ++i) {
                            auto stage = full.wait();
                            const pair& both = *stage;
                            write_tile(self, args, both.first, 2 * i);
                            if constexpr (!Fixed) stage.release();
                            write_tile(self, args, both.second, 2 * i + 1);
                        }
                    }));
    }
};
HAZARD(pipelines, release_before_the_last_read, 1, refilled_before_release, read_before_landed, used_after_release)

// The item of the previous iteration is used in the next one; its stage has been released in between.
template <bool Fixed>
struct previous_item_used_in_the_next_iteration : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto held = full.no_stage();
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            if (i > 0) write_tile(self, args, shared.ring.items[(i - 1) % 2], i - 1);
                            if (i == items - 1) write_tile(self, args, *stage, i);
                            if constexpr (Fixed) held = std::move(stage);
                        }
                    }));
    }
};
HAZARD(pipelines, previous_item_used_in_the_next_iteration, 1, refilled_before_release, read_before_landed,
       used_after_release)

// The consumer arrives at the empty barrier itself, and then its handle releases the stage a second time.
template <bool Fixed>
struct stage_released_twice : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            write_tile(self, args, *stage, i);
                            if constexpr (!Fixed) shared.ring.empty[i % 2].arrive(self);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, stage_released_twice, 1, arrived_too_often, wrong_phase)

// release_if is called again when the stage is no longer held.
template <bool Fixed>
struct conditional_release_of_a_released_stage : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            write_tile(self, args, *stage, i);
                            stage.release_if(true);
                            if constexpr (!Fixed) stage.release_if(true);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, conditional_release_of_a_released_stage, 1, used_after_release, arrived_too_often)

// The consumer holds three stages of a ring of two.
template <bool Fixed>
struct holds_more_stages_than_the_ring : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring, 3); }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto first = full.wait();
                        auto second = full.wait();
                        write_tile(self, args, *first, 0);
                        if constexpr (Fixed) first.release();
                        auto third = full.wait();
                        write_tile(self, args, *second, 1);
                        write_tile(self, args, *third, 2);
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, holds_more_stages_than_the_ring, 1, deadlock)

// The ring is initialised for one consumer; two release its stages.
template <bool Fixed>
struct counts_one_of_two_consumers : hazard_kernel<12> {
    struct shared_memory {
        pipeline<tile, 2> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, Fixed ? 8 : 4);
        rings_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring, 4); }),
                    consumers<2>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < 4; ++i) {
                            auto stage = full.wait();
                            write_tile(self, args, *stage, 2 * i + self.index());
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, counts_one_of_two_consumers, 1, arrived_too_often, refilled_before_release,
                  read_before_landed, wrong_phase)

// The producer's warp is counted among the consumers; it never releases a stage.
template <bool Fixed>
struct counts_the_producer_as_a_consumer : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 2> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, Fixed ? 4 : 5);
        rings_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            write_tile(self, args, *stage, i);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, counts_the_producer_as_a_consumer, 1, deadlock, incomplete_collective)

// Two consumers take turns; the second one does not skip the first stage of the first one.
template <bool Fixed>
struct second_consumer_skips_too_few : hazard_kernel<12> {
    struct shared_memory {
        pipeline<tile, 4> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        rings_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring, 8); }),
                    consumers<2>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        full.skip(Fixed ? self.index() : 0);
                        for (int i = self.index(); i < 8; i += 2) {
                            auto stage = full.wait();
                            write_tile(self, args, *stage, i);
                            full.skip(1);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, second_consumer_skips_too_few, 1, arrived_too_often, wrong_phase, refilled_before_release,
                  read_before_landed, deadlock)

// Two consumers take turns in a ring of three stages: each meets stages of which it has not seen the previous phase, and
// the parity of that phase passes its wait.
template <bool Fixed>
struct turns_in_a_ring_of_odd_depth : hazard_kernel<12> {
    struct shared_memory {
        pipeline<tile, Fixed ? 4 : 3> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        rings_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring, 8); }),
                    consumers<2>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        full.skip(self.index());
                        for (int i = self.index(); i < 8; i += 2) {
                            auto stage = full.wait();
                            write_tile(self, args, *stage, i);
                            full.skip(1);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, turns_in_a_ring_of_odd_depth, 1, wrong_phase, read_before_landed, uninitialised_read,
                  refilled_before_release)

// The consumer skips an item that is its own without releasing the stage.
template <bool Fixed>
struct skip_without_a_release : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 2> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        rings_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < items; ++i) {
                            if (i == 1) {
                                if constexpr (Fixed) {
                                    full.skip_converged_if(true);
                                } else {
                                    full.skip(1);
                                }
                            } else {
                                auto stage = full.wait();
                                write_tile(self, args, *stage, i);
                            }
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, skip_without_a_release, 1, deadlock, wrong_phase)

// The consumer's cursor is made anew in every iteration, and begins at stage 0 each time.
template <bool Fixed>
struct consumer_cursor_made_twice : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 2> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        rings_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring, 2); }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < 2; ++i) {
                            if constexpr (!Fixed) full = shared.ring.consumer(self);
                            auto stage = full.wait();
                            write_tile(self, args, *stage, i);
                        }
                    }));
    }
};
HAZARD(pipelines, consumer_cursor_made_twice, 1, arrived_too_often, wrong_phase, in_flight_at_exit)

// The consumer takes one item more than the producer loads.
template <bool Fixed>
struct consumer_takes_one_item_more : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 2> ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.ring.init(block, 4);
        rings_ready(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < (Fixed ? items : items + 1); ++i) {
                            auto stage = full.wait();
                            write_tile(self, args, *stage, i);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, consumer_takes_one_item_more, 1, incomplete_collective, deadlock)

// The consumer waits for one ring and reads the stage of the other.
template <bool Fixed>
struct reads_the_stage_of_the_other_ring : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 2> left, right;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.left.init(block, 4);
        shared.right.init(block, 4);
        rings_ready(block);
        block.roles(producer([&](warp& self) {
                        auto to_left = shared.left.producer(self), to_right = shared.right.producer(self);
                        for (int i = 0; i < 4; ++i) {
                            auto left = to_left.acquire();
                            load_async(self, *left, args.in_tensor.tile(i, 0), left);
                            auto right = to_right.acquire();
                            load_async(self, *right, args.in_tensor.tile(i, 1), right);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto of_left = shared.left.consumer(self), of_right = shared.right.consumer(self);
                        for (int i = 0; i < 4; ++i) {
                            auto left = of_left.wait();
                            write_tile(self, args, Fixed ? *left : shared.right.items[i % 2], 2 * i);
                            auto right = of_right.wait();
                            write_tile(self, args, Fixed ? *right : shared.left.items[i % 2], 2 * i + 1);
                        }
                    }));
    }
};
HAZARD(pipelines, reads_the_stage_of_the_other_ring, 1, read_before_landed, uninitialised_read, race,
       refilled_before_release)

// Kernels with products of a warpgroup.
struct product_kernel : hazard_kernel<8> {
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
};

struct operand_ring {
    pipeline<operand, 2> ring;

    template <class Block>
    IMBREX_KERNEL void init(Block& block) {
        ring.init(block, 4);
        rings_ready(block);
    }
    IMBREX_KERNEL void produce(const warp& self, const corpus_arguments& args) {
        auto filling = ring.producer(self);
        for (int i = 0; i < items; ++i) {
            auto slot = filling.acquire();
            load_async(self, *slot, args.a_tensor.tile(i, 0), slot);
        }
    }
};

// The stage is released while the product still reads it.
template <bool Fixed>
struct released_under_an_mma : product_kernel {
    using shared_memory = operand_ring;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { shared.produce(self, args); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        group_sum sum;
                        fill(self, sum, 0.0f);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            mma_abt_async(self, sum, *stage, *stage);
                            if constexpr (!Fixed) stage.release();
                            wait_mma(self, sum);
                        }
                        store(self, args.out.at(0, 0), sum);
                    }));
    }
};
HAZARD(pipelines, released_under_an_mma, 1, overwritten_in_flight, refilled_before_release)

// wait_mma<1> leaves the newest product in flight; its stage is released, not that of the product before.
template <bool Fixed>
struct releases_the_stage_of_the_newest_mma : product_kernel {
    using shared_memory = operand_ring;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { shared.produce(self, args); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        auto before = full.no_stage();
                        group_sum sum;
                        fill(self, sum, 0.0f);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            mma_abt_async(self, sum, *stage, *stage);
                            wait_mma<1>(self);
                            if constexpr (Fixed) before = std::move(stage);
                        }
                        wait_mma(self, sum);
                        store(self, args.out.at(0, 0), sum);
                    }));
    }
};
HAZARD(pipelines, releases_the_stage_of_the_newest_mma, 1, overwritten_in_flight, refilled_before_release)

// The consumer scales the stage in place and releases it without a proxy fence; then TMA writes the same bytes.
template <bool Fixed>
struct stage_written_and_released_without_fence : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring); }), consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        for (int i = 0; i < items; ++i) {
                            auto stage = full.wait();
                            map(self, *stage, [](float x) { return 2 * x; });
                            self.sync();
                            write_tile(self, args, *stage, i);
                            if constexpr (Fixed) fence_async(self);
                        }
                    }));
    }
};
HAZARD(pipelines, stage_written_and_released_without_fence, 1, missing_proxy_fence)

// The epilogue stages its result in stage 0, into which a later item is still being loaded.
template <bool Fixed>
struct result_staged_over_a_stage_in_flight : hazard_kernel<8> {
    using shared_memory = ring_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) { produce(self, args, shared.ring, 4); }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = shared.ring.consumer(self);
                        group_rows sum, values;
                        for (int i = 0; i < 4; ++i) {
                            auto stage = full.wait();
                            load(self, values, *stage);
                            if (i % 2 == 0) sum = values;
                            stage.release();
                            if (i % 2 == 0) continue;
                            // The end of an output tile; the next one is being loaded.
                            tile& staging = Fixed ? shared.guard : shared.ring.items[0];
                            combine(self, sum, values, [](float x, float y) { return x + y; });
                            self.sync();
                            store(self, staging, sum);
                            self.sync();
                            store(self, args.out.at(tile::rows * (i / 2), 0), staging);
                        }
                    }));
    }
};
HAZARD(pipelines, result_staged_over_a_stage_in_flight, 1, race, overwritten_in_flight, read_before_landed,
       refilled_before_release, missing_proxy_fence)

}  // namespace
