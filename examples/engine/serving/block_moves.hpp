// What happens to blocks of the KV cache before a step computes anything, in this order:
//
//   saves    block -> slot of host memory: the content of a block that is about to be reallocated
//   loads    slot or bytes of a file -> block: a cached prefix that had left the KV cache
//   copies   block -> block: copy-on-write
//
// Within each list the order does not matter: no block and no slot is written twice, and no block of a copy is both
// source and destination. A slot that a step saves may be loaded in the same step.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace imbrex::engine {

using block_bytes = std::vector<std::byte>;

struct block_save {
    int group = 0, block = 0, slot = 0;
};

struct block_load {
    int group = 0, block = 0;
    int slot = -1;                              // or the bytes
    std::shared_ptr<const block_bytes> data{};  // all layers of the block, as in a slot
};

struct block_copy {
    int from = 0, to = 0;
    int group = 0;
};

// Between the KV cache and the levels below it.
struct block_moves {
    std::vector<block_save> saves{};
    std::vector<block_load> loads{};

    bool empty() const { return saves.empty() && loads.empty(); }
};

// The host memory of evicted blocks, which belongs to the runner: it executes the moves. A slot holds the keys and
// values of all layers of a cache group for one block.
class block_store {
  public:
    virtual ~block_store() = default;
    virtual std::span<std::byte> slot(int group, int number) = 0;
};

}  // namespace imbrex::engine
