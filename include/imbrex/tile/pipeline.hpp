// A multistage pipeline between one producer warp and its consumers: a ring of shared-memory stages with a full and an
// empty mbarrier per stage, as in warp-specialized TMA kernels. The pipeline tracks the stage index, the barrier phase,
// the bytes that a stage expects, and the release of stages.
//
//        producer                                   consumers
//   acquire(): waits until the stage is empty  wait(): waits until the stage is full
//              expects the stage's bytes               *stage is the tile (or struct of tiles)
//   load_async(..., slot) completes on `full`  the end of the handle arrives at `empty`: released
//
//   full  [0][1][2][3]   one arrival per phase, the producer's arrive.expect_tx
//   empty [0][1][2][3]   one arrival per phase from every consumer warp
//
// Each side keeps its own cursor in registers; shared memory holds only the stages and the barriers.
//
// With TMA multicast in a thread block cluster (Cluster > 1), the rings of all blocks advance together: a stage is full
// when all shares have landed in it, and empty when the consumers of all blocks have released it. Each block must load
// a share of every stage for all blocks (load_multicast): the releases of the others could overtake a block that only
// receives.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/sync.hpp>
#include <imbrex/tile/barrier.hpp>

namespace imbrex {

template <class Item>
constexpr IMBREX_FN int bytes_of_item() {
    if constexpr (requires { Item::bytes; }) {
        return Item::bytes;
    } else {
        return static_cast<int>(sizeof(Item));
    }
}

// The stage and the phase of a cursor. If the number of stages allows both to be derived without a division, only the
// count of stages passed is stored: one register instead of two.
template <int Stages>
class pipeline_state {
  public:
    IMBREX_KERNEL int stage() const {
        if constexpr (counts) return static_cast<int>(passed_ % Stages);
        return stage_;
    }
    IMBREX_KERNEL unsigned round() const {
        if constexpr (counts) return passed_ / Stages;
        return passed_;
    }
    IMBREX_KERNEL void advance() {
        if constexpr (counts) {
            ++passed_;
        } else if (++stage_ == Stages) {
            stage_ = 0;
            ++passed_;
        }
    }
    // Advances by several stages, at most one round.
    IMBREX_KERNEL void advance(int stages) {
        if constexpr (counts) {
            passed_ += static_cast<unsigned>(stages);
        } else if ((stage_ += stages) >= Stages) {
            stage_ -= Stages;
            ++passed_;
        }
    }

  private:
    static constexpr bool counts = (Stages & (Stages - 1)) == 0;
    unsigned passed_ = 0;  // stages, or rounds
    int stage_ = 0;
};

// A pipeline without the memory of its stages, which the caller provides: for kernels that place stages by hand.
template <class Item, int Stages, int Cluster = 1>
struct pipeline_barriers {
    static_assert(Stages >= 1, "imbrex: a pipeline needs at least one stage");
    static constexpr int stages = Stages;
    static constexpr int bytes_per_stage = bytes_of_item<Item>();
    using storage = Item[Stages];

    transaction_barrier full[Stages];
    transaction_barrier empty[Stages];

    // Initialises the barriers for this many consumer warps per block. A fence_barriers and a block sync (a cluster
    // sync with multicast) must follow, once for all pipelines of the kernel. Several producer warps may write parts of
    // a stage (acquire_to_write): it is full when all of them have published it.
    template <class Scope>
    IMBREX_KERNEL void init(const Scope& scope, storage& items, int consumer_warps, int producer_warps = 1,
                            source here = source::current()) {
        for (int stage = 0; stage < Stages; ++stage) {
            hw::label_stage(scope, &items[stage], sizeof(Item), stage, here);
            hw::label_stage(scope, &full[stage], sizeof(transaction_barrier), stage, here);
            hw::label_stage(scope, &empty[stage], sizeof(transaction_barrier), stage, here);
            full[stage].init(scope, producer_warps, here);
            empty[stage].init(scope, consumer_warps * Cluster, here);
        }
    }

    // A stage that the producer fills.
    struct slot {
        Item* item;
        transaction_barrier* landing;

        IMBREX_KERNEL Item& operator*() const { return *item; }
        IMBREX_KERNEL Item* operator->() const { return item; }
        IMBREX_KERNEL transaction_barrier& barrier() const { return *landing; }
    };

