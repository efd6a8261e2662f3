// Asynchronous operations that were issued and have not completed.
#pragma once

#include <imbrex/core/owned.hpp>
#include <imbrex/core/source.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace imbrex::hw {

struct simulated_warp;

// What schedules and reports know an operation by.
struct operation_id {
    const simulated_warp* issuer = nullptr;
    const char* what = "";
    source where{};
    int number = 0;  // among the operations of its issuer
    int thread = 0;  // of PCT
};

// An asynchronous operation that was issued. Operations of one queue complete in order.
struct operation {
    virtual ~operation() = default;
    virtual void perform() = 0;
    const void* in_order_with = nullptr;
    std::uint32_t group = 0;
    operation_id id;
};

class pending_operations {
  public:
    bool empty() const { return all_.empty(); }
    std::size_t size() const { return all_.size(); }
    const operation& operator[](std::size_t at) const { return *all_[at]; }
    void clear() { all_.clear(); }

    template <class Perform>
    void add(const void* in_order_with, std::uint32_t group, const operation_id& id, Perform perform) {
        struct closure final : operation {
            explicit closure(Perform p) : perform_it(std::move(p)) {}
            void perform() override { perform_it(); }
            Perform perform_it;
        };
        auto made = make_owned<closure>(std::move(perform));
        made->in_order_with = in_order_with;
        made->group = group;
        made->id = id;
        all_.push_back(std::move(made));
    }

    // Removes the first operation of a queue up to a group; null if there is none.
    owned<operation> take_of(const void* in_order_with, std::uint32_t group) {
        for (std::size_t i = 0; i < all_.size(); ++i) {
            if (all_[i]->in_order_with == in_order_with && all_[i]->group <= group) return take(i);
        }
        return {};
    }
    // The operation that must complete before this one does, or itself.
    std::size_t first_of_its_queue(std::size_t at) const {
        const void* const queue = all_[at]->in_order_with;
        for (std::size_t i = 0; i < at && queue != nullptr; ++i) {
            if (all_[i]->in_order_with == queue) return i;
        }
        return at;
    }
    bool has_queue(const void* queue) const {
        for (const auto& one : all_) {
            if (queue != nullptr && one->in_order_with == queue) return true;
        }
        return false;
    }

    owned<operation> take(std::size_t at) {
        owned<operation> one = std::move(all_[at]);
        all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(at));
        return one;
    }

  private:
    std::vector<owned<operation>> all_;
};

}  // namespace imbrex::hw
