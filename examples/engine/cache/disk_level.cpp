#include "engine/cache/disk_level.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <iterator>
#include <tuple>
#include <utility>

namespace imbrex::engine {

namespace {

constexpr const char* extension = ".kv";
constexpr const char* unfinished = ".tmp";
constexpr unsigned most_readers = 8;

std::string reason() {
    return std::strerror(errno);
}

// A descriptor that is closed at the end.
class descriptor {
  public:
    explicit descriptor(int number) : number_(number) {}
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;
    ~descriptor() { close(); }
    int get() const { return number_; }
    bool close() {
        const int number = std::exchange(number_, -1);
        return number < 0 || ::close(number) == 0;
    }

  private:
    int number_;
};

// The key and the group in the name of a file.
std::optional<std::pair<content_key, int>> parse_name(const std::filesystem::path& path) {
    const std::string name = path.filename().string(), front = path.parent_path().filename().string();
    const std::string digits = front + name.substr(0, name.find('.'));
    content_key key;
    if (front.size() != 2 || digits.size() != 2 * key.size() || path.extension() != extension) return {};
    for (std::size_t i = 0; i < key.size(); ++i) {
        const char* const at = digits.data() + 2 * i;
        if (std::from_chars(at, at + 2, key[i], 16).ptr != at + 2) return {};
    }
    const std::string group = path.stem().extension().string();
    int number = -1;
    if (group.size() < 2) return {};
    const auto parsed = std::from_chars(group.data() + 1, group.data() + group.size(), number);
    if (parsed.ptr != group.data() + group.size() || number < 0) return {};
    return std::pair(key, number);
}

// Nothing if there is no such file; an error if it cannot be read. Each thread reads into the same memory again: fresh
// memory costs more than the read of a cached file.
std::optional<std::span<const std::byte>> read_file(const std::filesystem::path& path) {
    thread_local std::vector<std::byte> bytes;
    const descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (opened.get() < 0 && errno == ENOENT) return {};
    require(opened.get() >= 0, reason());
    struct stat status = {};
    require(::fstat(opened.get(), &status) == 0 && S_ISREG(status.st_mode), "it is not a file");
    bytes.resize(static_cast<std::size_t>(status.st_size));
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t got = ::read(opened.get(), bytes.data() + done, bytes.size() - done);
        if (got < 0 && errno == EINTR) continue;
        require(got >= 0, reason());
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return std::span(bytes).first(done);
}

}  // namespace

disk_level::disk_level(disk_level_options options) : options_(std::move(options)), order_(options_.policy) {
    options_.codec.check();
    require(options_.bytes > 0, "cache-disk: ", options_.bytes, " bytes; it must be positive");
    require(!options_.directory.empty(), "cache-dir: none; the disk level needs a directory");
    counts_.capacity_bytes = options_.bytes;
    open_directory();
    try {
        read_directory();
    } catch (const std::filesystem::filesystem_error& failure) {
        report(options_.directory.string() + " cannot be read: " + failure.code().message());
    }
    std::unique_lock guard(mutex_);
    unlink_files(guard);
    guard.unlock();
    if (writes_) writer_ = std::thread([this] { write_jobs(); });
    reader_ = std::make_unique<disk_reader>(
        [this](const disk_block& block, std::size_t bytes) { return read_block(block, bytes); },
        static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, most_readers)));
}

