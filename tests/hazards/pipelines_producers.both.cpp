// Producers of pipelines, stages that the producer transforms, and dynamic tile schedulers.

// With optimisation, the compiler also sees that a released handle has no stage.
#pragma GCC diagnostic ignored "-Warray-bounds"

#include "hazards/corpus.hpp"

#include <utility>

using namespace imbrex_hazards;

namespace {

using group_rows = warpgroup_tile<float, 64, 32>;
using group_sum = warpgroup_tile<float, 64, 64>;

constexpr int items = 5;

template <class Block>
IMBREX_KERNEL void rings_ready(Block& block) {
    fence_barriers(block);
    block.sync();
}

IMBREX_KERNEL void write_tile(const warpgroup& self, const corpus_arguments& args, const tile& from, int number) {
    group_rows values;
    load(self, values, from);
    store(self, args.out.at(tile::rows * number, 0), values);
}

// A correct consumer: writes every item to the output.
template <class Ring>
IMBREX_KERNEL void consume(const warpgroup& self, const corpus_arguments& args, Ring& ring, int count = items) {
    auto full = ring.consumer(self);
    for (int i = 0; i < count; ++i) {
        auto stage = full.wait();
        write_tile(self, args, *stage, i);
    }
}

struct pair {
    tile first, second;
};
struct ring_of_pairs {
    pipeline<pair, 2> ring;
    tile extra;

    template <class Block>
    IMBREX_KERNEL void init(Block& block) {
        ring.init(block, 4);
        rings_ready(block);
    }
    IMBREX_KERNEL void consume(const warpgroup& self, const corpus_arguments& args) {
        auto full = ring.consumer(self);
        for (int i = 0; i < 4; ++i) {
            auto stage = full.wait();
            write_tile(self, args, stage->first, 2 * i);
            write_tile(self, args, stage->second, 2 * i + 1);
        }
    }
};

// The stage expects two tiles; one is loaded.
template <bool Fixed>
struct loads_one_of_two_tiles : hazard_kernel<8> {
    using shared_memory = ring_of_pairs;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < 4; ++i) {
                            auto slot = filling.acquire();
                            load_async(self, slot->first, args.in_tensor.tile(i, 0), slot);
                            if constexpr (Fixed) load_async(self, slot->second, args.in_tensor.tile(i, 1), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { shared.consume(self, args); }));
    }
};
HAZARD_THAT_HANGS(pipelines, loads_one_of_two_tiles, 1, wrong_byte_count, deadlock)

// A third tile is loaded on the barrier of a stage that expects two.
template <bool Fixed>
struct loads_more_than_the_stage : hazard_kernel<8> {
    using shared_memory = ring_of_pairs;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < 4; ++i) {
                            auto slot = filling.acquire();
                            if (!Fixed && i == 0) load_async(self, shared.extra, args.in_tensor.tile(7, 0), slot);
                            load_async(self, slot->first, args.in_tensor.tile(i, 0), slot);
                            load_async(self, slot->second, args.in_tensor.tile(i, 1), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { shared.consume(self, args); }));
    }
};
HAZARD_THAT_HANGS(pipelines, loads_more_than_the_stage, 1, wrong_byte_count, read_before_landed, uninitialised_read)

struct ring_of_tiles {
    pipeline<tile, 2> ring;

    template <class Block>
    IMBREX_KERNEL void init(Block& block) {
        ring.init(block, 4);
        rings_ready(block);
    }
};

// The producer loads into the slot that it acquired before, and completes the new one with it.
template <bool Fixed>
struct load_into_the_previous_slot : hazard_kernel<8> {
    using shared_memory = ring_of_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        auto slot = filling.acquire();
                        load_async(self, *slot, args.in_tensor.tile(0, 0), slot);
                        for (int i = 1; i < items; ++i) {
                            auto next = filling.acquire();
                            load_async(self, Fixed ? *next : *slot, args.in_tensor.tile(i, 0), next);
                            slot = next;
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { consume(self, args, shared.ring); }));
    }
};
HAZARD(pipelines, load_into_the_previous_slot, 1, overwritten_in_flight, refilled_before_release, read_before_landed,
       uninitialised_read)

// The copy lands on the barrier of the slot that was acquired before.
template <bool Fixed>
struct load_lands_on_the_previous_barrier : hazard_kernel<8> {
    using shared_memory = ring_of_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        auto slot = filling.acquire();
                        load_async(self, *slot, args.in_tensor.tile(0, 0), slot);
                        for (int i = 1; i < items; ++i) {
                            auto next = filling.acquire();
                            load_async(self, *next, args.in_tensor.tile(i, 0), Fixed ? next : slot);
                            slot = next;
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { consume(self, args, shared.ring); }));
    }
};
HAZARD_THAT_HANGS(pipelines, load_lands_on_the_previous_barrier, 1, wrong_byte_count, read_before_landed,
                  uninitialised_read, deadlock)

