// Text in, text out: the program interface with a small random model.
#include "engine/serving/text_engine.hpp"

#include <map>

#include "engine/loading/random_model.hpp"
#include "engine/model/kv_cache_layout.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

model_files tiny() {
    return random_model(config_of_known_model("tiny"), 1);
}

struct outcome {
    std::string text;
    std::vector<int> tokens;
    finish_reason reason = finish_reason::none;
};

std::map<sequence_id, outcome> run_to_end(text_engine& model) {
    std::map<sequence_id, outcome> all;
    while (!model.idle()) {
        for (const text_event& each : model.step()) {
            all[each.id].text += each.text;
            all[each.id].tokens.push_back(each.sampled.token);
            all[each.id].reason = each.reason;
        }
    }
    return all;
}

text_options asking(int tokens, std::uint64_t seed) {
    return {.max_tokens = tokens, .sampling = {.bias = {}, .seed = seed, .stop = {}}};
}

}  // namespace

TEST_CASE("A text depends on prompt and seed only") {
    text_engine alone(tiny(), {.max_num_seqs = 1});
    const sequence_id only = alone.submit("Hello", asking(20, 3));
    const outcome expected = run_to_end(alone)[only];
    CHECK(expected.tokens.size() == 20);
    CHECK(expected.reason == finish_reason::length);

    text_engine busy(tiny(), {.context = 64, .max_num_batched_tokens = 8, .max_num_seqs = 4});
    std::vector<sequence_id> same;
    for (int i = 0; i < 6; ++i) {
        same.push_back(busy.submit("Hello", asking(20, 3)));
        busy.submit("Something else, and longer", asking(10 + i, static_cast<std::uint64_t>(i)));
    }
    auto outcomes = run_to_end(busy);
    CHECK(outcomes.size() == 12);
    for (const sequence_id id : same) {
        CHECK(outcomes[id].tokens == expected.tokens);
        CHECK(outcomes[id].text == expected.text);
    }
    CHECK(busy.summary().prefix_cache_hit_rate > 0);
}

TEST_CASE("Limits of context and KV cache") {
    text_engine model(tiny(), {.context = 40, .max_num_seqs = 1});
    CHECK(model.max_sequence_length() == 40);
    CHECK(tokens_that_fit(model, 30, 100) == 10);
    CHECK(tokens_that_fit(model, 30, 5) == 5);
    check_error_message("the context has at most 40", [&] { model.submit("Hello", asking(36, 0)); });
    check_error_message("prompt: token 512; the model has 512",
                        [&] { model.submit(std::vector<int>{512}, asking(1, 0)); });
    CHECK(model.idle());
    const sequence_id id = model.submit("Hello", asking(0, 0));
    CHECK(run_to_end(model)[id].tokens.size() == 35);

    const std::int64_t block = kv_cache_groups(model.config(), {})[0].block_bytes;
    text_engine small(tiny(), {.kv_cache_bytes = 2 * block + 1, .max_num_seqs = 1});
    CHECK(small.blocks() == 2);
    CHECK(small.max_sequence_length() == 33);
    check_error_message("memory: 1 bytes; a block of 16 tokens", [] { text_engine(tiny(), {.kv_cache_bytes = 1}); });
    check_error_message("context: 1025; the model was made for 1024", [] { text_engine(tiny(), {.context = 1025}); });
}

TEST_CASE("An empty prompt starts with BOS") {
    text_engine model(tiny(), {.context = 64, .max_num_seqs = 1});
    CHECK(model.encode_prompt("") == std::vector<int>{256});
    CHECK(model.encode_prompt("A") == std::vector<int>{'A'});
    CHECK(run_to_end(model).empty());
}

TEST_CASE("EOS tokens of model and request, and cancellation") {
    text_engine model(tiny(), {.context = 64, .max_num_seqs = 4});
    text_options options = asking(20, 9);
    const sequence_id first = model.submit("abc", options);
    const std::vector<int> tokens = run_to_end(model)[first].tokens;
    options.eos_tokens = {tokens[4]};
    const sequence_id second = model.submit("abc", options);
    options.ends = false;
    const sequence_id third = model.submit("abc", options);
    auto outcomes = run_to_end(model);
    CHECK(outcomes[second].reason == finish_reason::eos_token);
    CHECK(outcomes[second].tokens.size() <= 5);
    CHECK(outcomes[third].tokens == tokens);

    const sequence_id fourth = model.submit("abc", options);
    model.step();
    CHECK(model.cancel(fourth));
    CHECK_FALSE(model.cancel(fourth));
    CHECK(model.idle());
    CHECK(std::string(name_of(finish_reason::cancelled)) == "cancelled");
}

}  // namespace imbrex::engine::test
