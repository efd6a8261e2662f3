// Validation of sampling parameters.
#include "engine/serving/sampling_params.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>

using namespace imbrex::engine;

namespace {

template <class Change>
std::string error_message_of(Change change) {
    sampling_params options;
    change(options);
    try {
        check(options);
    } catch (const imbrex::invalid_argument& error) {
        return error.what();
    }
    return "";
}

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("Accepts sampling parameters in range") {
    CHECK(error_message_of([](auto&) {}) == "");
    CHECK(error_message_of([](auto& it) {
              it = {.temperature = 0,
                    .top_k = 40,
                    .top_p = 0.9f,
                    .min_p = 1,
                    .repetition_penalty = 1.1f,
                    .presence_penalty = -2,
                    .frequency_penalty = 2,
                    .bias = {{3, -infinity}, {4, 100.f}},
                    .seed = 7,
                    .stop = {"."},
                    .logprobs = 5};
          }) == "");
}

TEST_CASE("Rejects sampling parameters out of range and names them") {
    CHECK(error_message_of([](auto& it) { it.temperature = -1; }) ==
          "temperature: -1; it must be 0 (greedy) or a positive number");
    CHECK(error_message_of([](auto& it) { it.temperature = infinity; }) ==
          "temperature: inf; it must be 0 (greedy) or a positive number");
    CHECK(error_message_of([](auto& it) { it.temperature = not_a_number; }).starts_with("temperature: "));
    CHECK(error_message_of([](auto& it) { it.top_k = -1; }) == "top_k: -1; it must be 0 (all tokens) or more");
    CHECK(error_message_of([](auto& it) { it.top_p = 0; }) == "top_p: 0; it must be more than 0 and at most 1");
    CHECK(error_message_of([](auto& it) { it.top_p = 1.5f; }) == "top_p: 1.5; it must be more than 0 and at most 1");
    CHECK(error_message_of([](auto& it) { it.min_p = not_a_number; }).starts_with("min_p: "));
    CHECK(error_message_of([](auto& it) { it.repetition_penalty = 0; }) ==
          "repetition_penalty: 0; it must be more than 0 (1: none)");
    CHECK(error_message_of([](auto& it) { it.presence_penalty = infinity; }) ==
          "presence_penalty: inf; it must be a finite number");
    CHECK(error_message_of([](auto& it) { it.frequency_penalty = not_a_number; }).starts_with("frequency_penalty: "));
    CHECK(error_message_of([](auto& it) {
              it.bias = {{-3, 1.f}};
          }) == "bias: it names token -3; tokens are numbered from 0");
    CHECK(error_message_of([](auto& it) {
              it.bias = {{3, infinity}};
          }) == "bias of token 3: inf; it must be a number or -infinity");
    CHECK(error_message_of([](auto& it) { it.bias = {{3, not_a_number}}; }).starts_with("bias of token 3: "));
    CHECK(error_message_of([](auto& it) {
              it.stop = {"a", ""};
          }) == "stop: a stop string is empty; it must have a character");
    CHECK(error_message_of([](auto& it) { it.logprobs = -1; }) == "logprobs: -1; it must be from 0 (none) to 20");
    CHECK(error_message_of([](auto& it) { it.logprobs = 21; }) == "logprobs: 21; it must be from 0 (none) to 20");
}
