#include "ring_plans.hpp"

#include <imbrex/comm/rank_consistency.hpp>

#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace imbrex_torch {

namespace {

using plan_pointer = std::shared_ptr<const imbrex::ring_plan>;
using plan_key = std::vector<std::int64_t>;

// All ranks make the same plans in the same order, and so forget them at the same time.
constexpr std::size_t max_plans_of_group = 1024;

struct group_plans {
    c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
    std::map<plan_key, plan_pointer> plans;
};

class plan_cache {
  public:
    plan_pointer find(const process_group& group, const plan_key& key) {
        const std::lock_guard lock(mutex_);
        const auto& plans = plans_of(group);
        const auto found = plans.find(key);
        return found == plans.end() ? nullptr : found->second;
    }
    void add(const process_group& group, const plan_key& key, const plan_pointer& plan) {
        const std::lock_guard lock(mutex_);
        auto& plans = plans_of(group);
        if (plans.size() >= max_plans_of_group) plans.clear();
        plans[key] = plan;
    }

  private:
    // A new group may have the name of one that was destroyed.
    std::map<plan_key, plan_pointer>& plans_of(const process_group& group) {
        const auto [at, added] =
            groups_.try_emplace(group->getGroupName(), group_plans{c10::weak_intrusive_ptr(group), {}});
        if (!added && at->second.group.lock() != group) at->second = {c10::weak_intrusive_ptr(group), {}};
        return at->second.plans;
    }

    std::mutex mutex_;
    std::map<std::string, group_plans> groups_;
};

plan_cache& cache() {
    static plan_cache plans;
    return plans;
}

// By the names of the operator's arguments.
std::vector<imbrex::rank_invariant> invariants_of(const imbrex::ring_schedule& schedule, imbrex::ring_pass pass,
                                                  imbrex::bindings::element type) {
    const imbrex::attention_sizes& sizes = schedule.sizes;
    return {{"pass (0: forward, 1: backward)", static_cast<int>(pass)},
            {"dtype (1: bf16, 2: fp16)", static_cast<int>(type)},
            {"batch", sizes.batches},
            {"tokens", schedule.tokens},
            {"heads of q", sizes.heads},
            {"heads of k and v", sizes.kv_heads},
            {"head_dim", sizes.head_dim},
            {"head_dim of v", sizes.head_dim_v},
            {"left side of the window", schedule.mask.left},
            {"right side of the window", schedule.mask.right},
            {"placement (0: contiguous, 1: zigzag, 2: striped)", static_cast<int>(schedule.placement)},
            {"q_chunks", schedule.q_chunks}};
}

}  // namespace

plan_pointer ring_plan_of(const process_group& group, process_group_transport& comm,
                          const imbrex::ring_schedule& schedule, imbrex::ring_pass pass, imbrex::bindings::element type,
                          std::int64_t tokens) {
    const auto require_tokens = [&] {
        const int expected = schedule.tokens_of(comm.rank()).count();
        imbrex::require(tokens == expected, "q: ", tokens, " tokens; rank ", comm.rank(), " of ", comm.ranks(), " has ",
                        expected, " of ", schedule.tokens, " tokens in ", name_of(schedule.placement), " placement");
    };
    const auto invariants = invariants_of(schedule, pass, type);
    plan_key key;
    for (const imbrex::rank_invariant& one : invariants) key.push_back(one.value);
    if (const plan_pointer known = cache().find(group, key)) {
        require_tokens();
        return known;
    }
    const plan_pointer made = imbrex::make_on_all_ranks(comm, invariants, [&]() -> plan_pointer {
        const auto plan =
            std::make_shared<const imbrex::ring_plan>(std::vector<imbrex::ring_schedule>{schedule}, comm.rank(), pass);
        require_tokens();
        return plan;
    });
    cache().add(group, key, made);
    return made;
}

}  // namespace imbrex_torch
