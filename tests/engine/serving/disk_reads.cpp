// Prefixes in files are read beside the steps: others advance while one waits. The disk is as slow as the test wants: a
// gate stands before each read of a file.
#include "engine/serving/scheduler.hpp"

#include "engine/serving/engine.hpp"
#include "engine/serving/fake_runner.hpp"
#include "engine/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace imbrex::engine::test {

namespace {

constexpr int block_size = 4, vocabulary = 50, new_tokens = 6;

// Reads of files wait until it is open.
class gate {
  public:
    void open() {
        {
            const std::lock_guard guard(mutex_);
            is_open_ = true;
        }
        changed_.notify_all();
    }
    void pass(const content_key& key) {
        std::unique_lock guard(mutex_);
        ++passes_[key];
        changed_.wait(guard, [&] { return is_open_; });
    }
    std::map<content_key, int> passes() const {
        const std::lock_guard guard(mutex_);
        return passes_;
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool is_open_ = false;
    std::map<content_key, int> passes_;
};

std::vector<int> prompt_number(int number, int length = 33) {
    std::vector<int> prompt;
    for (int i = 0; i < length; ++i) prompt.push_back((i * number + number) % vocabulary);
    return prompt;
}

// A process: scheduler, disk and runner on a folder. Room for two of these prompts, and hardly any host memory.
struct process {
    explicit process(const temporary_folder& folder, std::int64_t most_read_bytes = 1 << 20)
        : disk(std::make_shared<disk_level>(disk_level_options{.directory = folder.path(),
                                                               .bytes = 1 << 20,
                                                               .before_read =
                                                                   [this](const disk_block& block) {
                                                                       before_read(block);
                                                                       entry.pass(block.key);
                                                                   }})),
          runner(groups, block_size, vocabulary, false, {2}),
          plan(blocks(most_read_bytes), {.context = 100, .max_num_batched_tokens = 200, .max_num_seqs = 4}) {}

    block_manager blocks(std::int64_t most_read_bytes) {
        block_manager made(groups, block_size);
        made.add_lower_levels({.host_slots = {2},
                               .disk = disk,
                               .store = &runner,
                               .root_key = first_key("model"),
                               .most_read_bytes = most_read_bytes});
        return made;
    }

    sequence_id add(int number) {
        return plan
            .add({.prompt = prompt_number(number), .max_new_tokens = new_tokens, .eos_tokens = {}, .sampling = {}})
            .front();
    }

    // One step; false if no sequence could run.
    bool step() {
        const batch work = plan.schedule();
        if (work.entries.empty()) return false;
        for (const progress& each : plan.finish(work, runner.run(work))) texts[each.id].push_back(each.token);
        return true;
    }
    void run() {
        while (!plan.idle()) {
            if (!step()) plan.wait_for_files(std::chrono::seconds(1));
        }
    }
    // The prefix cache goes to files.
    void save() {
        for (batch work = plan.save_cached(); !work.moves.empty(); work = plan.save_cached()) {
            plan.finish(work, runner.run(work));
            disk->flush();
        }
    }

