// A transport over a process group of PyTorch (c10d::ProcessGroup), so that kernels that communicate run on the groups that
// torchrun and init_process_group have made: NCCL for CUDA tensors, gloo for CPU tensors.
//
//     start        CUDA: the sends and receives of a group are coalesced into one NCCL operation in PyTorch's stream for
//                  communication, after the work in the current stream. CPU: they begin at once.
//     wait         CUDA: the current stream waits. CPU: the host waits.
//     all_gather   in memory of the tensors' device, so that NCCL has connected all ranks before the first send
//
// The stream of these calls is the current stream of PyTorch. A transport is made for one operator call. Errors and
// timeouts are those of the process group.
#pragma once

#include "../../bindings/any_transport.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstddef>
#include <vector>

namespace imbrex_torch {

using process_group = c10::intrusive_ptr<c10d::ProcessGroup>;

class process_group_transport final : public imbrex::bindings::any_transport {
  public:
    process_group_transport(process_group group, at::Device device);

    int rank() const override { return group_->getRank(); }
    int ranks() const override { return group_->getSize(); }
    imbrex::world where() const override { return device_.is_cpu() ? imbrex::world::host : imbrex::world::device; }
    imbrex::send_recv_request start(const imbrex::send_recv_group& one, void* stream) override;
    void wait(imbrex::send_recv_request request, void* stream) override;
    void synchronise(void* stream) override;
    void all_gather(const void* mine, void* all, std::size_t bytes) override;

  private:
    using works = std::vector<c10::intrusive_ptr<c10d::Work>>;

    at::Tensor tensor_at(const void* bytes, std::size_t count) const;

    process_group group_;
    at::Device device_;
    std::vector<works> requests_;  // by number; empty once waited for
};

}  // namespace imbrex_torch
