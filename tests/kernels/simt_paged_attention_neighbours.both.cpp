// simt_paged_attention gives a token the same bits however its sequence is chunked and whatever else is in the batch:
// alone, in a chunk of a prompt, with other sequences, with causal and window masks.
#include <imbrex/kernels/simt_paged_attention.hpp>

#include "random_below.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

struct shape {
    int heads, kv_heads, head_dim, tokens;
};

// Sequences whose keys and values are all in the cache; chunks of their tokens attend.
template <class In, class Mask>
class sequences_in_pages {
  public:
    static constexpr int page_size = 16;

    sequences_in_pages(world where, const shape& of, int count, std::mt19937& random)
        : where_(where),
          of_(of),
          width_((of.tokens + page_size - 1) / page_size),
          count_(count),
          pages_(static_cast<std::size_t>(count) * width_),
          q_(static_cast<std::size_t>(count) * of.tokens * row()),
          k_(where, pages_.size() * page_elements()),
          v_(where, pages_.size() * page_elements()) {
        std::iota(pages_.begin(), pages_.end(), 0);
        std::shuffle(pages_.begin(), pages_.end(), random);
        fill_random(q_, 1, -2, 2);
        fill_random(k_.values, 2, -2, 2);
        fill_random(v_.values, 3, -2, 2);
    }

    struct piece {
        int sequence, first, end;  // tokens
    };

    // The output of all tokens of the chunks.
    std::vector<In> attend(const std::vector<piece>& pieces, const Mask& mask) {
        std::vector<In> some;
        std::vector<int> starts{0}, lengths, table;
        for (const piece& one : pieces) {
            const auto begin = q_.begin() + static_cast<std::ptrdiff_t>(one.sequence) * of_.tokens * row();
            some.insert(some.end(), begin + one.first * row(), begin + one.end * row());
            starts.push_back(starts.back() + one.end - one.first);
            lengths.push_back(one.end);
            const auto own = pages_.begin() + static_cast<std::ptrdiff_t>(one.sequence) * width_;
            table.insert(table.end(), own, own + width_);
        }
        const int all = starts.back(), sequences = static_cast<int>(pieces.size());
        buffer<In> q(where_, some.size()), out(where_, some.size());
        buffer<int> starts_there(where_, starts.size()), lengths_there(where_, lengths.size()),
            table_there(where_, table.size());
        q.values = some;
        starts_there.values = starts;
        lengths_there.values = lengths;
        table_there.values = table;
        attention_problem<In> p;
        p.q = batch_sequence_head<const In>(q.upload(), 1, all, of_.heads, of_.head_dim);
        p.k = cache(k_.upload());
        p.v = cache(v_.upload());
        p.out = batch_sequence_head(out.upload(), 1, all, of_.heads, of_.head_dim);
        p.seqused_k = lengths_there.upload();
        p.varlen = {.count = sequences, .cu_seqlens_q = starts_there.upload()};
        p.paged_kv = {table_there.upload(), width_};
        simt_paged_attention<In, head_dim_set{64, 256}, Mask>::launch(where_, p, mask);
        out.download();
        return out.values;
    }

    int row() const { return of_.heads * of_.head_dim; }

  private:
    std::size_t page_elements() const { return static_cast<std::size_t>(of_.kv_heads) * page_size * of_.head_dim; }
    attention_view<const In> cache(const In* from) const {
        return batch_head_sequence<const In>(from, static_cast<int>(pages_.size()), of_.kv_heads, page_size,
                                             of_.head_dim);
    }

    world where_;
    shape of_;
    int width_, count_;
    std::vector<int> pages_;
    std::vector<In> q_;
    buffer<In> k_, v_;
};

template <class In, class Mask>
void check_neighbours(const shape& of, const Mask& mask) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(of.heads);
        CAPTURE(of.head_dim);
        std::mt19937 random(7);
        const random_below below(random);
        const int count = 3;
        sequences_in_pages<In, Mask> all(where, of, count, random);
        std::vector<In> alone;  // each token by itself
        for (int sequence = 0; sequence < count; ++sequence) {
            for (int token = 0; token < of.tokens; ++token) {
                const std::vector<In> one = all.attend({{sequence, token, token + 1}}, mask);
                alone.insert(alone.end(), one.begin(), one.end());
            }
        }
        for (int trial = 0; trial < 12; ++trial) {
            CAPTURE(trial);
            std::vector<typename sequences_in_pages<In, Mask>::piece> pieces;
            for (int sequence = 0; sequence < count; ++sequence) {
                const int first = trial == 0 ? 0 : below(of.tokens);
                pieces.push_back({sequence, first, trial == 0 ? of.tokens : first + 1 + below(of.tokens - first)});
            }
            const std::vector<In> together = all.attend(pieces, mask);
            std::size_t at = 0;
            for (const auto& one : pieces) {
                const auto elements = static_cast<std::size_t>(one.end - one.first) * all.row();
                const std::size_t first = (static_cast<std::size_t>(one.sequence) * of.tokens + one.first) * all.row();
                CHECK(std::memcmp(together.data() + at, alone.data() + first, elements * sizeof(In)) == 0);
                at += elements;
            }
        }
    }
}

}  // namespace

TEST_CASE("a token has the same bits alone and in any chunk") {
    for (const shape& of : {shape{14, 2, 64, 70}, {4, 4, 64, 90}, {8, 2, 128, 40}, {20, 1, 32, 33}, {3, 1, 24, 150}}) {
        check_neighbours<float>(of, causal_mask{});
        check_neighbours<float>(of, window_mask{21, 0});
    }
    check_neighbours<bf16>({6, 2, 64, 70}, causal_mask{});
    check_neighbours<bf16>({6, 2, 24, 140}, window_mask{70, 0});
}
