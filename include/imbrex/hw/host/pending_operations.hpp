// Asynchronous operations that were issued and have not completed.
#pragma once

#include <imbrex/core/owned.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace imbrex::hw {

// An asynchronous operation that was issued. Operations of one queue complete in order.
struct operation {
    virtual ~operation() = default;
    virtual void perform() = 0;
    const void* in_order_with = nullptr;
    std::uint32_t group = 0;
};

class pending_operations {
  public:
    bool empty() const { return all_.empty(); }
    std::size_t size() const { return all_.size(); }
    void clear() { all_.clear(); }

    template <class Perform>
    void add(const void* in_order_with, std::uint32_t group, Perform perform) {
        struct closure final : operation {
            explicit closure(Perform p) : perform_it(std::move(p)) {}
            void perform() override { perform_it(); }
            Perform perform_it;
        };
        auto made = make_owned<closure>(std::move(perform));
        made->in_order_with = in_order_with;
        made->group = group;
        all_.push_back(std::move(made));
    }

    // Removes the first operation of a queue up to a group; null if there is none.
    owned<operation> take_of(const void* in_order_with, std::uint32_t group) {
        for (std::size_t i = 0; i < all_.size(); ++i) {
            if (all_[i]->in_order_with == in_order_with && all_[i]->group <= group) return remove(i);
        }
        return {};
    }
    // Removes operation number `chosen`, or the one before which it must not complete.
    owned<operation> take(std::size_t chosen) {
        const void* const queue = all_[chosen]->in_order_with;
        for (std::size_t i = 0; i < chosen && queue != nullptr; ++i) {
            if (all_[i]->in_order_with == queue) return remove(i);
        }
        return remove(chosen);
    }

  private:
    owned<operation> remove(std::size_t at) {
        owned<operation> one = std::move(all_[at]);
        all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(at));
        return one;
    }

    std::vector<owned<operation>> all_;
};

}  // namespace imbrex::hw