    std::vector<cache_group> groups{{.blocks = 24, .block_bytes = block_size * 8}};
    gate entry;
    std::function<void(const disk_block&)> before_read = [](const disk_block&) {};
    std::shared_ptr<disk_level> disk;
    fake_runner runner;
    scheduler plan;
    std::map<sequence_id, std::vector<int>> texts;
};

std::vector<int> expected(int number) {
    const std::vector<int> prompt = prompt_number(number);
    const int length = static_cast<int>(prompt.size());
    std::vector<int> all = text_alone(prompt, 0, vocabulary, length + new_tokens, {}, INT_MAX, {0});
    return {all.begin() + length, all.end()};
}

// An earlier process, which leaves files of these prompts.
void fill(const temporary_folder& folder, const std::vector<int>& numbers) {
    process before(folder);
    before.entry.open();
    for (const int number : numbers) {
        const sequence_id id = before.add(number);
        before.run();
        before.save();
        CHECK(before.texts.at(id) == expected(number));
    }
}

}  // namespace

TEST_CASE("While a sequence waits for its files, others make steps") {
    const temporary_folder folder;
    fill(folder, {1});
    process now(folder);
    const sequence_id slow = now.add(1), other = now.add(2);
    for (int i = 0; i < new_tokens; ++i) CHECK(now.step());
    CHECK(now.texts.at(other) == expected(2));
    CHECK(now.plan.find(slow)->state == sequence_state::loading);
    CHECK(now.plan.loading() == 1);
    CHECK_FALSE(now.step());
    CHECK(now.texts.count(slow) == 0);
    CHECK(now.plan.blocks().used_bytes() == 0);

    now.entry.open();
    now.run();
    CHECK(now.texts.at(slow) == expected(1));
    CHECK(now.plan.counts().disk_tokens == 32);
    CHECK(now.plan.counts().disk_waits == 1);
    CHECK(now.plan.counts().disk_wait_seconds > 0);
}

TEST_CASE("A sequence with its prefix in memory does not wait behind one that loads") {
    const temporary_folder folder;
    fill(folder, {1});
    process now(folder);
    now.add(2);
    now.run();
    const sequence_id slow = now.add(1), cached = now.add(2);
    for (int i = 0; i < new_tokens; ++i) CHECK(now.step());
    CHECK(now.texts.at(cached) == expected(2));
    CHECK(now.plan.counts().cached_tokens == 32);
    now.entry.open();
    now.run();
    CHECK(now.texts.at(slow) == expected(1));
}

TEST_CASE("Cancelling a sequence that loads frees everything, and its files are read no more") {
    const temporary_folder folder;
    fill(folder, {1});
    process now(folder);
    const sequence_id slow = now.add(1);
    CHECK_FALSE(now.step());
    CHECK(now.plan.cancel(slow));
    CHECK(now.plan.idle());
    CHECK(now.plan.loading() == 0);
    now.plan.wait_for_files(std::chrono::hours(1));  // for nothing
    now.entry.open();
    const sequence_id again = now.add(1);
    now.run();
    CHECK(now.texts.at(again) == expected(1));
    CHECK(now.plan.counts().disk_waits == 1);
    CHECK(now.plan.blocks().used_bytes() == 0);
}

TEST_CASE("Files that are damaged or gone when they are read: their tokens are computed") {
    for (const bool gone : {false, true}) {
        CAPTURE(gone);
        const temporary_folder folder;
        fill(folder, {1});
        process now(folder);
        std::once_flag once;
        now.before_read = [&](const disk_block& block) {
            if (block.tokens.front() != prompt_number(1)[20]) return;
            for (const auto& each : std::filesystem::recursive_directory_iterator(folder.path())) {
                if (each.path().string().find(hexadecimal(block.key).substr(2)) == std::string::npos) continue;
                if (gone) {
                    std::filesystem::remove(each.path());
                } else {
                    std::filesystem::resize_file(each.path(), 50);
                }
                return;
            }
        };
        now.entry.open();
        const sequence_id id = now.add(1);
        now.run();
        CHECK(now.texts.at(id) == expected(1));
        CHECK(now.plan.counts().disk_tokens == 20);
        CHECK(now.disk->counts().damaged_blocks == (gone ? 0 : 1));
    }
}

TEST_CASE("Sequences with the same prefix share the reads") {
    const temporary_folder folder;
    fill(folder, {1});
    process now(folder);
    const std::vector<sequence_id> all{now.add(1), now.add(1), now.add(1)};
    CHECK_FALSE(now.step());
    CHECK(now.plan.loading() == 3);
    now.entry.open();
    now.run();
    for (const sequence_id id : all) CHECK(now.texts.at(id) == expected(1));
    CHECK(now.entry.passes().size() == 8);
    for (const auto& [key, times] : now.entry.passes()) CHECK(times == 1);
}

TEST_CASE("Reads take a bounded amount of host memory: the next sequence waits, and no longer than needed") {
    const temporary_folder folder;
    fill(folder, {1, 3, 4});
    process now(folder, 10 * block_size * 8);
    const std::vector<sequence_id> all{now.add(1), now.add(3), now.add(4)};
    const sequence_id other = now.add(2);
    for (int i = 0; i < new_tokens; ++i) CHECK(now.step());
    CHECK(now.texts.at(other) == expected(2));
    CHECK(now.plan.loading() == 3);
    CHECK(now.entry.passes().size() <= 8);  // of the first
    now.entry.open();
    now.run();
    CHECK(now.texts.at(all[0]) == expected(1));
    CHECK(now.texts.at(all[1]) == expected(3));
    CHECK(now.texts.at(all[2]) == expected(4));
    CHECK(now.plan.counts().disk_waits == 3);
}

TEST_CASE("The process can end while files are read") {
    const temporary_folder folder;
    fill(folder, {1});
    std::thread opening;
    {
        process now(folder);
        now.add(1);
        CHECK_FALSE(now.step());
        opening = std::thread([&entry = now.entry] { entry.open(); });
        opening.join();
    }
}

TEST_CASE("The engine waits for files when nothing else is to be done, and not for long") {
    const temporary_folder folder;
    fill(folder, {1});
    process now(folder);
    engine model(now.runner, now.blocks(1 << 20), {.context = 100, .max_num_batched_tokens = 200, .max_num_seqs = 4});
    const sequence_id slow =
        model.add({.prompt = prompt_number(1), .max_new_tokens = new_tokens, .eos_tokens = {}, .sampling = {}}).front();
    CHECK(model.step().empty());
    CHECK_FALSE(model.idle());
    now.entry.open();
    std::vector<int> text;
    while (!model.idle()) {
        for (const event& each : model.step()) {
            CHECK(each.id == slow);
            text.push_back(each.sampled.token);
        }
    }
    CHECK(text == expected(1));
    CHECK(model.summary().disk_waits == 1);
    CHECK(model.summary().json().find("\"disk_cache_waits\":1,") != std::string::npos);
}

}  // namespace imbrex::engine::test