// The loads of two rings complete on each other's barriers.
template <bool Fixed>
struct barriers_of_two_rings_swapped : hazard_kernel<8> {
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
                            auto right = to_right.acquire();
                            load_async(self, *left, args.in_tensor.tile(i, 0), (Fixed ? left : right).barrier());
                            load_async(self, *right, args.in_tensor.tile(i, 1), (Fixed ? right : left).barrier());
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto of_left = shared.left.consumer(self), of_right = shared.right.consumer(self);
                        for (int i = 0; i < 4; ++i) {
                            auto left = of_left.wait();
                            write_tile(self, args, *left, 2 * i);
                            auto right = of_right.wait();
                            write_tile(self, args, *right, 2 * i + 1);
                        }
                    }));
    }
};
HAZARD(pipelines, barriers_of_two_rings_swapped, 1, read_before_landed, uninitialised_read, overwritten_in_flight)

// The producer's cursor is made anew for the second item, and acquires stage 0 again.
template <bool Fixed>
struct producer_cursor_made_twice : hazard_kernel<8> {
    using shared_memory = ring_of_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < 2; ++i) {
                            if constexpr (!Fixed) filling = shared.ring.producer(self);
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in_tensor.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { consume(self, args, shared.ring, 2); }));
    }
};
HAZARD_THAT_HANGS(pipelines, producer_cursor_made_twice, 1, arrived_too_often, wrong_phase, overwritten_in_flight,
                  refilled_before_release, deadlock)

// Two warps produce into one ring, each with its own cursor.
template <bool Fixed>
struct two_warps_produce_into_one_ring : hazard_kernel<8> {
    using shared_memory = ring_of_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(single_warps<2>("producer",
                                    [&](warp& self) {
                                        if (Fixed && self.index() == 1) return;
                                        auto filling = shared.ring.producer(self);
                                        for (int i = 0; i < 4; ++i) {
                                            auto slot = filling.acquire();
                                            load_async(self, *slot, args.in_tensor.tile(i, 0), slot);
                                        }
                                    }),
                    consumers<1>([&](warpgroup& self) { consume(self, args, shared.ring, 4); }));
    }
};
HAZARD_THAT_HANGS(pipelines, two_warps_produce_into_one_ring, 1, arrived_too_often, overwritten_in_flight,
                  refilled_before_release, wrong_phase)

// The producer does not wait until the stage is empty.
template <bool Fixed>
struct load_without_an_empty_stage : hazard_kernel<8> {
    using shared_memory = ring_of_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        for (unsigned i = 0; i < 4; ++i) {
                            auto& landing = shared.ring.full[i % 2];
                            if constexpr (Fixed) shared.ring.empty[i % 2].wait(self, i / 2 - 1);
                            if (i > 1) landing.wait(self, i / 2 - 1);
                            landing.expect(self, tile::bytes);
                            load_async(self, shared.ring.items[i % 2], args.in_tensor.tile(i, 0), landing);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { consume(self, args, shared.ring, 4); }));
    }
};
HAZARD_THAT_HANGS(pipelines, load_without_an_empty_stage, 1, refilled_before_release, read_before_landed,
                  overwritten_in_flight, wrong_phase, deadlock)

// The producer acquires a stage for an item that it then leaves out.
template <bool Fixed>
struct acquired_stage_never_loaded : hazard_kernel<8> {
    using shared_memory = ring_of_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < items + 1; ++i) {
                            if (Fixed && i == 2) continue;
                            auto slot = filling.acquire();
                            if (i == 2) continue;
                            load_async(self, *slot, args.in_tensor.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { consume(self, args, shared.ring); }));
    }
};
HAZARD_THAT_HANGS(pipelines, acquired_stage_never_loaded, 1, wrong_byte_count, deadlock, incomplete_collective)

// The producer loads one item more than the consumers take; the block ends while it lands.
template <bool Fixed>
struct last_item_never_taken : hazard_kernel<8> {
    using shared_memory = ring_of_tiles;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < (Fixed ? items : items + 1); ++i) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in_tensor.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { consume(self, args, shared.ring); }));
    }
};
HAZARD(pipelines, last_item_never_taken, 1, in_flight_at_exit)

