// Structured output as a whole: random texts of random schemas against an independent validator, triggers, response formats,
// and constrained sequences in the scheduler and the engine.
#include "engine/grammar/structured_output.hpp"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/chat/chat_format.hpp"
#include "engine/grammar/support.hpp"
#include "engine/loading/model_files.hpp"
#include "engine/serving/engine.hpp"
#include "engine/serving/text_engine.hpp"

using namespace imbrex::engine;
using namespace imbrex::engine::test;

namespace {

// A schema whose texts are short, of all kinds of keywords.
json random_schema(std::mt19937& generator, int depth) {
    const auto below = [&](unsigned count) { return static_cast<int>(generator() % count); };
    const int kind = below(depth > 0 ? 12 : 7);
    switch (kind) {
        case 0:
            return {{"type", "string"}, {"minLength", below(3)}, {"maxLength", 3 + below(6)}};
        case 1:
            return {{"type", "integer"}, {"minimum", below(300) - 150}, {"maximum", 150 + below(1000)}};
        case 2:
            return {{"type", "number"}, {"exclusiveMinimum", -below(50) / 4.0}, {"maximum", 1 + below(90) / 8.0}};
        case 3:
            return {{"enum", json::array({"a", "name", 1, nullptr, false, "\xc3\xa9\"\n"})}};
        case 4:
            return {{"type", json::array({"boolean", "null"})}};
        case 5:
            return {{"type", "string"}, {"pattern", "^[a-c]{1,3}(x|1)$"}};
        case 6:
            return {{"const", {{"k", json::array({1, "two"})}}}};
        case 7:
        case 8: {
            json made{{"type", "array"}, {"items", random_schema(generator, depth - 1)}, {"maxItems", 1 + below(3)}};
            if (below(2) == 0) made["minItems"] = 1;
            if (below(3) == 0) made["prefixItems"] = json::array({random_schema(generator, depth - 1)});
            return made;
        }
        case 9:
            return {{"anyOf", json::array({random_schema(generator, depth - 1), random_schema(generator, depth - 1)})}};
        default: {
            json made{{"type", "object"}, {"properties", json::object()}, {"required", json::array()}};
            for (const char* const name : {"a", "id", "name\"", "x"}) {
                if (below(2) == 0) continue;
                made["properties"][name] = random_schema(generator, depth - 1);
                if (below(2) == 0) made["required"].push_back(name);
            }
            if (kind == 11)
                made["allOf"] = json::array({{{"properties", {{"a", {{"title", "A"}}}}}}, {{"type", "object"}}});
            made["additionalProperties"] = false;
            return made;
        }
    }
}

}  // namespace

TEST_CASE("Random texts of random schemas are valid") {
    std::mt19937 generator(7);
    const auto tokens = trie_of(random_vocabulary(generator, json_pieces(), 900));
    int complete = 0;
    for (int i = 0; i < 120; ++i) {
        const json schema = random_schema(generator, 3);
        CAPTURE(schema.dump());
        const shared_constraint constraint = constrain_to_json_schema(schema.dump(), tokens);
        const schema_validator validator(schema);
        for (int sample = 0; sample < 2; ++sample) {
            const generated made = random_text(constraint, *tokens, generator, 300);
            CAPTURE(made.text);
            if (!made.complete) continue;
            ++complete;
            const json value = json::parse(made.text, nullptr, false);
            CHECK(!value.is_discarded());
            CHECK(validator.accepts(value));
        }
    }
    CHECK(complete >= 220);
}

TEST_CASE("Random JSON objects parse") {
    std::mt19937 generator(9);
    const auto tokens = trie_of(random_vocabulary(generator, json_pieces(), 700));
    const shared_constraint constraint = constrain_to_json_object(tokens);
    int complete = 0;
    for (int i = 0; i < 40; ++i) {
        const generated made = random_text(constraint, *tokens, generator, 120);
        if (!made.complete) continue;
        ++complete;
        CHECK_MESSAGE(json::parse(made.text, nullptr, false).is_object(), made.text);
    }
    CHECK(complete >= 20);
}

