// Variants: kernels of the library behind a plain function, found at run time by name. A binding (attention_forward.hpp,
// rms_norm.hpp, ...) is a class template with
//
//     struct call;                                          what the caller passes: tensors and numbers
//     static void run(const execution&, const call&);
//
// and a variant is an instantiation of it, in one world. Its name is its source:
//
//     IMBREX_VARIANT(attention_forward, bf16, 128, 128, causal_mask, score_mod::identity)
//
// Variants of the default build are listed in variants.txt. Others are compiled when they are first used, if the program
// has set a compiler (set_variant_compiler): it writes a file with that line, compiles it to a shared library and loads it
// (load_variant).
#pragma once

#include <imbrex/hw/world.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace imbrex::bindings {

// Where and how to run. In world::host_checked the launch is checked under that many schedules, and the report of a
// hazard is stored.
struct execution {
    world where = world::host;
    void* stream = nullptr;
    // Memory of that world, aligned to 256 bytes, that lives until the launch has finished.
    std::function<void*(std::size_t bytes)> allocate = {};
    int schedules = 0;
    std::uint64_t first_seed = 0;
    std::string* report = nullptr;
};

using variant_function = void (*)(const execution&, const void* call);

struct variant {
    const char* name;
    bool for_device;
    variant_function run;
};

// The variant of that name for that world, compiled if it is missing. Throws if there is none.
variant_function find_variant(world where, const std::string& name);

// Names of the variants that are present, for the device or for the host.
std::string variant_names(bool for_device);

// Called with the name of a missing variant; calls load_variant with its library. Returns a message if that is not
// possible, or else null. The message lives until the next call.
using variant_compiler = const char* (*)(const char* name, int for_device);
void set_variant_compiler(variant_compiler compiler);

// Loads the shared library of a variant. Throws imbrex::error if that fails.
void load_variant(const char* library);

void add_variant(const variant& one);

// Calls the variant `name` with a Binding::call.
template <class Call>
void run_variant(const execution& on, const std::string& name, const Call& call) {
    find_variant(on.where, name)(on, &call);
}

#if defined(__CUDACC__)
#define IMBREX_VARIANT_FOR_DEVICE true
#else
#define IMBREX_VARIANT_FOR_DEVICE false
#endif

inline namespace IMBREX_WORLDS {

// Launches, or checks the launch: Launcher::launch(where, problem, more..., stream) or Launcher::check.
template <class Launcher, class Problem, class... More>
void launch_or_check(const execution& on, const Problem& problem, const More&... more) {
    if constexpr (!IMBREX_VARIANT_FOR_DEVICE) {
        if (on.where == world::host_checked) {
            const auto hazard =
                Launcher::check(problem, {.schedules = on.schedules, .first_seed = on.first_seed}, more...);
            if (on.report != nullptr && on.report->empty()) *on.report = hazard_text(hazard);
            return;
        }
    }
    Launcher::launch(on.where, problem, more..., on.stream);
}

// Memory from on.allocate whose first bytes are zero when the next launch in the stream begins.
inline void* allocate_zeroed(const execution& on, std::size_t bytes, std::size_t bytes_to_zero) {
    void* const memory = on.allocate(bytes);
    if (on.where == world::device) {
#if defined(__CUDACC__)
        imbrex::detail::require_success(cudaMemsetAsync(memory, 0, bytes_to_zero, static_cast<cudaStream_t>(on.stream)),
                                        "cudaMemsetAsync");
#endif
    } else {
        std::memset(memory, 0, bytes_to_zero);
    }
    return memory;
}

template <class Binding>
void run_binding(const execution& on, const void* call) {
    Binding::run(on, *static_cast<const typename Binding::call*>(call));
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings

#define IMBREX_JOIN_(a, b) a##b
#define IMBREX_JOIN(a, b) IMBREX_JOIN_(a, b)

// In a shared library of its own a variant is exported; in a program it adds itself.
#if defined(IMBREX_VARIANT_LIBRARY)
#define IMBREX_PUBLISH_VARIANT(one)                                                                       \
    extern "C" __attribute__((visibility("default"))) const imbrex::bindings::variant* imbrex_variant() { \
        return &one;                                                                                      \
    }
#else
#define IMBREX_PUBLISH_VARIANT(one) static const bool IMBREX_JOIN(one, _added) = (add_variant(one), true);
#endif

#define IMBREX_VARIANT(binding, ...)                                                                               \
    namespace imbrex::bindings {                                                                                   \
    static const variant IMBREX_JOIN(variant_at_, __LINE__){#binding ", " #__VA_ARGS__, IMBREX_VARIANT_FOR_DEVICE, \
                                                            &run_binding<binding<__VA_ARGS__>>};                   \
    IMBREX_PUBLISH_VARIANT(IMBREX_JOIN(variant_at_, __LINE__))                                                     \
    }