// The second ring is initialised after the fence and the sync for the first.
template <bool Fixed>
struct second_ring_initialised_too_late : hazard_kernel<8> {
    struct shared_memory {
        pipeline<tile, 2> left, right;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.left.init(block, 4);
        if constexpr (Fixed) shared.right.init(block, 4);
        rings_ready(block);
        if constexpr (!Fixed) shared.right.init(block, 4);
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
                            write_tile(self, args, *left, 2 * i);
                            auto right = of_right.wait();
                            write_tile(self, args, *right, 2 * i + 1);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, second_ring_initialised_too_late, 1, barrier_not_initialised)

// Kernels with products of a warpgroup.
struct product_kernel : hazard_kernel<8> {
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
};

// A ring whose producer doubles every operand before the consumer multiplies it.
struct ring_of_doubled_operands {
    pipeline<operand, 2> ring;
    transaction_barrier landed;

    template <class Block>
    IMBREX_KERNEL void init(Block& block) {
        ring.init(block, 4);
        landed.init(block, 1);
        rings_ready(block);
    }
    // Templates: only a kernel for sm_90a instantiates them.
    template <class Warp>
    IMBREX_KERNEL static void double_all(const Warp& self, operand& values) {
        map(self, values, [](bf16 x) { return convert<bf16>(2 * convert<float>(x)); });
    }
    template <class Group>
    IMBREX_KERNEL void consume(const Group& self, const corpus_arguments& args) {
        auto full = ring.consumer(self);
        group_sum sum;
        fill(self, sum, 0.0f);
        for (int i = 0; i < items; ++i) {
            auto stage = full.wait();
            mma_abt(self, sum, *stage, *stage);
        }
        store(self, args.out.at(0, 0), sum);
    }
};

// The producer publishes the stage before it has transformed it.
template <bool Fixed>
struct published_before_the_transform : product_kernel {
    using shared_memory = ring_of_doubled_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < items; ++i) {
                            auto slot = filling.acquire_for_transform(shared.landed);
                            load_async(self, *slot, args.a_tensor.tile(i, 0), slot);
                            shared.landed.wait(self, i);
                            if constexpr (!Fixed) filling.publish(slot);
                            shared.double_all(self, *slot);
                            fence_async(self);
                            if constexpr (Fixed) filling.publish(slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { shared.consume(self, args); }));
    }
};
HAZARD(pipelines, published_before_the_transform, 1, race, overwritten_in_flight, missing_proxy_fence)

// The producer transforms the stage before its copy has landed.
template <bool Fixed>
struct transformed_before_the_landing : product_kernel {
    using shared_memory = ring_of_doubled_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < items; ++i) {
                            auto slot = filling.acquire_for_transform(shared.landed);
                            load_async(self, *slot, args.a_tensor.tile(i, 0), slot);
                            if constexpr (Fixed) shared.landed.wait(self, i);
                            shared.double_all(self, *slot);
                            fence_async(self);
                            if constexpr (!Fixed) shared.landed.wait(self, i);
                            filling.publish(slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { shared.consume(self, args); }));
    }
};
HAZARD(pipelines, transformed_before_the_landing, 1, read_before_landed, overwritten_in_flight, uninitialised_read)

// The producer publishes its ordinary writes without a proxy fence; the consumer's product reads them.
template <bool Fixed>
struct published_without_a_proxy_fence : product_kernel {
    using shared_memory = ring_of_doubled_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < items; ++i) {
                            auto slot = filling.acquire_for_transform(shared.landed);
                            load_async(self, *slot, args.a_tensor.tile(i, 0), slot);
                            shared.landed.wait(self, i);
                            shared.double_all(self, *slot);
                            if constexpr (Fixed) fence_async(self);
                            filling.publish(slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { shared.consume(self, args); }));
    }
};
HAZARD(pipelines, published_without_a_proxy_fence, 1, missing_proxy_fence)

// The producer does not publish a stage that needs no transform.
template <bool Fixed>
struct untransformed_stage_never_published : product_kernel {
    using shared_memory = ring_of_doubled_operands;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block);
        block.roles(producer([&](warp& self) {
                        auto filling = shared.ring.producer(self);
                        for (int i = 0; i < items; ++i) {
                            auto slot = filling.acquire_for_transform(shared.landed);
                            load_async(self, *slot, args.a_tensor.tile(i, 0), slot);
                            shared.landed.wait(self, i);
                            if (i % 2 == 0) {
                                shared.double_all(self, *slot);
                                fence_async(self);
                            }
                            if (Fixed || i % 2 == 0) filling.publish(slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) { shared.consume(self, args); }));
    }
};
HAZARD_THAT_HANGS(pipelines, untransformed_stage_never_published, 1, deadlock, incomplete_collective, wrong_phase)

