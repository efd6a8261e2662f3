// separate_prefill: prompt and generated tokens in batches of their own, for batch-invariant runners; their order, and
// prefix caching of prompt blocks only.
#include "engine/serving/scheduler.hpp"

#include "engine/serving/fake_runner.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

using namespace imbrex::engine;
using imbrex::engine::test::fake_runner;
using imbrex::engine::test::text_alone;
using imbrex::engine::test::text_of;

namespace {

constexpr int vocabulary = 1000, block_size = 4;

struct apart {
    scheduler plan{block_manager(32, block_size),
                   {.context = 64, .max_num_batched_tokens = 8, .max_num_seqs = 4, .separate_prefill = true}};
    fake_runner runner{32, block_size, vocabulary, true};
    std::map<sequence_id, std::vector<int>> texts{};

    sequence_id add(const std::vector<int>& prompt, int more) {
        const sequence_id id =
            plan.add({.prompt = prompt, .max_new_tokens = more, .eos_tokens = {}, .sampling = {}}).front();
        texts[id] = prompt;
        return id;
    }

    // The batch, as text_of writes it.
    std::string step() {
        const batch work = plan.schedule();
        if (!work.entries.empty()) {
            for (const progress& each : plan.finish(work, runner.run(work))) texts[each.id].push_back(each.token);
        }
        return text_of(work);
    }
};

std::vector<int> alone(const std::vector<int>& prompt, int more) {
    const int length = static_cast<int>(prompt.size());
    return text_alone(prompt, 0, vocabulary, length + more, {}, length);
}

}  // namespace

TEST_CASE("Prefill and decode batches alternate") {
    apart all;
    all.add({1, 2, 3}, 6);
    CHECK(all.step() == "0: 0+3*");
    CHECK(all.step() == "0: 3+1*");
    all.add({4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, 3);
    CHECK(all.step() == "1: 0+8");
    CHECK(all.step() == "0: 4+1*");
    CHECK(all.step() == "1: 8+2*");
    CHECK(all.step() == "0: 5+1*, 1: 10+1*");
    while (!all.plan.idle()) all.step();
    CHECK(all.texts[0] == alone({1, 2, 3}, 6));
    CHECK(all.texts[1] == alone({4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, 3));
}

TEST_CASE(
    "Splits recomputation at the end of the prompt and does not reuse another prompt's blocks for generated tokens") {
    apart all;
    const std::vector<int> prompt{1, 2, 3, 4, 5, 6};
    all.add(prompt, 20);
    for (int i = 0; i < 12; ++i) all.step();
    // The same tokens as a prompt share only the first block.
    const std::vector<int> longer(all.texts[0].begin(), all.texts[0].begin() + 17);
    all.add(longer, 4);
    CHECK(all.step() == "1: 4+8");
    CHECK(all.step() == "0: 17+1*");
    CHECK(all.step() == "1: 12+5*");
    all.plan.abandon(all.plan.schedule());  // recomputes both
    CHECK(all.step() == "0: 4+2, 1: 16+1");
    CHECK(all.step() == "0: 6+7, 1: 17+1*");
    while (!all.plan.idle()) all.step();
    CHECK(all.texts[0] == alone(prompt, 20));
    CHECK(all.texts[1] == alone(longer, 4));
}
