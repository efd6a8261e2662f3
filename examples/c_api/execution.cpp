#include "execution.hpp"

#include "checking.hpp"

#include <algorithm>
#include <new>

namespace imbrex_c {

namespace {

using imbrex::bindings::element;
using imbrex::bindings::tensor;

static_assert(static_cast<int>(element::none) == IMBREX_NONE && static_cast<int>(element::bf16) == IMBREX_BF16 &&
              static_cast<int>(element::fp16) == IMBREX_FP16 && static_cast<int>(element::fp32) == IMBREX_FLOAT &&
              static_cast<int>(element::e4m3) == IMBREX_E4M3 && static_cast<int>(element::int8) == IMBREX_INT8 &&
              static_cast<int>(element::uint8) == IMBREX_UINT8 && static_cast<int>(element::int32) == IMBREX_INT32 &&
              static_cast<int>(element::int64) == IMBREX_INT64);
static_assert(tensor::max_rank == sizeof(imbrex_tensor::sizes) / sizeof(std::int64_t));

imbrex::world world_of(imbrex_world given) {
    switch (given) {
        case IMBREX_HOST:
            return imbrex::world::host;
        case IMBREX_HOST_CHECKED:
            return imbrex::world::host_checked;
        default:
            return imbrex::world::device;
    }
}

}  // namespace

void read_structure(void* to, std::size_t to_bytes, const void* from, std::size_t first, const char* name) {
    require(from != nullptr, name, ": null; a structure is needed");
    std::size_t bytes = 0;
    std::memcpy(&bytes, from, sizeof bytes);
    require(bytes >= first && bytes <= 65536, name, ".size: ", bytes, "; must be the size of the structure, ",
            to_bytes);
    const auto* const begin = static_cast<const unsigned char*>(from);
    const bool known =
        bytes <= to_bytes || std::all_of(begin + to_bytes, begin + bytes, [](unsigned char byte) { return byte == 0; });
    require(known, name, ".size: ", bytes, "; this library knows ", to_bytes,
            " bytes, and a member after them is not 0: it needs a newer library");
    std::memcpy(to, from, std::min(bytes, to_bytes));
}

imbrex_execution execution_given(const imbrex_execution* on) {
    imbrex_execution given = structure_given(on, "on");
    require(given.world == IMBREX_HOST || given.world == IMBREX_HOST_CHECKED || given.world == IMBREX_DEVICE,
            "on.world: ", given.world, "; must be IMBREX_HOST, IMBREX_HOST_CHECKED or IMBREX_DEVICE");
    require(given.schedules >= 0, "on.schedules: ", given.schedules, "; must not be negative");
    if (given.schedules == 0) given.schedules = 100;
    return given;
}

tensor optional_tensor(const imbrex_tensor& t, const char* name) {
    tensor made;
    if (t.dtype == IMBREX_NONE) return made;
    require(t.dtype > IMBREX_NONE && t.dtype <= IMBREX_INT64, name, ".dtype: ", t.dtype, "; there is no such type");
    require(t.rank >= 1 && t.rank <= tensor::max_rank, name, ".rank: ", t.rank, "; must be 1 to ",
            int{tensor::max_rank});
    made.data = t.data;
    made.type = static_cast<element>(t.dtype);
    made.rank = t.rank;
    for (int i = 0; i < t.rank; ++i) {
        require(t.sizes[i] >= 0, name, ".sizes[", i, "]: ", t.sizes[i], "; must not be negative");
        made.sizes[i] = t.sizes[i];
        made.strides[i] = t.strides[i];
    }
    require(t.data != nullptr || made.count() == 0, name, ".data: null; it has ", made.count(), " elements");
    return made;
}

tensor needed_tensor(const imbrex_tensor& t, const char* name) {
    require(t.dtype != IMBREX_NONE, name, ": not given (IMBREX_NONE); it is needed");
    return optional_tensor(t, name);
}

execution_on::execution_on(const imbrex_execution* on) : given_(execution_given(on)) {
    on_.where = world_of(given_.world);
    on_.stream = given_.stream;
    on_.allocate = [this](std::size_t bytes) { return workspace(bytes); };
    if (on_.where == imbrex::world::host_checked && !is_checking()) {
        on_.schedules = given_.schedules;
        on_.first_seed = given_.first_seed;
        on_.report = &report_;
    }
}

void execution_on::run(const std::string& variant, const void* call) {
    imbrex::bindings::find_variant(on_.where, variant)(on_, call);
    if (!report_.empty()) throw hazard_found(report_);
}

void* execution_on::workspace(std::size_t bytes) {
    if (given_.allocate == nullptr) {
        require(on_.where != imbrex::world::device, "on.allocate: null; ", bytes, " bytes of workspace are needed");
        workspaces_.emplace_back(on_.where, bytes);
        return workspaces_.back().at();
    }
    void* const memory = given_.allocate(given_.allocate_context, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace imbrex_c