disk_level::~disk_level() {
    reader_.reset();
    {
        const std::lock_guard guard(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    if (writer_.joinable()) writer_.join();
    if (lock_file_ >= 0) ::close(lock_file_);
}

void disk_level::open_directory() {
    std::error_code failure;
    std::filesystem::create_directories(options_.directory, failure);
    if (failure) return report(options_.directory.string() + " cannot be made: " + failure.message());
    const std::string lock = (options_.directory / "lock").string();
    lock_file_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_file_ < 0) return report(lock + " cannot be written (" + reason() + "): the directory is only read");
    writes_ = ::flock(lock_file_, LOCK_EX | LOCK_NB) == 0;
    if (!writes_) report("another process writes to " + options_.directory.string() + ": it is only read");
}

void disk_level::read_directory() {
    std::vector<std::tuple<std::filesystem::file_time_type, std::string, file>> found;
    if (!std::filesystem::is_directory(options_.directory)) return;
    for (const auto& folder : std::filesystem::directory_iterator(options_.directory)) {
        if (!folder.is_directory()) continue;
        for (const auto& each : std::filesystem::directory_iterator(folder)) {
            std::error_code gone;
            if (each.path().extension() == unfinished && writes_) std::filesystem::remove(each.path(), gone);
            const auto name = parse_name(each.path());
            if (!name) continue;
            const auto bytes = each.file_size(gone);
            const auto time = each.last_write_time(gone);
            if (gone) continue;
            found.emplace_back(time, each.path().string(),
                               file{name->first, name->second, static_cast<std::int64_t>(bytes)});
        }
    }
    std::ranges::sort(found, {}, [](const auto& each) { return std::tie(std::get<0>(each), std::get<1>(each)); });
    for (const auto& each : found) insert(std::get<2>(each));
    if (writes_) evict_down_to(options_.bytes);
}

std::filesystem::path disk_level::path_of(const content_key& key, int group) const {
    const std::string digits = hexadecimal(key);
    return options_.directory / digits.substr(0, 2) / (digits.substr(2) + "." + std::to_string(group) + extension);
}

std::optional<disk_level::id> disk_level::find(const content_key& key, int group) const {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return {};
    const auto entry = found->second.find(group);
    return entry == found->second.end() ? std::nullopt : std::optional(entry->second);
}

bool disk_level::has(const content_key& key, int group) const {
    const std::lock_guard guard(mutex_);
    return find(key, group).has_value();
}

bool disk_level::has_any(const content_key& key) const {
    const std::lock_guard guard(mutex_);
    return by_key_.contains(key);
}

void disk_level::insert(const file& added) {
    if (find(added.key, added.group)) return;
    by_key_[added.key][added.group] = ++next_id_;
    files_.emplace(next_id_, added);
    order_.add(next_id_);
    counts_.held_bytes += added.bytes;
}

void disk_level::remove(id entry, bool evicted) {
    const auto found = files_.find(entry);
    const file& old = found->second;
    if (writes_) {
        unlinked_.push_back(path_of(old.key, old.group));
        changed_.notify_all();
    }
    const auto groups = by_key_.find(old.key);
    groups->second.erase(old.group);
    if (groups->second.empty()) by_key_.erase(groups);
    if (evicted) {
        order_.evict(entry);
        ++counts_.evicted_blocks;
    } else {
        order_.remove(entry);
    }
    counts_.held_bytes -= old.bytes;
    files_.erase(found);
}

void disk_level::evict_down_to(std::int64_t bytes) {
    while (counts_.held_bytes > bytes && !order_.empty()) remove(order_.first([](id) { return true; }), true);
}

void disk_level::write_later(ticket number, disk_block block, std::span<const std::byte> from) {
    const std::lock_guard guard(mutex_);
    if (!writes_ || find(block.key, block.group)) return;
    jobs_.push_back({.number = number, .block = std::move(block), .from = from});
    job_of_[number] = std::prev(jobs_.end());
    changed_.notify_all();
}

bool disk_level::cancel(ticket number) {
    const std::lock_guard guard(mutex_);
    if (writing_ == number) return false;
    if (const auto found = job_of_.find(number); found != job_of_.end()) {
        jobs_.erase(found->second);
        job_of_.erase(found);
        ++counts_.lost_blocks;
    }
    return true;
}

void disk_level::flush() {
    std::unique_lock guard(mutex_);
    changed_.wait(guard, [&] { return ((jobs_.empty() && unlinked_.empty()) || !writes_) && !writing_; });
}

void disk_level::write_jobs() {
    std::unique_lock guard(mutex_);
    for (;;) {
        changed_.wait(guard, [&] { return ends_ || (writes_ && (!jobs_.empty() || !unlinked_.empty())); });
        unlink_files(guard);
        if (ends_) return;
        if (jobs_.empty()) continue;
        const job next = std::move(jobs_.front());
        jobs_.pop_front();
        job_of_.erase(next.number);
        writing_ = next.number;
        guard.unlock();
        write(next);
        guard.lock();
        writing_.reset();
        changed_.notify_all();
    }
}

// While the lock is not held: a step must not wait for it.
void disk_level::unlink_files(std::unique_lock<std::mutex>& guard) {
    if (unlinked_.empty()) return;
    const std::vector<std::filesystem::path> paths = unlinked_;
    guard.unlock();
    std::error_code gone;
    for (const auto& each : paths) std::filesystem::remove(each, gone);
    guard.lock();
    unlinked_.erase(unlinked_.begin(), unlinked_.begin() + static_cast<std::ptrdiff_t>(paths.size()));
    changed_.notify_all();
}

void disk_level::write(const job& wanted) {
    const auto path = path_of(wanted.block.key, wanted.block.group);
    std::vector<std::byte> bytes;
    std::string failure;
    try {
        bytes = write_disk_entry(wanted.block, options_.codec, wanted.from);
    } catch (const std::exception& refused) {
        const std::lock_guard guard(mutex_);
        ++counts_.lost_blocks;
        return report(refused.what());
    }
    const auto size = static_cast<std::int64_t>(bytes.size());
    {
        std::unique_lock guard(mutex_);
        if (size > options_.bytes || find(wanted.block.key, wanted.block.group)) {
            counts_.lost_blocks += size > options_.bytes;
            return;
        }
        evict_down_to(options_.bytes - size);
        unlink_files(guard);
    }
    failure = write_file(path, bytes);
    const std::lock_guard guard(mutex_);
    if (failure.empty()) {
        insert({wanted.block.key, wanted.block.group, size});
        ++counts_.saved_blocks;
        counts_.saved_bytes += size;
        return;
    }
    counts_.lost_blocks += 1 + static_cast<std::int64_t>(jobs_.size());
    jobs_.clear();
    job_of_.clear();
    writes_ = false;
    report(path.string() + " cannot be written (" + failure + "): nothing more is written, what is there is read");
}

std::string disk_level::write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) const {
    std::error_code failure;
    std::filesystem::create_directory(path.parent_path(), failure);
    const std::filesystem::path made = path.string() + unfinished;
    descriptor opened(::open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (opened.get() < 0) return reason();
    const auto give_up = [&] {
        std::string why = reason();
        ::unlink(made.c_str());
        return why;
    };
    while (!bytes.empty()) {
        const ssize_t done = ::write(opened.get(), bytes.data(), bytes.size());
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return give_up();
        bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
    if (!opened.close() || ::rename(made.c_str(), path.c_str()) != 0) return give_up();
    return {};
}

disk_content disk_level::read_block(const disk_block& block, std::size_t block_bytes) {
    if (options_.before_read) options_.before_read(block);
    if (!has(block.key, block.group)) return {};
    const auto path = path_of(block.key, block.group);
    std::string failure;
    std::int64_t file_bytes = 0;
    disk_content made;
    try {
        if (const auto bytes = read_file(path)) {
            file_bytes = static_cast<std::int64_t>(bytes->size());
            made = std::make_shared<const std::vector<std::byte>>(
                decode_disk_entry(*bytes, block, options_.codec, block_bytes));
        }
    } catch (const std::exception& refused) {
        failure = refused.what();
    }
    if (made) ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // for the order of eviction in the next process
    const std::lock_guard guard(mutex_);
    const auto entry = find(block.key, block.group);
    if (!failure.empty()) {
        ++counts_.damaged_blocks;
        report(path.string() + ": " + failure + (writes_ ? "; it is removed" : "; it is ignored"));
    }
    if (!made && entry) remove(*entry, false);
    if (!made) return {};
    if (entry) order_.use(*entry);
    ++counts_.loaded_blocks;
    counts_.loaded_bytes += file_bytes;
    return made;
}

bool disk_level::writes() const {
    const std::lock_guard guard(mutex_);
    return writes_;
}

level_counts disk_level::counts() const {
    const std::lock_guard guard(mutex_);
    return counts_;
}

std::vector<std::string> disk_level::take_messages() {
    const std::lock_guard guard(mutex_);
    return std::exchange(messages_, {});
}

}  // namespace imbrex::engine
