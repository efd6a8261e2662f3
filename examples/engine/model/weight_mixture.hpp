// `--weights mixed`: a type for each matrix, chosen by measured error within a total size.
//
// Each matrix is converted to every type in turn, in a sample of its rows, and the squared error relative to the squared
// weights is measured. All begin with the smallest type; then, as long as the size allows it, the matrix and type that
// reduce the sum of errors most per byte are chosen. The types of the file are among them. Matrices that are
// multiplied as one (Q, K and V; gate and up) count as one. The LM head counts as much as all layers together, since
// no other matrix follows it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "engine/loading/weights.hpp"
#include "engine/model/runner.hpp"

namespace imbrex::engine {

using weight_types = std::map<std::string, weight_type, std::less<>>;

// The types of all matrices, by name. Names are Hugging Face's or GGUF's. On a GPU the types are those that it packs:
// q4_0, q8_0, bf16. Throws if the smallest types take more than `bits_per_weight`.
weight_types mixture_of(const weight_set& weights, double bits_per_weight, world where);

// A copy of the weights in memory, with these types.
weight_set converted(const weight_set& weights, const weight_types& types, const loading_progress& progress = {});

// Replaces the weights by their mixture if the options ask for one; the runner then uses them as they are.
void mix_weights(model_files& files, runner_options& options, const loading_progress& progress = {});

// Bits per weight of all matrices.
double bits_per_weight(const weight_set& weights);

}  // namespace imbrex::engine
