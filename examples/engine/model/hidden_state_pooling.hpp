// Pools the hidden states of a batch for embeddings (serving/pooled_state.hpp): sums of up to 64 rows are made in the world
// of the model, in float, and added up on the host. Batches without such sequences cost nothing, not even memory.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/pinned_staging.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/row_tiles.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/serving/batch.hpp"
#include "engine/serving/sampled_token.hpp"

namespace imbrex::engine {

// out[i] = the sum of x[bounds[2 i]] up to, not including, x[bounds[2 i + 1]]; at least one row each.
template <class T, row_alignment Known>
struct row_sums_kernel : row_tiles_kernel<row_sums_kernel<T, Known>> {
    static constexpr int columns_at_once = 256;
    struct arguments {
        row_accessor<const T> x;
        const int* bounds;
        row_accessor<float> out;
        row_tiles<1, columns_at_once> all;
    };

    IMBREX_KERNEL static void apply(const warp& self, const arguments& args, int number, int column) {
        const int columns = args.all.columns - column;
        if (number >= args.all.rows) return;
        const int first = read_element(args.bounds, 2 * number), end = read_element(args.bounds, 2 * number + 1);
        vector_row_tile<T, 1, columns_at_once> x;
        vector_row_tile<float, 1, columns_at_once> sum;
        load_rows_from<Known>(self, x, row_pointers<const T>{args.x, first, end, column}, columns);
        transform(
            self, sum, [](float value) { return value; }, x);
        for (int row = first + 1; row < end; ++row) {
            load_rows_from<Known>(self, x, row_pointers<const T>{args.x, row, end, column}, columns);
            transform(
                self, sum, [](float all, float value) { return all + value; }, sum, x);
        }
        store_rows_to<Known>(self, row_pointers<float>{args.out, number, args.all.rows, column}, sum, columns);
    }
};

inline namespace IMBREX_WORLDS {

class hidden_state_pooling {
  public:
    hidden_state_pooling(world where, int columns, int max_num_batched_tokens, int max_num_seqs)
        : where_(where), columns_(columns), max_sums_(max_num_batched_tokens / rows_of_sum + max_num_seqs) {}

    static bool is_needed(const batch_entry& entry) {
        const pooling_mode mode = entry.sequence->pooling;
        return mode == pooling_mode::mean || (mode == pooling_mode::last && entry.samples);
    }
    static bool is_needed(const batch& work) {
        return std::ranges::any_of(work.entries, [](const batch_entry& one) { return is_needed(one); });
    }

    // What a batch in flight has launched.
    struct row_sum {
        const batch_entry* of;
        int first, count;  // tokens of the sequence
    };
    struct sums {
        std::vector<row_sum> all{};
        int buffer = 0;
    };

    // `x` has the hidden states of the batch, one row per token. Two batches may be in flight, with buffers 0 and 1.
    template <class T>
    sums launch(const batch& work, int buffer, const T* x, void* stream) {
        sums made{.buffer = buffer};
        const std::vector<int> bounds = bounds_of(work, made.all);
        if (made.all.empty()) return made;
        const buffers& own = buffers_of(buffer);
        std::ranges::copy(bounds, own.bounds.host_pointer<int>());
        own.bounds.upload(bounds.size() * sizeof(int), stream);
        const auto count = static_cast<std::int64_t>(made.all.size());
        const auto from = as_rows(x, work.tokens(), columns_);
        const auto to = as_rows(own.out.at<float>(), count, columns_);
        const auto run = [&]<row_alignment Known>() {
            launch_row_tiles<row_sums_kernel<T, Known>>(where_,
                                                        {.x = row_accessor_of(from),
                                                         .bounds = own.bounds.at<int>(),
                                                         .out = row_accessor_of(to),
                                                         .all = {static_cast<int>(count), static_cast<int>(columns_)}},
                                                        stream);
        };
        if (detail::can_vectorise(from) && detail::can_vectorise(to)) {
            run.template operator()<row_alignment::aligned>();
        } else {
            run.template operator()<row_alignment::unaligned>();
        }
        own.out.download(static_cast<std::size_t>(count * columns_) * sizeof(float), stream);
        return made;
    }

    // After the stream has passed: gives the sums to the sequences, and their results to those that end.
    void finish(const sums& made, const batch& work, std::vector<sampled_token>& sampled) const {
        if (made.all.empty()) return;
        const auto columns = static_cast<std::size_t>(columns_);
        const float* next = buffers_[static_cast<std::size_t>(made.buffer)].out.host_pointer<float>();
        for (const row_sum& one : made.all) {
            const std::span<const float> values(std::exchange(next, next + columns), columns);
            pooled_state& pooled = *one.of->sequence->pooled;
            if (one.of->sequence->pooling == pooling_mode::last) {
                pooled.set_last(values);
            } else {
                pooled.add(one.first, one.count, values);
            }
        }
        std::size_t sample = 0;
        for (const batch_entry& entry : work.entries) {
            if (entry.samples && is_needed(entry)) sampled[sample].embedding = entry.sequence->pooled->result();
            sample += static_cast<std::size_t>(entry.num_samples());
        }
    }

  private:
    static constexpr int rows_of_sum = 64;
    struct buffers {
        pinned_staging bounds, out;
    };

    // Of the first row and behind the last one of each sum.
    static std::vector<int> bounds_of(const batch& work, std::vector<row_sum>& all) {
        std::vector<int> bounds;
        int row = 0;
        for (const batch_entry& entry : work.entries) {
            const int end = row + entry.count;
            const bool is_last = entry.sequence->pooling == pooling_mode::last;
            for (int first = is_last ? end - 1 : row; is_needed(entry) && first < end; first += rows_of_sum) {
                const int count = std::min(rows_of_sum, end - first);
                all.push_back({&entry, entry.first + first - row, count});
                bounds.insert(bounds.end(), {first, first + count});
            }
            row = end;
        }
        return bounds;
    }

    const buffers& buffers_of(int number) {
        buffers& own = buffers_[static_cast<std::size_t>(number)];
        if (own.out.bytes() > 0) return own;
        const auto most = static_cast<std::size_t>(max_sums_);
        own.bounds = pinned_staging(where_, 2 * most * sizeof(int));
        own.out = pinned_staging(where_, most * static_cast<std::size_t>(columns_) * sizeof(float));
        return own;
    }

    world where_;
    std::int64_t columns_;
    int max_sums_;
    std::array<buffers, 2> buffers_;  // from the first batch that needs them on
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
