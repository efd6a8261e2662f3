// What Hugging Face's transformers computed with small random models of each family, against the float64 model. transformers_models.py
// made the folders in data/transformers; others are read where IMBREX_TRANSFORMERS_MODELS says.
#include <set>

#include "engine/model/reference_model.hpp"
#include "engine/support.hpp"
#include "engine/transformers.hpp"

namespace imbrex::engine::test {

TEST_CASE("The float64 model gives the logits of transformers") {
    std::set<model_family> families;
    std::set<rope_scaling> scalings;
    for (const auto& folder : transformers_folders()) {
        CAPTURE(folder.string());
        const transformers_model model(folder);
        const rows logits = reference_logits(model.files.config, model.files.weights, model.tokens);
        for (std::size_t i = 0; i < logits.size(); ++i) {
            CAPTURE(i);
            CHECK(distance(logits[i], model.logits[i]) < 1e-6);  // the logits are kept as floats
        }
        families.insert(model.files.config.family);
        scalings.insert(model.files.config.rope.scaling);
    }
    CHECK(families.size() == 3);
    CHECK(scalings.size() == 3);  // all that config.json knows
}

}  // namespace imbrex::engine::test
