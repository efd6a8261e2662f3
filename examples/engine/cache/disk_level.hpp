// Cached blocks as files of a directory (disk_entry.hpp), which outlive the process:
//
//   <directory>/lock              the process that holds it writes; others only read
//   <directory>/3f/9a41....0.kv   the block with key 3f9a41... of cache group 0
//
// Files appear complete, by rename. A thread writes and removes them, others read them (disk_reader.hpp): no function
// but flush() waits for the disk. A file that is damaged is reported, removed and never used. When a file cannot be
// written (a full disk), the level reports it and writes no more. Entries of other models lie beside each other and share
// the budget.
//
// Thread-safe as far as these threads go: call it from one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/cache/block_codec.hpp"
#include "engine/cache/disk_entry.hpp"
#include "engine/cache/disk_reader.hpp"
#include "engine/cache/eviction_order.hpp"
#include "engine/cache/level_counts.hpp"

namespace imbrex::engine {

struct disk_level_options {
    std::filesystem::path directory{};
    std::int64_t bytes = 0;
    cache_policy policy = cache_policy::lru;
    block_codec codec{};
    std::function<void(const disk_block&)> before_read{};  // for tests: called by the threads that read
};

class disk_level {
  public:
    using ticket = std::int64_t;

    // Throws for invalid options. A directory that cannot be used is reported, and the level stays empty.
    explicit disk_level(disk_level_options options);
    disk_level(const disk_level&) = delete;
    disk_level& operator=(const disk_level&) = delete;
    ~disk_level();

    bool has(const content_key& key, int group) const;
    bool has_any(const content_key& key) const;

    // Writes a block in the background; the bytes must stay until the level has them or the ticket is cancelled.
    // Nothing if the level has it already, or does not write.
    void write_later(ticket number, disk_block block, std::span<const std::byte> from);
    // The bytes of the ticket are not needed any more; false while they are being written. A block that was not yet
    // written is lost.
    bool cancel(ticket number);
    // Waits until all is written.
    void flush();

    // Begins to read these blocks. The level does not have those from then on that turn out to be damaged or gone.
    disk_reader& reader() { return *reader_; }

    // Whether blocks can still be written.
    bool writes() const;
    std::int64_t capacity() const { return options_.bytes; }
    level_counts counts() const;
    // Messages since the last call, for people.
    std::vector<std::string> take_messages();

  private:
    using id = eviction_order::id;
    struct file {
        content_key key{};
        int group = 0;
        std::int64_t bytes = 0;
    };
    struct job {
        ticket number = 0;
        disk_block block{};
        std::span<const std::byte> from{};
    };

    std::filesystem::path path_of(const content_key& key, int group) const;
    void open_directory();
    void read_directory();
    void write_jobs();
    void write(const job& wanted);
    std::string write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) const;
    disk_content read_block(const disk_block& block, std::size_t block_bytes);
    void unlink_files(std::unique_lock<std::mutex>& guard);

    // With the lock held.
    std::optional<id> find(const content_key& key, int group) const;
    void insert(const file& added);
    void remove(id entry, bool evicted);
    void evict_down_to(std::int64_t bytes);
    void report(std::string message) { messages_.push_back("disk cache: " + std::move(message)); }

    disk_level_options options_;
    int lock_file_ = -1;  // held: this process writes

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool writes_ = false, ends_ = false;
    std::list<job> jobs_;
    std::unordered_map<ticket, std::list<job>::iterator> job_of_;
    std::optional<ticket> writing_;
    std::vector<std::filesystem::path> unlinked_;  // files of removed entries, for the thread that writes
    std::unordered_map<content_key, std::map<int, id>, content_key_hash> by_key_;
    std::unordered_map<id, file> files_;
    eviction_order order_;
    id next_id_ = 0;
    level_counts counts_;
    std::vector<std::string> messages_;
    std::thread writer_;
    std::unique_ptr<disk_reader> reader_;  // ends before the rest
};

}  // namespace imbrex::engine
