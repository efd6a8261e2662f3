// A transport behind an abstract class: a variant of ring attention is compiled once and runs on every transport of its
// callers, such as the process groups of PyTorch. The calls are those of comm/transport.hpp.
#pragma once

#include <imbrex/comm/transport.hpp>

#include <cstddef>

namespace imbrex::bindings {

class any_transport {
  public:
    any_transport() = default;
    any_transport(const any_transport&) = delete;
    any_transport& operator=(const any_transport&) = delete;
    virtual ~any_transport() = default;

    virtual int rank() const = 0;
    virtual int ranks() const = 0;
    virtual world where() const = 0;
    virtual send_recv_request start(const send_recv_group& one, void* stream) = 0;
    virtual void wait(send_recv_request request, void* stream) = 0;
    virtual void synchronise(void* stream) = 0;
    virtual void all_gather(const void* mine, void* all, std::size_t bytes) = 0;
};

static_assert(transport<any_transport>);

}  // namespace imbrex::bindings