TEST_CASE("A constraint behind a trigger") {
    const auto tokens =
        std::make_shared<const token_trie>(std::vector<std::string>{"a", "b", "<", "/t>", "x</t>\n", "", ""},
                                           std::vector<std::string>{"", "", "", "", "", "<think>", "</t>"});
    const shared_constraint inner = constrain_to_regex("ab", tokens);
    const auto mask_of = [](const constraint_state& state) {
        std::vector<std::uint32_t> mask(1);
        state.allowed_tokens(mask);
        return mask[0];
    };
    for (const std::vector<int>& thoughts : {std::vector<int>{0, 2, 3}, {1, 4}, {0, 0, 6}}) {
        const auto state = constrain_after({"</t>"}, inner, tokens)->start(false);
        for (const int token : thoughts) {
            CHECK(state->is_free());
            state->push(token);
        }
        CHECK(!state->is_free());
        CHECK(mask_of(*state) == 1u);
        const auto copy = state->clone();
        state->push(0);
        CHECK(mask_of(*state) == 2u);
        CHECK(mask_of(*copy) == 1u);
        state->push(1);
        CHECK(state->must_end());
        CHECK(state->may_end());
    }
    const auto two = constrain_after({"b", "</t>"}, inner, tokens)->start(false);
    for (const int token : {6, 1, 0}) two->push(token);
    CHECK(two->is_free());
    two->push(6);
    CHECK(!two->is_free());
    // With an opener: free behind it, constrained without it.
    const auto opened = constrain_after({"</t>"}, inner, tokens, 5)->start(false);
    CHECK(mask_of(*opened) == 0b100001u);
    opened->push(5);
    CHECK(opened->is_free());
    const auto direct = constrain_after({"</t>"}, inner, tokens, 5)->start(false);
    direct->push(0);
    CHECK(mask_of(*direct) == 2u);
}

TEST_CASE("Response formats") {
    const auto tokens = bytes_trie();
    const auto of = [&](const char* text) { return constraint_of_response_format(json::parse(text), tokens); };
    CHECK(of(R"({"type": "text"})") == nullptr);
    CHECK(allows(of(R"({"type": "json_object"})"), R"({"a": [1]})"));
    CHECK(!allows(of(R"({"type": "json_object"})"), "[1]"));
    for (const char* const text : {R"({"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 1}}})",
                                   R"({"type": "json_schema", "name": "n", "schema": {"const": 1}})"}) {
        CHECK(allows(of(text), "1"));
        CHECK(!allows(of(text), "2"));
    }
    CHECK_THROWS_WITH(of(R"({"type": "xml"})"),
                      "response_format: type: \"xml\"; it must be text, json_object or json_schema");
    CHECK_THROWS_WITH(of(R"({"type": "json_schema"})"), "response_format: json_schema: it must have a \"schema\"");
    CHECK_THROWS_WITH(of("[]"),
                      "response_format: it must be an object with a \"type\": text, json_object or json_schema");
}

TEST_CASE("A token that is not allowed ends a text") {
    const auto tokens = bytes_trie();
    const auto state = constrain_to_regex("ab*", tokens)->start(false);
    CHECK(!state->may_end());
    state->push('a');
    CHECK(state->may_end());
    CHECK(!state->must_end());
    state->push('x');
    CHECK(!state->may_end());
    CHECK(state->must_end());
}

namespace {

struct outcome {
    std::string text;
    finish_reason reason = finish_reason::none;
};

}  // namespace

