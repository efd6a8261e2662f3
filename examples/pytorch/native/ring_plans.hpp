// Plans of ring attention, made once for a process group and a shape, and kept while the group lives.
#pragma once

#include "process_group_transport.hpp"

#include "../../bindings/tensor.hpp"

#include <imbrex/comm/ring_plan.hpp>

#include <cstdint>
#include <memory>

namespace imbrex_torch {

// `tokens` is what this rank has of a sequence. The first call with a schedule is collective: it blocks the host until all
// ranks have called it, and all throw imbrex::error if their arguments differ or do not fit on one of them.
std::shared_ptr<const imbrex::ring_plan> ring_plan_of(const process_group& group, process_group_transport& comm,
                                                      const imbrex::ring_schedule& schedule, imbrex::ring_pass pass,
                                                      imbrex::bindings::element type, std::int64_t tokens);

}  // namespace imbrex_torch
