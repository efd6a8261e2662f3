#include "process_group_transport.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace imbrex_torch {

namespace {

// For gloo, which matches messages between two ranks by tag, and those of one tag in their order.
constexpr int message_tag = 0x1b3e;

}  // namespace

process_group_transport::process_group_transport(process_group group, at::Device device)
    : group_(std::move(group)), device_(device) {}

imbrex::send_recv_request process_group_transport::start(const imbrex::send_recv_group& one, void*) {
    imbrex::detail::require_peers(one, rank(), ranks());
    std::vector<std::pair<int, std::vector<at::Tensor>>> sends, receives;
    for (const imbrex::send_op& send : one.sends) {
        if (send.bytes > 0) sends.push_back({send.to, {tensor_at(send.buffer, send.bytes)}});
    }
    for (const imbrex::recv_op& receive : one.receives) {
        if (receive.bytes > 0) receives.push_back({receive.from, {tensor_at(receive.buffer, receive.bytes)}});
    }
    works started;
    if (!sends.empty() || !receives.empty()) {
        const bool coalesced = group_->getBackend(device_.type())->supportsCoalescing();
        if (coalesced) group_->startCoalescing(device_.type());
        for (auto& [to, tensors] : sends) started.push_back(group_->send(tensors, to, message_tag));
        for (auto& [from, tensors] : receives) started.push_back(group_->recv(tensors, from, message_tag));
        if (coalesced) started = {group_->endCoalescing(device_.type())};
    }
    requests_.push_back(std::move(started));
    return static_cast<imbrex::send_recv_request>(requests_.size()) - 1;
}

void process_group_transport::wait(imbrex::send_recv_request request, void*) {
    for (const auto& work : std::exchange(requests_.at(static_cast<std::size_t>(request)), {})) {
        TORCH_CHECK(work->wait(), "rank ", rank(), " of ", ranks(), ": send/recv group ", request, " was aborted");
    }
}

void process_group_transport::synchronise(void* stream) {
    for (std::size_t i = 0; i < requests_.size(); ++i) wait(static_cast<imbrex::send_recv_request>(i), stream);
    if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
}

void process_group_transport::all_gather(const void* mine, void* all, std::size_t bytes) {
    const auto count = static_cast<std::int64_t>(bytes);
    at::Tensor own = at::empty({count}, at::kByte);
    std::memcpy(own.data_ptr(), mine, bytes);
    own = own.to(device_);
    at::Tensor gathered = at::empty({count * ranks()}, own.options());
    group_->_allgather_base(gathered, own)->wait();
    gathered = gathered.cpu();
    std::memcpy(all, gathered.data_ptr(), static_cast<std::size_t>(gathered.numel()));
}

at::Tensor process_group_transport::tensor_at(const void* bytes, std::size_t count) const {
    return at::for_blob(const_cast<void*>(bytes), {static_cast<std::int64_t>(count)})
        .options(at::TensorOptions().dtype(at::kByte).device(device_))
        .target_device(device_)
        .make_tensor();
}

}  // namespace imbrex_torch