TEST_CASE("Texts of a model are valid, alone, in a batch, and after preemptions") {
    const std::vector<std::string> schemas{
        R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "n": {"type": "integer",
            "minimum": 1, "maximum": 99}}, "required": ["name", "n"]})",
        R"({"type": "array", "items": {"enum": ["cat", "dog", 3]}, "minItems": 2, "maxItems": 5})",
        R"({"type": "string", "format": "date"})"};
    enum class order { one_by_one, together, preempting };
    const auto texts_of = [&](order how) {
        text_engine model(
            open_model("examples/tales/model"),
            {.context = 256, .max_num_batched_tokens = 64, .max_num_seqs = how == order::preempting ? 2 : 12});
        std::map<sequence_id, outcome> all;
        const auto step = [&] {
            for (const text_event& each : model.step()) {
                all[each.id].text += each.text;
                all[each.id].reason = each.reason;
            }
        };
        std::vector<sequence_id> ids;
        for (int i = 0; i < 12; ++i) {
            text_options options{.max_tokens = 60, .priority = how == order::preempting ? i : 0};
            options.sampling.temperature = 1.5f;
            options.sampling.seed = static_cast<std::uint64_t>(i);
            options.sampling.constraint = constrain_to_json_schema(schemas[static_cast<std::size_t>(i) % 3],
                                                                   model.token_trie(), json_spacing::compact);
            ids.push_back(model.submit("Once upon a time", options));
            if (how == order::preempting) step();
            if (how == order::preempting) step();
            while (how == order::one_by_one && !model.idle()) step();
        }
        while (!model.idle()) step();
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < ids.size(); ++i) {
            CAPTURE(all[ids[i]].text);
            CHECK(std::string(name_of(all[ids[i]].reason)) == "end");
            const json value = json::parse(all[ids[i]].text, nullptr, false);
            CHECK(!value.is_discarded());
            CHECK(schema_validator(json::parse(schemas[i % 3])).accepts(value));
            texts.push_back(all[ids[i]].text);
        }
        if (how == order::preempting) CHECK(model.summary().preemptions > 0);
        return texts;
    };
    const std::vector<std::string> alone = texts_of(order::one_by_one);
    CHECK(texts_of(order::together) == alone);
    CHECK(texts_of(order::preempting) == alone);
}

TEST_CASE("Constraints with stop strings, penalties and log-probabilities") {
    text_engine model(open_model("examples/tales/model"), {.context = 256});
    text_options options{.max_tokens = 60};
    options.sampling.constraint = constrain_to_regex("[a-z]{3,6}( [a-z]{3,6}){20}", model.token_trie());
    options.sampling.stop = {" "};
    options.sampling.repetition_penalty = 1.3f;
    options.sampling.top_k = 5;
    options.sampling.logprobs = 3;
    model.submit("Once", options);
    std::string text;
    bool allowed_alone = true;
    finish_reason reason = finish_reason::none;
    while (!model.idle()) {
        for (const text_event& each : model.step()) {
            text += each.text;
            reason = each.reason;
            allowed_alone = allowed_alone && std::isfinite(each.sampled.logprob) && each.sampled.logprob <= 0;
            for (const token_logprob& other : each.sampled.top_logprobs)
                allowed_alone = allowed_alone &&
                                model.tokens().at(other.token).bytes.find_first_not_of("abcdefghijklmnopqrstuvwxyz ") ==
                                    std::string::npos;
        }
    }
    CHECK(allowed_alone);
    CHECK(reason == finish_reason::stop_string);
    CHECK(text.size() >= 3);
    CHECK(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos);
}

TEST_CASE("Forks have constraints of their own") {
    const auto tokens = bytes_trie();
    scheduler plan(block_manager({{.blocks = 16}}, 4), {.context = 64});
    request wanted{.prompt = {1, 2, 3}, .max_new_tokens = 8, .eos_tokens = {}, .sampling = {}, .samples = 2};
    wanted.sampling.constraint = constrain_to_regex("ab|cd|ae", tokens);
    const std::vector<sequence_id> ids = plan.add(wanted);
    std::map<sequence_id, std::vector<int>> texts;
    std::map<sequence_id, finish_reason> reasons;
    const std::map<sequence_id, std::string> written{{ids[0], "ab"}, {ids[1], "cd"}};
    while (!plan.idle()) {
        const batch work = plan.schedule();
        std::vector<int> sampled;
        for (const batch_entry& entry : work.entries) {
            if (!entry.samples) continue;
            const std::string& text = written.at(entry.sequence->id);
            const auto place = static_cast<std::size_t>(entry.sequence->generated());
            std::vector<std::uint32_t> mask(8);
            entry.sequence->constraint->allowed_tokens(mask);
            const auto token = static_cast<unsigned char>(text[place]);
            CHECK((mask[token / 32] >> (token % 32) & 1u) == 1u);
            sampled.push_back(token);
        }
        for (const progress& each : plan.finish(work, sampled)) reasons[each.id] = each.reason;
    }
    CHECK(reasons ==
          std::map<sequence_id, finish_reason>{{ids[0], finish_reason::complete}, {ids[1], finish_reason::complete}});
}
