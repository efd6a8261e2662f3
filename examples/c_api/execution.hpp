// What the functions of the C API need: structures of any version, tensors and the world as those of the bindings.
#pragma once

#include "imbrex_c.h"

#include "../bindings/tensor.hpp"
#include "../bindings/variant.hpp"

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_memory.hpp>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace imbrex_c {

using imbrex::require;

// Copies `size` bytes of a caller's structure to one of this library. What the caller's version lacks is 0; what this version
// does not know must be 0. `first` is the size of the first version.
void read_structure(void* to, std::size_t to_bytes, const void* from, std::size_t first, const char* name);

// `first` is the size of the first version: later ones add members.
template <class Structure>
Structure structure_given(const Structure* from, const char* name, std::size_t first = sizeof(Structure)) {
    Structure made = {};
    read_structure(&made, sizeof made, from, first, name);
    return made;
}

// The checked execution, with its defaults.
imbrex_execution execution_given(const imbrex_execution* on);

// Tensors that may be missing (IMBREX_NONE), and those that may not.
imbrex::bindings::tensor optional_tensor(const imbrex_tensor& t, const char* name);
imbrex::bindings::tensor needed_tensor(const imbrex_tensor& t, const char* name);

// Runs variants where the caller says. Owns their workspaces in the host worlds.
class execution_on {
  public:
    explicit execution_on(const imbrex_execution* on);
    execution_on(const execution_on&) = delete;
    execution_on& operator=(const execution_on&) = delete;

    template <class Call>
    void run(const std::string& variant, const Call& call) {
        run(variant, static_cast<const void*>(&call));
    }
    imbrex::world where() const { return on_.where; }

  private:
    void run(const std::string& variant, const void* call);
    void* workspace(std::size_t bytes);

    imbrex_execution given_;
    imbrex::bindings::execution on_;
    std::string report_;
    std::vector<imbrex::world_memory> workspaces_;
};

}  // namespace imbrex_c