    class producer_cursor {
      public:
        IMBREX_KERNEL producer_cursor(pipeline_barriers& ring, storage& items, const warp& scope)
            : ring_(&ring), items_(items), scope_(&scope) {}

        // Waits until the next stage is empty and expects its bytes.
        IMBREX_KERNEL slot acquire(source here = source::current()) {
            const int stage = at_.stage();
            ring_->empty[stage].wait(*scope_, at_.round() - 1, here);
            ring_->full[stage].expect(*scope_, bytes_per_stage, here);
            at_.advance();
            return {&items_[stage], &ring_->full[stage]};
        }

        // The same for a stage whose bytes the producer transforms before the consumers see them. The bytes land on the
        // barrier `landing`; the stage is full after publish.
        IMBREX_KERNEL slot acquire_for_transform(transaction_barrier& landing, source here = source::current()) {
            const int stage = at_.stage();
            ring_->empty[stage].wait_converged(*scope_, at_.round() - 1, here);
            landing.expect(*scope_, bytes_per_stage, here);
            at_.advance();
            return {&items_[stage], &landing};
        }
        // The same for a stage that the producers write themselves; it is full after their publish, or expect on its
        // barrier.
        IMBREX_KERNEL slot acquire_to_write(source here = source::current()) {
            const int stage = at_.stage();
            ring_->empty[stage].wait_converged(*scope_, at_.round() - 1, here);
            at_.advance();
            return {&items_[stage], &ring_->full[stage]};
        }
        IMBREX_KERNEL void publish(const slot& one, source here = source::current()) {
            ring_->full[one.item - items_].arrive(*scope_, here);
        }
        // The same for the oldest stage that this warp has not published: for stages that land later than the next one is
        // acquired, such as copies by cp.async.
        IMBREX_KERNEL void publish_next(source here = source::current()) {
            ring_->full[published_.stage()].arrive(*scope_, here);
            published_.advance();
        }
        // That stage, to be transformed before it is published.
        IMBREX_KERNEL Item& unpublished() const { return items_[published_.stage()]; }
        // Passes over a stage that another producer fills.
        IMBREX_KERNEL void skip() { at_.advance(); }

      private:
        pipeline_barriers* ring_;
        Item* items_;
        const warp* scope_;
        pipeline_state<Stages> at_;
        pipeline_state<Stages> published_;
    };

    // A stage that a consumer holds. The end of the handle releases it, or release() does so earlier.
    template <class Scope>
    class held_stage {
      public:
        static constexpr int none = -1;  // holds no stage
        IMBREX_KERNEL held_stage(pipeline_barriers& ring, Item* items, const Scope& scope, int stage, source from)
            : ring_(&ring), items_(items), scope_(&scope), stage_(stage), from_(from) {}
        IMBREX_KERNEL held_stage(held_stage&& other, source here = source::current())
            : ring_(other.ring_), items_(other.items_), scope_(other.scope_), stage_(other.stage_), from_(other.from_) {
            other.stage_ = none;
            other.from_ = here;
        }
        // Releases the held stage and takes over the other's: a loop can keep a stage until the next one is in use.
        IMBREX_KERNEL held_stage& operator=(held_stage&& other) {
            release(from_);
            stage_ = other.stage_;
            from_ = other.from_;
            other.stage_ = none;
            return *this;
        }
        held_stage(const held_stage&) = delete;
        held_stage& operator=(const held_stage&) = delete;
        // Throws in the host world if the release is a hazard.
        IMBREX_KERNEL ~held_stage() noexcept(false) { release(from_); }

        IMBREX_KERNEL Item& operator*() const { return item(Stages == 1 ? 0 : stage_); }
        IMBREX_KERNEL Item* operator->() const { return &item(Stages == 1 ? 0 : stage_); }

        // The same for repeated uses: addresses derived from the stage stay in uniform registers.
        IMBREX_KERNEL Item& uniform_stage() const { return item(Stages == 1 ? 0 : hw::uniform(stage_)); }

        IMBREX_KERNEL void release(source here = source::current()) {
            if (stage_ == none) return;
            const int stage = stage_;
            stage_ = none;
            from_ = here;
            if constexpr (Cluster == 1) {
                ring_->empty[stage].arrive(*scope_, here);
            } else {
                for (int rank = 0; rank < Cluster; ++rank) ring_->empty[stage].arrive_at(*scope_, rank, here);
            }
        }

