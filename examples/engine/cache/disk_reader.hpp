// Reads blocks from files in threads of its own, so that the engine's steps go on meanwhile. A read has several blocks;
// two reads of the same block share it. Reads that nobody holds any more leave the queue.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cache/disk_entry.hpp"

namespace imbrex::engine {

using disk_content = std::shared_ptr<const std::vector<std::byte>>;

// Blocks that are read or have been read. The functions below ended() are for a read that has ended.
class disk_read {
  public:
    bool ended() const;
    bool has(const content_key& key, int group) const { return content(key, group) != nullptr; }
    bool has_any(const content_key& key) const;
    disk_content content(const content_key& key, int group) const;  // null: the file was damaged or gone
    double seconds() const;                                         // from the call to the last block
    std::size_t bytes() const { return bytes_; }                    // of the blocks

  private:
    friend class disk_reader;
    using clock = std::chrono::steady_clock;
    struct block_read {
        disk_block block{};
        std::size_t bytes = 0;
        disk_content content{};          // written before `done` is set
        clock::time_point done_at{};     // the same
        std::atomic<bool> done = false;  //
    };

    std::unordered_map<content_key, std::map<int, std::shared_ptr<block_read>>, content_key_hash> blocks_;
    clock::time_point began_ = clock::now();
    std::size_t bytes_ = 0;
};

class disk_reader {
  public:
    // Called by the threads, several at a time. Null: there is no content.
    using read_function = std::function<disk_content(const disk_block& block, std::size_t bytes)>;

    disk_reader(read_function read_block, int threads);
    disk_reader(const disk_reader&) = delete;
    disk_reader& operator=(const disk_reader&) = delete;
    // Ends the threads after the block that each reads. Reads that have not ended by then never end.
    ~disk_reader();

    // Begins to read these blocks, of this many bytes each.
    std::shared_ptr<disk_read> read(const std::vector<disk_block>& blocks, const std::vector<std::size_t>& bytes);
    // Until the condition, which may ask reads whether they have ended, or for this time.
    template <class Condition>
    bool wait(std::chrono::milliseconds most, const Condition& condition) {
        std::unique_lock guard(mutex_);
        return block_is_read_.wait_for(guard, most, condition);
    }

  private:
    using block_read = disk_read::block_read;
    using name = std::pair<content_key, int>;

    void read_blocks();

    read_function read_block_;
    std::mutex mutex_;
    std::condition_variable changed_, block_is_read_;
    bool ends_ = false;
    std::deque<std::weak_ptr<block_read>> queue_;
    std::map<name, std::weak_ptr<block_read>> known_;  // queued, being read, or read and still held
    std::vector<std::thread> threads_;
};

}  // namespace imbrex::engine
