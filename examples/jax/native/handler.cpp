#include "handler.hpp"

#include <imbrex/hw/world_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace imbrex_jax {

namespace {

using imbrex::require;
using imbrex::bindings::element;

// imbrex_jax.check: XLA calls handlers from threads of its own, so this is the state of the process.
struct check_state {
    std::mutex mutex;
    int schedules = 0;  // 0: not checking
    std::uint64_t first_seed = 0;
    int calls = 0;
    std::string report;
};
check_state checking;

element element_of(ffi::DataType type, const char* name) {
    switch (type) {
        case ffi::DataType::BF16:
            return element::bf16;
        case ffi::DataType::F16:
            return element::fp16;
        case ffi::DataType::F32:
            return element::fp32;
        default:
            require(false, name, ".dtype: ", static_cast<int>(type), " of XLA; must be bfloat16, float16 or float32");
            return element::none;
    }
}

// XLA refuses to align scratch memory to more than 16 bytes.
void* aligned_scratch(ffi::ScratchAllocator& scratch, std::size_t bytes) {
    constexpr std::size_t alignment = 256;
    std::size_t space = bytes + alignment - 1;
    std::optional<void*> memory = scratch.Allocate(space, 16);
    if (!memory) throw imbrex::error(imbrex::str_cat("workspace: XLA has no ", space, " bytes of scratch memory"));
    return std::align(alignment, bytes, *memory, space);
}

}  // namespace

imbrex::bindings::tensor described(const ffi::AnyBuffer& buffer, const char* name, int rank) {
    const auto sizes = buffer.dimensions();
    const int given = static_cast<int>(sizes.size());
    require(given >= rank, name, ": ", given, " dimensions; at least ", rank, " are needed");
    imbrex::bindings::tensor made;
    made.data = buffer.untyped_data();
    made.type = element_of(buffer.element_type(), name);
    made.rank = rank;
    std::int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
        made.sizes[i] = sizes[static_cast<std::size_t>(given - rank + i)];
        made.strides[i] = stride;
        stride *= made.sizes[i];
    }
    for (int i = 0; i < given - rank; ++i) made.sizes[0] *= sizes[static_cast<std::size_t>(i)];
    return made;
}

void execution_at::run_variant(const std::string& variant, const void* call) const {
    std::vector<imbrex::world_memory> workspaces;
    std::string report;
    imbrex::bindings::execution on;
    on.where = place_.where;
    on.stream = place_.stream;
    on.allocate = [&](std::size_t bytes) -> void* {
        if (place_.scratch == nullptr) return workspaces.emplace_back(imbrex::world::host, bytes).at();
        return aligned_scratch(*place_.scratch, bytes);
    };
    if (on.where == imbrex::world::host) {
        const std::lock_guard lock(checking.mutex);
        if (checking.schedules > 0) {
            on.where = imbrex::world::host_checked;
            on.schedules = checking.schedules;
            on.first_seed = checking.first_seed;
            on.report = &report;
            ++checking.calls;
        }
    }
    imbrex::bindings::find_variant(on.where, variant)(on, call);
    const std::lock_guard lock(checking.mutex);
    if (checking.report.empty()) checking.report = report;
}

}  // namespace imbrex_jax

// Called through ctypes.
extern "C" void imbrex_jax_begin_check(int schedules, std::uint64_t first_seed) {
    const std::lock_guard lock(imbrex_jax::checking.mutex);
    imbrex_jax::checking.schedules = schedules;
    imbrex_jax::checking.first_seed = first_seed;
    imbrex_jax::checking.calls = 0;
    imbrex_jax::checking.report.clear();
}

extern "C" int imbrex_jax_checked_calls() {
    const std::lock_guard lock(imbrex_jax::checking.mutex);
    return imbrex_jax::checking.calls;
}

// The first report since the check began, or an empty text. It lives until the next check.
extern "C" const char* imbrex_jax_end_check() {
    const std::lock_guard lock(imbrex_jax::checking.mutex);
    imbrex_jax::checking.schedules = 0;
    return imbrex_jax::checking.report.c_str();
}
