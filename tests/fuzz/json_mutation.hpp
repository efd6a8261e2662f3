// Mutations of JSON for libFuzzer: a random value is replaced, removed, copied or wrapped, a field gets a name that the API
// knows. The document stays valid, so that a fuzzer gets past the parser.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace imbrex::engine::fuzz {

class json_mutation {
  public:
    using json = nlohmann::ordered_json;

    // `names` are names of fields.
    json_mutation(std::vector<std::string> names, unsigned seed) : names_(std::move(names)), random_(seed) {}

    void apply(json& document) {
        std::vector<json*> places;
        collect(document, places);
        json& chosen = *places[below(places.size())];
        switch (below(6)) {
            case 0:
                chosen = interesting();
                break;
            case 1:
                chosen = json(*places[below(places.size())]);
                break;
            case 2:
                chosen = json::array({chosen});
                break;
            case 3:
                change_text_or_number(chosen);
                break;
            default:
                change_members(chosen, *places[below(places.size())]);
        }
    }

  private:
    std::size_t below(std::size_t count) { return random_() % count; }

    static void collect(json& value, std::vector<json*>& places) {
        places.push_back(&value);
        if (!value.is_structured()) return;
        for (json& each : value) collect(each, places);
    }

    json interesting() {
        static const std::vector<json> values{nullptr,
                                              true,
                                              false,
                                              0,
                                              1,
                                              -1,
                                              2,
                                              5,
                                              20,
                                              0.5,
                                              1e308,
                                              -1e-300,
                                              1e18,
                                              INT64_MIN,
                                              INT64_MAX,
                                              UINT64_MAX,
                                              INT32_MAX,
                                              3000000000u,
                                              "",
                                              "a",
                                              "auto",
                                              "none",
                                              "\n\n",
                                              "\u00e4\U0001f600",
                                              "<|im_end|>",
                                              "<tool_call>",
                                              "text",
                                              "function",
                                              "json_schema",
                                              "string",
                                              "object",
                                              "integer",
                                              "^a[b-d]*$",
                                              json::array(),
                                              json::object(),
                                              json::array({1, 2, 3}),
                                              json::array({json::array({97, 98}), json::array({99})}),
                                              std::string(300, 'x'),
                                              "#/$defs/a",
                                              "#"};
        return values[below(values.size())];
    }

    void change_text_or_number(json& value) {
        if (value.is_string()) {
            auto& text = value.get_ref<std::string&>();
            if (text.empty() || below(3) == 0) {
                text += static_cast<char>(32 + below(95));
            } else if (below(2) == 0) {
                text += text.substr(0, 1000);
            } else {
                text.resize(below(text.size()));
            }
        } else if (value.is_number_integer()) {
            value = value.get<std::int64_t>() / 2 + static_cast<std::int64_t>(below(21)) - 10;
        } else if (value.is_number()) {
            value = value.get<double>() * -0.75;
        } else {
            value = interesting();
        }
    }

    void change_members(json& value, const json& other) {
        const json copy = other;
        if (value.is_array()) {
            if (!value.empty() && below(2) == 0) {
                value.erase(below(value.size()));
            } else {
                value.push_back(below(2) == 0 ? copy : interesting());
            }
        } else if (value.is_object()) {
            if (!value.empty() && below(2) == 0) {
                value.erase(std::next(value.begin(), static_cast<std::ptrdiff_t>(below(value.size()))));
            } else {
                value[names_[below(names_.size())]] = below(2) == 0 ? copy : interesting();
            }
        } else {
            value = interesting();
        }
    }

    std::vector<std::string> names_;
    std::minstd_rand random_;
};

}  // namespace imbrex::engine::fuzz
