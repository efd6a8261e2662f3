#include "operator.hpp"

#include "checking.hpp"

#include <c10/core/DeviceGuard.h>

#include <memory>

#if defined(IMBREX_TORCH_CUDA)
#include <c10/cuda/CUDAStream.h>
#endif

namespace imbrex_torch {

namespace {

element element_of(const Tensor& t, const char* name) {
    switch (t.scalar_type()) {
        case at::kBFloat16:
            return element::bf16;
        case at::kHalf:
            return element::fp16;
        case at::kFloat:
            return element::fp32;
        case at::kFloat8_e4m3fn:
            return element::e4m3;
        case at::kChar:
            return element::int8;
        case at::kByte:
            return element::uint8;
        case at::kInt:
            return element::int32;
        case at::kLong:
            return element::int64;
        default:
            TORCH_CHECK_TYPE(false, name, ".dtype: ", t.scalar_type(),
                             "; the operators of imbrex have no such elements");
    }
}

}  // namespace

imbrex::bindings::tensor described(const Tensor& t, const char* name) {
    return t.defined() ? described(t, name, t.sizes(), t.strides()) : imbrex::bindings::tensor{};
}
imbrex::bindings::tensor described(const std::optional<Tensor>& t, const char* name) {
    return t ? described(*t, name) : imbrex::bindings::tensor{};
}

imbrex::bindings::tensor described(const Tensor& t, const char* name, at::IntArrayRef sizes, at::IntArrayRef strides) {
    imbrex::bindings::tensor made;
    TORCH_CHECK_VALUE(sizes.size() <= imbrex::bindings::tensor::max_rank, name, ": ", sizes.size(),
                      " dimensions; at most ", imbrex::bindings::tensor::max_rank, " are allowed");
    made.data = t.data_ptr();
    made.type = element_of(t, name);
    made.rank = static_cast<int>(sizes.size());
    for (int i = 0; i < made.rank; ++i) {
        made.sizes[i] = sizes[i];
        made.strides[i] = strides[i];
    }
    return made;
}

std::string type_name(const Tensor& t, const char* name) {
    return imbrex::bindings::name_of(element_of(t, name));
}

Tensor with_contiguous_rows(const Tensor& t) {
    return t.dim() == 0 || t.size(-1) <= 1 || t.stride(-1) == 1 ? t : t.contiguous();
}

void require_same_device(const Tensor& like,
                         std::initializer_list<std::pair<const char*, std::optional<Tensor>>> others) {
    for (const auto& [name, other] : others) {
        TORCH_CHECK_TYPE(!other || !other->defined() || other->device() == like.device(), name,
                         ".device: ", other->device(), "; must be ", like.device(), " as that of the first argument");
    }
}

struct execution_on::state {
    c10::OptionalDeviceGuard guard;
    std::vector<Tensor> workspaces;
};

execution_on::execution_on(const Tensor& like) : state_(std::make_unique<state>()) {
    const auto options = at::TensorOptions().dtype(at::kByte).device(like.device());
    on_.allocate = [options, all = state_.get()](std::size_t bytes) {
        all->workspaces.push_back(at::empty(static_cast<std::int64_t>(bytes) + 256, options));
        const auto address = reinterpret_cast<std::uintptr_t>(all->workspaces.back().data_ptr());
        return reinterpret_cast<void*>((address + 255) / 256 * 256);
    };
    if (like.is_cpu()) {
        on_.where = imbrex::world::host;
        give_check(on_);
        return;
    }
#if defined(IMBREX_TORCH_CUDA)
    state_->guard.reset_device(like.device());
    on_.where = imbrex::world::device;
    on_.stream = c10::cuda::getCurrentCUDAStream(like.device().index()).stream();
#else
    TORCH_CHECK_NOT_IMPLEMENTED(false, "device: ", like.device(), "; imbrex_torch was built without CUDA");
#endif
}

execution_on::~execution_on() = default;

void execution_on::run(const std::string& variant, const void* call) const {
    with_python_errors([&] { imbrex::bindings::find_variant(on_.where, variant)(on_, call); });
}

}  // namespace imbrex_torch
