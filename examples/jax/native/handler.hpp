// What every XLA handler of imbrex_jax needs: XLA's buffers as tensors of the bindings, where to run, and the library's errors
// as those of XLA. A handler is defined for the CPU (host world) and for CUDA, where XLA gives it a stream and scratch memory.
#pragma once

#include "../../bindings/tensor.hpp"
#include "../../bindings/variant.hpp"

#include <xla/ffi/api/ffi.h>

#include <string>

namespace imbrex_jax {

namespace ffi = xla::ffi;

// XLA's buffers are contiguous. Dimensions before the last `rank`, which vmap adds, become one with the first of these.
imbrex::bindings::tensor described(const ffi::AnyBuffer& buffer, const char* name, int rank);

// Where a handler runs.
struct place {
    imbrex::world where = imbrex::world::host;
    void* stream = nullptr;
    ffi::ScratchAllocator* scratch = nullptr;
};

// Calls `prepare`, which fills in a call and returns the name of its variant, and runs that. On the CPU under the checker while
// imbrex_jax.check asks for it.
class execution_at {
  public:
    explicit execution_at(const place& given) : place_(given) {}

    template <class Call, class Prepare>
    ffi::Error run(const Prepare& prepare) const {
        return guarded([&] {
            Call call;
            const std::string variant = prepare(call);
            run_variant(variant, &call);
        });
    }

  private:
    template <class Function>
    static ffi::Error guarded(const Function& function) {
        try {
            function();
            return ffi::Error::Success();
        } catch (const imbrex::invalid_argument& wrong) {
            return ffi::Error(ffi::ErrorCode::kInvalidArgument, wrong.what());
        } catch (const imbrex::bindings::unknown_variant& missing) {
            return ffi::Error(ffi::ErrorCode::kUnimplemented, missing.what());
        } catch (const std::exception& failed) {
            return ffi::Error(ffi::ErrorCode::kInternal, failed.what());
        }
    }
    void run_variant(const std::string& variant, const void* call) const;

    place place_;
};

}  // namespace imbrex_jax
