// What every operator of imbrex_torch needs: tensors of PyTorch as tensors of the bindings, where to run, and the
// library's errors as Python exceptions. An operator is one file that
//
//     TORCH_LIBRARY_FRAGMENT(imbrex, m) { m.def("swiglu(Tensor gate, Tensor up) -> Tensor"); }
//     TORCH_LIBRARY_IMPL(imbrex, CPU, m) { m.impl("swiglu", swiglu); }
//     TORCH_LIBRARY_IMPL(imbrex, CUDA, m) { m.impl("swiglu", swiglu); }
//
// with one function for both: the tensors' device says in which world it runs. Its fake implementation, and its gradient
// if that is a formula of other operators, are in imbrex_torch/.
#pragma once

#include "../../bindings/tensor.hpp"
#include "../../bindings/variant.hpp"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <vector>

namespace imbrex_torch {

using at::Tensor;
using imbrex::bindings::element;
using imbrex::bindings::execution;

// Undefined and missing tensors are "not given". `name` is for messages.
imbrex::bindings::tensor described(const Tensor& t, const char* name);
imbrex::bindings::tensor described(const std::optional<Tensor>& t, const char* name);
// The tensor's memory with other sizes and strides.
imbrex::bindings::tensor described(const Tensor& t, const char* name, at::IntArrayRef sizes, at::IntArrayRef strides);

// "bf16", "fp16" or "float", as in the names of variants.
std::string type_name(const Tensor& t, const char* name);

// The tensor, or a copy whose last dimension is contiguous.
Tensor with_contiguous_rows(const Tensor& t);

// Raises TypeError unless all given tensors are on the device of `like`.
void require_same_device(const Tensor& like,
                         std::initializer_list<std::pair<const char*, std::optional<Tensor>>> others);

// Calls work(); errors of the library become ValueError (arguments) or RuntimeError.
template <class Work>
auto with_python_errors(const Work& work) {
    try {
        return work();
    } catch (const imbrex::invalid_argument& wrong) {
        TORCH_CHECK_VALUE(false, wrong.what());
    } catch (const imbrex::error& failed) {
        TORCH_CHECK(false, failed.what());
    }
}

// The tensors' device as a world, the current stream, memory from PyTorch's allocator. Makes the device the current one
// while it lives.
class execution_on {
  public:
    explicit execution_on(const Tensor& like);
    ~execution_on();
    execution_on(const execution_on&) = delete;
    execution_on& operator=(const execution_on&) = delete;

    // Runs a variant, with_python_errors.
    template <class Call>
    void run(const std::string& variant, const Call& call) const {
        run(variant, static_cast<const void*>(&call));
    }
    const execution& where() const { return on_; }

  private:
    struct state;
    void run(const std::string& variant, const void* call) const;

    execution on_;
    std::unique_ptr<state> state_;
};

}  // namespace imbrex_torch