        // A release in a loop body that only some iterations make. The stage must be held if `wanted`; in the host world
        // it is a hazard otherwise.
        IMBREX_KERNEL void release_if(bool wanted, source here = source::current()) {
            static_assert(Cluster == 1, "imbrex: only a block's own stages are released conditionally");
            if constexpr (!device_world) {
                if (stage_ == none) return hw::release_without_stage(*scope_, wanted, from_, here);
            }
            ring_->empty[stage_].arrive_if(*scope_, wanted, here);
            stage_ = wanted ? none : stage_;
        }

      private:
        // In the host world, a handle that holds no stage gives memory in which every access is a hazard.
        IMBREX_KERNEL Item& item(int stage) const {
            if constexpr (!device_world) {
                if (stage_ == none) return hw::released_stage<Item>(from_);
            }
            return items_[stage];
        }

        pipeline_barriers* ring_;
        Item* items_;
        const Scope* scope_;
        int stage_;
        [[no_unique_address]] source from_;  // of the wait; after the release, of the release
    };

    template <class Scope>
    class consumer_cursor {
      public:
        IMBREX_KERNEL consumer_cursor(pipeline_barriers& ring, storage& items, const Scope& scope)
            : ring_(&ring), items_(items), scope_(&scope) {}

        // Waits until the next stage is full and holds it.
        IMBREX_KERNEL held_stage<Scope> wait(source here = source::current()) {
            ring_->full[at_.stage()].wait(*scope_, at_.round(), here);
            return hold(hw::uniform(at_.stage()), here);
        }

        // The same for converged warps: the compiler keeps the stage number in a uniform register, because the wait
        // does not make it assume divergence.
        IMBREX_KERNEL held_stage<Scope> wait_converged(source here = source::current()) {
            ring_->full[at_.stage()].wait_converged(*scope_, at_.round(), here);
            return hold(at_.stage(), here);
        }

        // If `wanted`, waits for the next stage and releases it unused.
        IMBREX_KERNEL void skip_converged_if(bool wanted, source here = source::current()) {
            const int stage = at_.stage();
            ring_->full[stage].wait_converged_if(*scope_, at_.round(), wanted, here);
            ring_->empty[stage].arrive_if(*scope_, wanted, here);
            at_.advance(wanted ? 1 : 0);
        }

        // A handle without a stage, for a variable that holds one later.
        IMBREX_KERNEL held_stage<Scope> no_stage() {
            return {*ring_, items_, *scope_, held_stage<Scope>::none, source{}};
        }

        // Skips stages that belong to other consumers, at most one round.
        IMBREX_KERNEL void skip(int stages) { at_.advance(stages); }

      private:
        IMBREX_KERNEL held_stage<Scope> hold(int stage, source here) {
            at_.advance();
            return {*ring_, items_, *scope_, stage, here};
        }

        pipeline_barriers* ring_;
        Item* items_;
        const Scope* scope_;
        pipeline_state<Stages> at_;
    };

    IMBREX_KERNEL producer_cursor producer(const warp& scope, storage& items) { return {*this, items, scope}; }

    template <class Scope>
    IMBREX_KERNEL consumer_cursor<Scope> consumer(const Scope& scope, storage& items) {
        return {*this, items, scope};
    }
};

template <class Item, int Stages>
struct pipeline_items {
    Item items[Stages];
};

template <class Item, int Stages, int Cluster = 1>
struct pipeline : pipeline_items<Item, Stages>, pipeline_barriers<Item, Stages, Cluster> {
    using barriers = pipeline_barriers<Item, Stages, Cluster>;

    template <class Scope>
    IMBREX_KERNEL void init(const Scope& scope, int consumer_warps, source here = source::current()) {
        init(scope, consumer_warps, 1, here);
    }
    template <class Scope>
    IMBREX_KERNEL void init(const Scope& scope, int consumer_warps, int producer_warps,
                            source here = source::current()) {
        barriers::init(scope, this->items, consumer_warps, producer_warps, here);
    }

    IMBREX_KERNEL typename barriers::producer_cursor producer(const warp& scope) {
        return barriers::producer(scope, this->items);
    }

    template <class Scope>
    IMBREX_KERNEL typename barriers::template consumer_cursor<Scope> consumer(const Scope& scope) {
        return barriers::consumer(scope, this->items);
    }
};

}  // namespace imbrex
