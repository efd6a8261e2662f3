// The float64 reference against Hugging Face's transformers with small random models of each family.
// transformers_models.py wrote the folders in data/transformers; IMBREX_TRANSFORMERS_MODELS names further ones.
#include <set>

#include "engine/loading/families.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/support.hpp"
#include "engine/transformers.hpp"

namespace imbrex::engine::test {

TEST_CASE("The float64 reference matches transformers") {
    std::set<model_family> families;
    std::set<rope_scaling> scalings;
    for (const auto& folder : transformers_folders()) {
        CAPTURE(folder.string());
        const transformers_model model(folder);
        const rows logits = reference_logits(model.files.config, model.files.weights, model.tokens);
        for (std::size_t i = 0; i < logits.size(); ++i) {
            CAPTURE(i);
            CHECK(distance(logits[i], model.logits[i]) < 1e-6);  // stored as float32
        }
        families.insert(model.files.config.family);
        scalings.insert(model.files.config.rope.scaling);
    }
    CHECK(families.size() == all_families().size());
    CHECK(scalings.size() == 6);
}

}  // namespace imbrex::engine::test
