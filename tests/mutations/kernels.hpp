// One small correct kernel of each kind. The tests run each in many schedules, compare its results with plain loops,
// and mutate each of its synchronisations.
#pragma once

#include <imbrex/imbrex.hpp>

namespace mutations {

using namespace imbrex;

using float_tile = shared_tile<float, 64, 32>;

struct matrices {
    matrix_view<float> in;
    matrix_view<float> out;
};

// out = 2 in + 1: the block loads a tile, each warp maps a part of it.
struct map_kernel {
    static constexpr int warps = 4;
    using arguments = matrices;
    struct shared_memory {
        float_tile tile;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        load(block, smem.tile, args.in.tile<float_tile>(block.index().x, 0));
        block.sync();
        block.each_warp([&](warp& self) {
            warp_tile<float, 16, 32> values;
            load(self, values, smem.tile.subtile<16>(16 * self.index()));
            map(self, values, [](float x) { return 2.0f * x + 1.0f; });
            store(self, args.out.at(64 * block.index().x + 16 * self.index(), 0), values);
        });
    }
};

// Softmax of each row, through shared memory both ways.
struct softmax_kernel {
    static constexpr int warps = 4;
    using arguments = matrices;
    struct shared_memory {
        float_tile tile;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        load(block, smem.tile, args.in.tile<float_tile>(block.index().x, 0));
        block.sync();
        block.each_warp([&](warp& self) {
            warp_tile<float, 16, 32> values;
            load(self, values, smem.tile.subtile<16>(16 * self.index()));
            softmax(self, values);
            store(self, smem.tile.subtile<16>(16 * self.index()), values);
        });
        block.sync();
        store(block, args.out.tile<float_tile>(block.index().x, 0), smem.tile);
    }
};

struct tensors {
    tma_tensor<float_tile, 2> in;
    tma_tensor<float_tile, 2> out;
    int tiles;
};

// out = in + 1 through a ring of three stages, with two staging tiles for stores.
struct copy_kernel {
    static constexpr int warps = 8;
    using arguments = tensors;
    struct shared_memory {
        pipeline<float_tile, 3> ring;
        float_tile staged[2];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        for (int i = 0; i < args.tiles; ++i) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in.tile(i, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = smem.ring.consumer(self);
                        warpgroup_tile<float, 64, 32> values;
                        for (int i = 0; i < args.tiles; ++i) {
                            {
                                auto stage = full.wait();
                                load(self, values, *stage);
                            }
                            map(self, values, [](float x) { return x + 1.0f; });
                            wait_stores_read<1>(self);
                            self.sync();
                            store(self, smem.staged[i % 2], values);
                            fence_async(self);
                            self.sync();
                            store_async(self, args.out.tile(i, 0), smem.staged[i % 2]);
                            commit_stores(self);
                        }
                        wait_stores(self);
                    }));
    }
};

// A tile of A B per block, with a ring of two stages.
struct gemm_kernel {
    static constexpr int warps = 8;
    using a_tile = shared_tile<bf16, 64, 32>;
    using b_tile = shared_tile<bf16, 32, 64>;
    using c_tile = warpgroup_tile<float, 64, 64>;
    struct operands {
        a_tile a;
        b_tile b;
    };
    struct arguments {
        tma_tensor<a_tile, 2> a;
        tma_tensor<b_tile, 2> b;
        matrix_view<float> c;
        int steps;
    };
    struct shared_memory {
        pipeline<operands, 2> ring;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.ring.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        for (int k = 0; k < args.steps; ++k) {
                            auto slot = filling.acquire();
                            load_async(self, slot->a, args.a.tile(block.index().y, k), slot);
                            load_async(self, slot->b, args.b.tile(k, block.index().x), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = smem.ring.consumer(self);
                        c_tile sum;
                        fill(self, sum, 0.0f);
                        for (int k = 0; k < args.steps; ++k) {
                            auto stage = full.wait();
                            mma_ab(self, sum, stage->a, stage->b);
                        }
                        store(self, args.c.tile<c_tile>(block.index().y, block.index().x), sum);
                    }));
    }
};

// The sum of a column of tiles, each copied by cp.async two steps ahead.
struct multistage_kernel {
    static constexpr int warps = 4;
    static constexpr int stages = 3;
    struct arguments {
        matrix_view<float> in;
        matrix_view<float> out;
        int tiles;
    };
    struct shared_memory {
        float_tile ring[stages];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.each_warpgroup([&](warpgroup& self) {
            warpgroup_tile<float, 64, 32> sum;
            warpgroup_tile<float, 64, 32> values;
            fill(self, sum, 0.0f);
            for (int i = 0; i < stages - 1; ++i) {
                copy_async(self, smem.ring[i], args.in.tile<float_tile>(i, 0));
                commit_copies(self);
            }
            for (int i = 0; i < args.tiles; ++i) {
                wait_copies<stages - 2>(self);
                self.sync();  // all copies have landed, and the stage that is filled next is free
                const int ahead = i + stages - 1;
                if (ahead < args.tiles) {
                    copy_async(self, smem.ring[ahead % stages], args.in.tile<float_tile>(ahead, 0));
                }
                commit_copies(self);
                load(self, values, smem.ring[i % stages]);
                combine(self, sum, values, functional::add{});
            }
            store(self, args.out.at(0, 0), sum);
        });
    }
};

