// Compares the claims of an attention mask with its `keep`, query by query and key by key. Kernels skip tiles outside
// `visible_keys` and do not mask tiles that are `fully_unmasked`, so a mask whose claims contradict `keep` gives wrong
// results. `check` of the attention launchers calls this; it is slow and meant for tests.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/problem.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace imbrex {

template <class Mask>
class mask_checker {
  public:
    mask_checker(const Mask& mask, const attention_extents& extents)
        : mask_(mask),
          extents_(extents),
          sums_(static_cast<std::size_t>(extents.seqlen_q + 1) * (extents.seqlen_k + 1)) {
        for (int query = 0; query < extents.seqlen_q; ++query) {
            for (int key = 0; key < extents.seqlen_k; ++key) {
                sum(query + 1, key + 1) = sum(query, key + 1) + sum(query + 1, key) - sum(query, key) +
                                          (mask.keep(extents, query, key) ? 1 : 0);
            }
        }
    }

    // The first contradiction in tiles of these sizes, or an empty string.
    std::string contradiction(int block_m, int block_n) {
        for (int first = 0; first < extents_.seqlen_q; first += block_m) {
            const query_range queries{first, std::min(first + block_m, extents_.seqlen_q)};
            std::string found = in_visible_keys(queries);
            for (int key = 0; found.empty() && key < extents_.seqlen_k; key += block_n) {
                found = in_fully_unmasked(queries, {key, std::min(key + block_n, extents_.seqlen_k)});
            }
            if (!found.empty()) return found;
        }
        if constexpr (mask_has_visible_queries<Mask>()) {
            for (int key = 0; key < extents_.seqlen_k; key += block_n) {
                const std::string found = in_visible_queries({key, std::min(key + block_n, extents_.seqlen_k)});
                if (!found.empty()) return found;
            }
        }
        return {};
    }

  private:
    int& sum(int query, int key) { return sums_[static_cast<std::size_t>(query) * (extents_.seqlen_k + 1) + key]; }
    // The number of pairs that `keep` allows.
    int kept(query_range q, key_range k) {
        if (k.end <= k.first) return 0;
        return sum(q.end, k.end) - sum(q.first, k.end) - sum(q.end, k.first) + sum(q.first, k.first);
    }

    std::string in_visible_keys(query_range queries) {
        const key_range claimed = mask_.visible_keys(extents_, queries);
        const int first = std::clamp(claimed.first, 0, extents_.seqlen_k);
        const int end = std::clamp(claimed.end, first, extents_.seqlen_k);
        if (kept(queries, {0, extents_.seqlen_k}) == kept(queries, {first, end})) return {};
        return str_cat("visible_keys of queries ", queries.first, " to ", queries.end - 1, " is [", claimed.first, ", ",
                       claimed.end, "), but keep is true for a key outside: ", where());
    }
    std::string in_visible_queries(key_range keys) {
        const query_range claimed = mask_.visible_queries(extents_, keys);
        const int first = std::clamp(claimed.first, 0, extents_.seqlen_q);
        const int end = std::clamp(claimed.end, first, extents_.seqlen_q);
        if (kept({0, extents_.seqlen_q}, keys) == kept({first, end}, keys)) return {};
        return str_cat("visible_queries of keys ", keys.first, " to ", keys.end - 1, " is [", claimed.first, ", ",
                       claimed.end, "), but keep is true for a query outside: ", where());
    }
    std::string in_fully_unmasked(query_range queries, key_range keys) {
        const int all = (queries.end - queries.first) * (keys.end - keys.first);
        if (!mask_.fully_unmasked(extents_, queries, keys) || kept(queries, keys) == all) return {};
        return str_cat("fully_unmasked is true for queries ", queries.first, " to ", queries.end - 1, " and keys ",
                       keys.first, " to ", keys.end - 1, ", but keep is false for some of them: ", where());
    }
    std::string where() const { return str_cat("batch ", extents_.batch, ", head ", extents_.head); }

    const Mask& mask_;
    attention_extents extents_;
    std::vector<int> sums_;  // of keep over all queries and keys before
};

// Checks tiles of several sizes; also visible_queries and visible_keys_of_query, if the mask has them.
template <class Mask>
std::string contradiction_in_mask(const Mask& mask, const attention_extents& extents) {
    mask_checker<Mask> checker(mask, extents);
    for (const int block_m : {1, 16, 64, 128, 192}) {
        for (const int block_n : {16, 64, 128}) {
            const std::string found = checker.contradiction(block_m, block_n);
            if (!found.empty()) return found;
        }
    }
    if constexpr (requires { mask.visible_keys_of_query(extents, 0); }) {
        for (int query = 0; query < extents.seqlen_q; ++query) {
            const key_range claimed = mask.visible_keys_of_query(extents, query);
            for (int key = 0; key < extents.seqlen_k; ++key) {
                const bool inside = key >= claimed.first && key < claimed.end;
                if (inside == mask.keep(extents, query, key)) continue;
                return str_cat("visible_keys_of_query(", query, ") is [", claimed.first, ", ", claimed.end,
                               "), but keep(", query, ", ", key, ") is ", inside ? "false" : "true");
            }
        }
    }
    return {};
}

// The lengths of one sequence of a problem whose arrays are in host memory.
template <class Problem>
attention_extents extents_of(const Problem& p, int batch, int head, kv_layout layout) {
    attention_extents made{batch, head, p.seqlen_q(), p.seqlen_k(layout)};
    if (p.varlen.given()) {
        made.seqlen_q = p.varlen.cu_seqlens_q[batch + 1] - p.varlen.cu_seqlens_q[batch];
        if (p.varlen.cu_seqlens_k != nullptr) {
            made.seqlen_k = p.varlen.cu_seqlens_k[batch + 1] - p.varlen.cu_seqlens_k[batch];
        }
    }
    if (p.seqused_k != nullptr) made.seqlen_k = p.seqused_k[batch];
    return made;
}

// The mask of every sequence and head of a problem; `kernel` is named in the report.
template <class Problem, class Mask>
std::optional<hazard> check_mask(const Problem& p, const Mask& mask, kv_layout layout, const char* kernel) {
    for (int batch = 0; batch < p.batches(); ++batch) {
        for (int head = 0; head < p.heads(); ++head) {
            const std::string found = contradiction_in_mask(mask, extents_of(p, batch, head, layout));
            if (!found.empty()) return hazard{hazard_kind::contradictory_mask, kernel, {}, 0, found, {}};
        }
    }
    return std::nullopt;
}

}  // namespace imbrex
