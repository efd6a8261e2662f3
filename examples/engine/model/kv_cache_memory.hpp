// The paged KV cache in the memory of a world, and host memory for blocks that were evicted from it. All layers of a
// cache group are parts of each block, so that a block moves in one copy:
//
//   group   | block 0                                  | block 1 ...
//           | layer 0: K, V | layer 1: K, V | ...      |               K, V: [KV head, token in block, column]
//
// The attention kernels read one layer of it, whose blocks lie a whole block apart.
#pragma once

#include <imbrex/hw/pinned_memory.hpp>
#include <imbrex/hw/world_copy.hpp>
#include <imbrex/hw/world_event.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/kv_cache_layout.hpp"
#include "engine/model/paged_attention.hpp"
#include "engine/model/runner.hpp"
#include "engine/serving/batch.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

class kv_cache_memory {
  public:
    kv_cache_memory(const model_config& config, const runner_options& options)
        : where_(options.where),
          block_size_(options.block_size),
          part_bytes_(static_cast<std::size_t>(kv_token_bytes(config, options) * options.block_size) / 2),
          layout_(kv_cache_layout_of(config, options.context == 0 ? config.context : options.context)),
          copy_stream_(options.where),
          computed_(options.where),
          moved_(options.where) {
        for (const cache_group& each : kv_cache_groups(config, options)) {
            const auto bytes = static_cast<std::size_t>(each.block_bytes);
            const std::size_t number = groups_.size();
            const int slots = number < options.host_slots.size() ? options.host_slots[number] : 0;
            groups_.push_back({.blocks = each.blocks,
                               .bytes = bytes,
                               .memory = {where_, static_cast<std::size_t>(each.blocks) * bytes},
                               .slots = {where_, static_cast<std::size_t>(slots) * bytes}});
        }
        std::vector<std::size_t> layers(groups_.size());
        for (const int group : layout_.group_of_layer)
            first_bytes_.push_back(2 * part_bytes_ * layers[static_cast<std::size_t>(group)]++);
    }

    int groups() const { return layout_.groups(); }
    int group_of(int layer) const { return layout_.group_of_layer[static_cast<std::size_t>(layer)]; }

    layer_kv_cache of_layer(int layer) const {
        const group& own = of_group(group_of(layer));
        const std::size_t keys = first_bytes_[static_cast<std::size_t>(layer)];
        return {.k = own.memory.at(keys),
                .v = own.memory.at(keys + part_bytes_),
                .blocks = own.blocks,
                .block_size = block_size_,
                .block_bytes = static_cast<std::int64_t>(own.bytes)};
    }

    // In stream order. Copies to and from host memory run in a stream of their own; the work that is enqueued in
    // `stream` from now on waits for them.
    void move(const batch& work, void* stream) {
        if (!work.moves.empty()) {
            computed_.record(stream);
            computed_.make_stream_wait(copy_stream_.get());
            for (const block_save& one : work.moves.saves) {
                const group& own = of_group(one.group);
                copy_bytes(where_, slot(one.group, one.slot).data(), own.block(one.block), own.bytes,
                           copy_stream_.get());
            }
            for (const block_load& one : work.moves.loads) {
                const group& own = of_group(one.group);
                const std::byte* const from = one.data ? one.data->data() : slot(one.group, one.slot).data();
                copy_bytes(where_, own.block(one.block), from, own.bytes, copy_stream_.get());
            }
            moved_.record(copy_stream_.get());
            moved_.make_stream_wait(stream);
        }
        for (const block_copy& one : work.copies) {
            const group& own = of_group(one.group);
            copy_bytes(where_, own.block(one.to), own.block(one.from), own.bytes, stream);
        }
    }

    std::span<std::byte> slot(int group, int number) const {
        const struct group& own = of_group(group);
        return {own.slots.at(static_cast<std::size_t>(number) * own.bytes), own.bytes};
    }

  private:
    struct group {
        int blocks = 0;
        std::size_t bytes = 0;  // of a block
        world_memory memory{};
        pinned_memory slots{};

        void* block(int number) const { return memory.at(static_cast<std::size_t>(number) * bytes); }
    };

    const group& of_group(int number) const { return groups_[static_cast<std::size_t>(number)]; }

    world where_;
    int block_size_;
    std::size_t part_bytes_;  // of the keys, or of the values, of a block in one layer
    kv_cache_layout layout_;
    std::vector<std::size_t> first_bytes_;  // of each layer: the offset of its keys in a block
    std::vector<group> groups_;
    world_stream copy_stream_;
    world_event computed_, moved_;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
