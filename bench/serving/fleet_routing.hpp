// Which replica gets a request. A policy sees the tokens that each replica still has to compute, and the key of the
// request: its system prompt, or its conversation.
//
//   round-robin    one after the other
//   least-loaded   the fewest outstanding tokens; equal ones in turn
//   prefix-hash    consistent hashing of the system prompt, or of the conversation if it has none
//   session-hash   consistent hashing of the conversation
//
// Hashing has bounded load: a replica whose tokens would exceed `bound` times the mean passes the request on to the next
// on the ring. A bound of less than `least_bound` tokens counts as that many, so that an idle fleet keeps its caches.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace bench {

struct routed_request {
    std::uint64_t conversation = 0;
    std::int64_t system = -1;  // -1: none
    std::int64_t tokens = 0;   // prompt and output
};

// The index of a replica.
using routing_policy = std::function<int(const routed_request&, std::span<const std::int64_t> outstanding)>;

struct bounded_load {
    double bound = 1.25;
    std::int64_t least_bound = 8192;
};

std::vector<std::string> routing_policies();
routing_policy make_policy(const std::string& name, int replicas, const bounded_load& bounded = {});

}  // namespace bench
