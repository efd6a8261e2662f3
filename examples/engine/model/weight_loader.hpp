// Loads the weights of a model from its files, in the order of the calls, and reports progress.
#pragma once

#include <imbrex/core/config.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/loading/stacked_weights.hpp"
#include "engine/model/norm.hpp"
#include "engine/model/runner.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

class weight_loader {
  public:
    weight_loader(const model_files& files, const runner_options& options, const loading_progress& progress)
        : files_(files), options_(options), progress_(progress) {
        for (const expected_weight& one : expected_weights(files.config)) {
            all_ += static_cast<std::int64_t>(files.weights.at(one.name).bytes.size());
        }
    }

    // A matrix or table of the kernels' type, from one weight or several stacked ones.
    template <class Loaded>
    Loaded load(const std::vector<std::string>& names) {
        const stacked_weights rows(files_.weights, names);
        Loaded made(rows, options_);
        finish(rows);
        return made;
    }

    // The same for a matrix after a norm.
    template <class Loaded>
    Loaded load_normed(const std::vector<std::string>& names, const norm_weights& before) {
        stacked_weights rows(files_.weights, names);
        Loaded made(rows, before, options_);
        finish(rows);
        return made;
    }

    // The norm with this name, without ".weight"; none for an empty name.
    norm_weights load_norm(const std::string& name, double epsilon) {
        if (name.empty()) return {};
        norm_weights made{load_floats({name + ".weight"}), {}, static_cast<float>(epsilon)};
        if (files_.config.norm == norm_kind::layer) made.bias = load_floats({name + ".bias"});
        add_stored_offset(made.weight);
        return made;
    }

    // Weights of a norm may be stored as differences from 1.
    void add_stored_offset(std::vector<float>& weight) const {
        if (!files_.config.norm_weights_from_one) return;
        for (float& one : weight) one += 1;
    }

    // Concatenated vectors.
    std::vector<float> load_floats(const std::vector<std::string>& names) {
        std::vector<float> values;
        for (const std::string& name : names) {
            const weight& one = files_.weights.at(name);
            const std::vector<float> more = to_floats(one);
            values.insert(values.end(), more.begin(), more.end());
            report_progress(static_cast<std::int64_t>(one.bytes.size()));
        }
        return values;
    }

  private:
    void finish(const stacked_weights& loaded) {
        if (options_.where == world::device) loaded.drop_pages();  // they were copied
        report_progress(loaded.bytes());
    }
    void report_progress(std::int64_t bytes) {
        done_ += bytes;
        if (progress_) progress_(done_ < all_ ? done_ : all_, all_);  // tied weights are loaded twice
    }

    const model_files& files_;
    const runner_options& options_;
    const loading_progress& progress_;
    std::int64_t all_ = 0, done_ = 0;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