constexpr int tiles = 8;

IMBREX_KERNEL void copy_tile(const warpgroup& self, const corpus_arguments& args, int number) {
    group_rows values;
    load(self, values, args.in.at(tile::rows * number, 0));
    store(self, args.out.at(tile::rows * number, 0), values);
}

// The guard is what lies in front of the first item.
template <int Ahead>
struct queue_after_a_guard {
    shared_vector<int, 1> guard;
    dynamic_tile_scheduler<2, int, Ahead> queue;

    template <class Block>
    IMBREX_KERNEL void init(Block& block, int reader_warps) {
        put(block, guard, 0, 7);
        queue.init(block, reader_warps);
        rings_ready(block);
    }
    template <class Block>
    IMBREX_KERNEL void draw(const warp& self, Block& block, int* counter) {
        auto drawing = queue.draw(self, block, tiles, counter);
        while (drawing.next() < tiles) {}
    }
};

// The reader keeps its item until it has the next, but the scheduler draws only one ahead.
template <bool Fixed>
struct holds_more_items_than_drawn_ahead : hazard_kernel<8> {
    using shared_memory = queue_after_a_guard<1>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block, 4);
        block.roles(producer([&](warp& self) { shared.draw(self, block, args.flags); }),
                    consumers<1>([&](warpgroup& self) {
                        auto reading = shared.queue.read(self);
                        auto held = reading.hold();
                        while (held.get() < tiles) {
                            copy_tile(self, args, held.get());
                            if constexpr (Fixed) held.release();
                            held = reading.hold();
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, holds_more_items_than_drawn_ahead, 2, deadlock)

// The reader uses its item after it has released it.
template <bool Fixed>
struct scheduler_item_read_after_release : hazard_kernel<8> {
    using shared_memory = queue_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block, 4);
        block.roles(producer([&](warp& self) { shared.draw(self, block, args.flags); }),
                    consumers<1>([&](warpgroup& self) {
                        auto reading = shared.queue.read(self);
                        for (bool more = true; more;) {
                            auto held = reading.hold();
                            more = held.get() < tiles;
                            if constexpr (!Fixed) held.release();
                            if (more) copy_tile(self, args, held.get());
                        }
                    }));
    }
};
HAZARD(pipelines, scheduler_item_read_after_release, 2, used_after_release)

// The reader uses the handle from which the held item has been moved.
template <bool Fixed>
struct scheduler_item_read_after_move : hazard_kernel<8> {
    using shared_memory = queue_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block, 4);
        block.roles(producer([&](warp& self) { shared.draw(self, block, args.flags); }),
                    consumers<1>([&](warpgroup& self) {
                        auto reading = shared.queue.read(self);
                        while (true) {
                            auto next = reading.hold();
                            auto held = std::move(next);
                            if (held.get() >= tiles) break;
                            copy_tile(self, args, Fixed ? held.get() : next.get());
                        }
                    }));
    }
};
HAZARD(pipelines, scheduler_item_read_after_move, 2, used_after_release)

// Two groups read the items; the scheduler counts one of them.
template <bool Fixed>
struct scheduler_counts_one_of_two_readers : hazard_kernel<12> {
    using shared_memory = queue_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block, Fixed ? 8 : 4);
        block.roles(producer([&](warp& self) { shared.draw(self, block, args.flags); }),
                    consumers<2>([&](warpgroup& self) {
                        auto reading = shared.queue.read(self);
                        for (int number = reading.next(); number < tiles; number = reading.next()) {
                            if (self.index() == number % 2) copy_tile(self, args, number);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, scheduler_counts_one_of_two_readers, 2, arrived_too_often, race, wrong_phase)

// One of two readers stops at its first tile past a limit, while the scheduler still waits for its releases.
template <bool Fixed>
struct reader_stops_before_the_last_item : hazard_kernel<12> {
    using shared_memory = queue_after_a_guard<2>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const corpus_arguments& args, shared_memory& shared) {
        shared.init(block, 8);
        block.roles(producer([&](warp& self) { shared.draw(self, block, args.flags); }),
                    consumers<2>([&](warpgroup& self) {
                        auto reading = shared.queue.read(self);
                        for (int number = reading.next(); number < tiles; number = reading.next()) {
                            if (self.index() == 1 && number >= 4) {
                                if constexpr (Fixed) continue;
                                break;
                            }
                            if (self.index() == (number < 4 ? 1 : 0)) copy_tile(self, args, number);
                        }
                    }));
    }
};
HAZARD_THAT_HANGS(pipelines, reader_stops_before_the_last_item, 1, incomplete_collective, deadlock)

}  // namespace