// Two warpgroups alternate on one shared tile by named barriers: each doubles it and adds its own number.
struct ping_pong_kernel {
    static constexpr int warps = 8;
    struct arguments {
        matrix_view<float> out;
        int turns;
    };
    struct shared_memory {
        float_tile tile;
    };
    struct turn {
        static constexpr int count = 2;
    };
    using barriers = named_barriers<turn>;

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        block.roles(consumers<2>([&](warpgroup& self) {
            const int mine = self.index();
            warpgroup_tile<float, 64, 32> values;
            fill(self, values, 1.0f);
            if (mine == 0) store(self, smem.tile, values);
            for (int i = mine; i < args.turns; i += 2) {
                if (i > 0) barriers::of<turn>(mine).sync(self, 8);
                load(self, values, smem.tile);
                map(self, values, [&](float x) { return 2.0f * x + static_cast<float>(mine); });
                store(self, smem.tile, values);
                if (i + 1 < args.turns) barriers::of<turn>(1 - mine).arrive(self, 8);
            }
            if ((args.turns - 1) % 2 == mine) store(self, args.out.at(0, 0), values);
        }));
    }
};

// Two blocks of a cluster each load one half of every stage for both (TMA multicast), and each stores all of it.
struct multicast_kernel {
    static constexpr int warps = 8;
    static constexpr int cluster = 2;
    struct arguments {
        tma_tensor<float_tile, 2> in;
        matrix_view<float> out[2];  // one for each block of the cluster
        int tiles;
    };
    struct halves {
        float_tile half[2];
    };
    struct shared_memory {
        pipeline<halves, 2, 2> ring;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        const int rank = block.cluster_rank();
        smem.ring.init(block, 4);
        fence_barriers(block);
        block.cluster_sync();
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        for (int i = 0; i < args.tiles; i += 2) {
                            auto slot = filling.acquire();
                            load_multicast(self, slot->half[rank], args.in.tile(i + rank, 0), slot, 3u);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = smem.ring.consumer(self);
                        warpgroup_tile<float, 64, 32> values;
                        for (int i = 0; i < args.tiles; i += 2) {
                            auto stage = full.wait();
                            for (int half = 0; half < 2; ++half) {
                                load(self, values, stage->half[half]);
                                store(self, args.out[rank].tile<float_tile>(i + half, 0), values);
                            }
                        }
                    }));
        block.cluster_sync();  // the other block arrives at barriers here until it is done
    }
};

// Blocks draw tiles from a counter until none is left: out = -in.
struct queue_kernel {
    static constexpr int warps = 8;
    struct arguments {
        tma_tensor<float_tile, 2> in;
        matrix_view<float> out;
        int* counter;
        int tiles;
    };
    struct shared_memory {
        pipeline<float_tile, 2> ring;
        dynamic_tile_scheduler<2> queue;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.ring.init(block, 4);
        smem.queue.init(block, 4);
        fence_barriers(block);
        block.sync();
        block.roles(producer([&](warp& self) {
                        auto filling = smem.ring.producer(self);
                        auto drawing = smem.queue.draw(self, block, args.tiles, args.counter);
                        for (int tile = drawing.next(); tile < args.tiles; tile = drawing.next()) {
                            auto slot = filling.acquire();
                            load_async(self, *slot, args.in.tile(tile, 0), slot);
                        }
                    }),
                    consumers<1>([&](warpgroup& self) {
                        auto full = smem.ring.consumer(self);
                        auto reading = smem.queue.read(self);
                        warpgroup_tile<float, 64, 32> values;
                        for (int tile = reading.next(); tile < args.tiles; tile = reading.next()) {
                            auto stage = full.wait();
                            load(self, values, *stage);
                            map(self, values, [](float x) { return -x; });
                            store(self, args.out.tile<float_tile>(tile, 0), values);
                        }
                    }));
    }
};

// The blocks of a cooperative grid pass tiles to each other through global memory: one by a TMA store, one by ordinary
// stores. Both are read by TMA, after a flag. out = tile + 1 of the next block.
struct relay_kernel {
    static constexpr int warps = 1;
    static constexpr bool cooperative = true;
    struct arguments {
        matrix_view<float> in;
        tma_tensor<float_tile, 2> copied;  // for stores and loads
        tma_tensor<float_tile, 2> mapped;
        matrix_view<float> mapped_rows;  // the same memory
        matrix_view<float> out;
        int* flags;
    };
    struct shared_memory {
        float_tile tiles[2];
        transaction_barrier landing;
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& smem) {
        smem.landing.init(block, 1);
        fence_barriers(block);
        block.each_warp([&](warp& self) {
            const int own = block.index().x, next = (own + 1) % block.count().x;
            warp_tile<float, 64, 32> values, more;
            load(self, values, args.in.at(64 * own, 0));
            store(self, smem.tiles[0], values);
            fence_async(self);
            store_async(self, args.copied.tile(own, 0), smem.tiles[0]);
            commit_stores(self);
            wait_stores(self);
            fill(self, more, 1.0f);
            store(self, args.mapped_rows.at(64 * own, 0), more);
            fence_async_global(self);
            atomic_store<memory_order::release>(self, args.flags + own, 1);

            wait_for_value<memory_order::acquire>(self, args.flags + next, [](int flag) { return flag == 1; });
            smem.landing.expect(self, 2 * float_tile::bytes);
            load_async(self, smem.tiles[0], args.copied.tile(next, 0), smem.landing);
            load_async(self, smem.tiles[1], args.mapped.tile(next, 0), smem.landing);
            smem.landing.wait(self, 0);
            load(self, values, smem.tiles[0]);
            load(self, more, smem.tiles[1]);
            combine(self, values, more, functional::add{});
            store(self, args.out.at(64 * own, 0), values);
        });
    }
};

}  // namespace mutations
