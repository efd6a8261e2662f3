// The tensors of Ulysses attention in the workspace of a rank. Each has three areas: messages between the own rows and
// the heads of other ranks, messages between the own heads and the rows of other ranks, and all tokens of the own heads
// in the order of positions, where attention reads or writes them.
#pragma once

#include <imbrex/comm/schedule/ulysses_schedule.hpp>
#include <imbrex/core/workspace_layout.hpp>
#include <imbrex/kernels/attention/views.hpp>

#include <cstddef>
#include <utility>

namespace imbrex {

enum class ulysses_heads { query, kv };

// How a tensor is stored: [batch, row, head, head_dim], or [batch, head, row] with one number per row and head.
enum class ulysses_layout { rows_of_heads, row_values };

struct ulysses_tensor {
    ulysses_heads heads = ulysses_heads::query;
    ulysses_layout layout = ulysses_layout::rows_of_heads;
    std::size_t head_bytes = 0;  // of one row of one head
    // Byte offsets of the areas: messages to send, messages to receive, all tokens.
    std::size_t outgoing = 0;
    std::size_t incoming = 0;
    std::size_t gathered = 0;

    head_range heads_of(const ulysses_schedule& schedule, int rank) const {
        return heads == ulysses_heads::kv ? schedule.kv_heads_of(rank) : schedule.heads_of(rank);
    }
    int all_heads(const ulysses_schedule& schedule) const {
        return heads == ulysses_heads::kv ? schedule.sizes.kv_heads : schedule.sizes.heads;
    }
};

class ulysses_workspace {
  public:
    ulysses_workspace(const ulysses_schedule& schedule, int rank) : schedule_(schedule), rank_(rank) {}

    const workspace_layout& buffers() const { return buffers_; }
    std::size_t add(std::size_t bytes) { return buffers_.add(bytes); }

    // Its heads are sent to their ranks before attention.
    ulysses_tensor add_input(ulysses_tensor one) {
        one.outgoing = add(bytes_of_own_rows(one));
        one.incoming = add(bytes_of_own_heads(one));
        one.gathered = add(bytes_of_own_heads(one));
        return one;
    }
    // Its tokens are sent to their ranks after attention.
    ulysses_tensor add_output(const ulysses_tensor& one) {
        ulysses_tensor made = add_input(one);
        std::swap(made.outgoing, made.incoming);
        return made;
    }
    // An output of the size of an input. Its messages are where those of the input were.
    ulysses_tensor add_gradient(const ulysses_tensor& input) {
        ulysses_tensor made = input;
        std::swap(made.outgoing, made.incoming);
        made.gathered = add(bytes_of_own_heads(made));
        return made;
    }

    // All tokens of the own heads, as attention takes them. Without a workspace the view has its extents only.
    template <class T>
    attention_view<T> rows(const ulysses_tensor& one, void* workspace) const {
        return batch_sequence_head(pointer<T>(one, workspace), schedule_.sizes.batches, schedule_.tokens,
                                   one.heads_of(schedule_, rank_).count, one.head_bytes / sizeof(T));
    }
    attention_row_view row_values(const ulysses_tensor& one, void* workspace) const {
        return batch_head_rows(pointer<float>(one, workspace), one.heads_of(schedule_, rank_).count, schedule_.tokens);
    }

  private:
    std::size_t bytes_of_own_rows(const ulysses_tensor& one) const {
        return one.head_bytes * one.all_heads(schedule_) * schedule_.tokens_of(rank_).count() * schedule_.sizes.batches;
    }
    std::size_t bytes_of_own_heads(const ulysses_tensor& one) const {
        return one.head_bytes * one.heads_of(schedule_, rank_).count * schedule_.tokens * schedule_.sizes.batches;
    }
    template <class T>
    static T* pointer(const ulysses_tensor& one, void* workspace) {
        return workspace == nullptr ? nullptr : reinterpret_cast<T*>(static_cast<std::byte*>(workspace) + one.gathered);
    }

    const ulysses_schedule& schedule_;
    const int rank_;
    workspace_layout buffers_;
};

}  // namespace imbrex
