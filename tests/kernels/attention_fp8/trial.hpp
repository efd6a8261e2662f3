// Runs a case of attention_fp8 through its launcher and compares it with attention in double on the dequantised inputs.
//
// Errors of O are relative to the largest that rounding P to e4m3 allows: 2^-4 of each term p v, or half of the
// smallest number, 2^-10 of the 2^8 that stands for the largest p; and the rounding of O, saturated if it is e4m3. P is
// rounded and its sum is not. What must not matter is NaN: rows behind the end of a sequence, and the padding of a K-major V.
#pragma once

#include <imbrex/kernels/attention_fp8.hpp>

#include "kernels/attention_backward/reference.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace imbrex_test {

struct fp8_case {
    int batches = 1, heads = 1, kv_heads = 1;
    int seqlen_q = 1, seqlen_k = 1;
    int head_dim = 64;
    std::vector<int> starts_q = {}, starts_k = {};  // varlen
    std::vector<int> used_k = {};                   // seqused_k
    int page_size = 0;                              // of paged KV
    bool sinks = false;
    float spread = 2;      // of Q and K
    int v_row_excess = 0;  // of a K-major V: how far its row stride is above a multiple of 16
};

// Tensors [batch, sequence, head, head_dim]; V also [batch, kv_head, head_dim, sequence]. With a page size, K and V are
// uploaded in pages [page, row, head, head_dim], in any order. `Scaling` decides how many different scales there are.
template <class Out, class Scaling, imbrex::fp8_v_layout Layout>
class fp8_trial {
  public:
    using e4m3 = imbrex::e4m3;
    static constexpr bool k_major = Layout == imbrex::fp8_v_layout::k_major;
    static constexpr bool by_page = imbrex::fp8_scales_by_page<Scaling>();

    fp8_trial(world where, const fp8_case& given, std::uint32_t seed)
        : c(given),
          row_of_v((c.seqlen_k + 15) / 16 * 16 + c.v_row_excess),
          q(where, std::size_t(c.batches) * c.seqlen_q * c.heads * c.head_dim),
          k(where, std::size_t(kv_batches()) * c.seqlen_k * c.kv_heads * c.head_dim),
          v(where, k_major ? std::size_t(c.batches) * c.kv_heads * c.head_dim * row_of_v : k.values.size(), e4m3(NAN)),
          out(where, q.values.size(), Out(NAN)),
          lse2(where, std::size_t(c.batches) * c.heads * c.seqlen_q, NAN),
          sinks(where, c.heads),
          q_scales(where, scales_of(c.heads, c.seqlen_q, Scaling::q_block)),
          k_scales(where,
                   by_page ? std::size_t(pages()) * c.kv_heads : scales_of(c.kv_heads, c.seqlen_k, Scaling::kv_block)),
          v_scales(where, k_scales.values.size()),
          out_scales(where, scales_of(c.heads, 1, 0)),
          starts_q(where, std::max<std::size_t>(1, c.starts_q.size())),
          starts_k(where, std::max<std::size_t>(1, c.starts_k.size())),
          used_k(where, std::max<std::size_t>(1, c.used_k.size())),
          block_table(where, std::max(1, sequences() * max_blocks()), -1),
          k_pages(where, std::max<std::size_t>(1, rows_of_pages() * row_elements()), e4m3(NAN)),
          v_pages(where, k_pages.values.size(), e4m3(NAN)) {
        fill_random(q.values, seed, -c.spread, c.spread);
        fill_random(k.values, seed + 1, -c.spread, c.spread);
        std::vector<e4m3> rows(k.values.size());
        fill_random(rows, seed + 2);
        fill_random(sinks.values, seed + 3, -3, 3);
        fill_random(q_scales.values, seed + 4, 0.3f, 1.5f);
        fill_random(k_scales.values, seed + 5, 0.3f, 1.5f);
        fill_random(v_scales.values, seed + 6, 0.1f, 3.0f);
        fill_random(out_scales.values, seed + 7, 0.0004f, 0.02f);  // with small ones O is saturated
        std::copy(c.starts_q.begin(), c.starts_q.end(), starts_q.values.begin());
        std::copy(c.starts_k.begin(), c.starts_k.end(), starts_k.values.begin());
        std::copy(c.used_k.begin(), c.used_k.end(), used_k.values.begin());
        for (std::size_t i = 0; i < rows.size(); ++i) v.values[v_place(i)] = rows[i];
        // Entries behind the last key are not read and stay -1.
        for (int i = 0; c.page_size != 0 && i < sequences(); ++i) {
            for (int block = 0; block * c.page_size < key_rows_of(i).count; ++block) {
                const int number = i * max_blocks() + block;
                block_table.values[number] = (number * 7 + 3) % pages();
            }
        }
    }

    // Paged KV has an entry for each sequence, even with varlen queries.
    int kv_batches() const { return c.page_size == 0 ? c.batches : sequences(); }
    int max_blocks() const { return c.page_size == 0 ? 0 : (c.seqlen_k + c.page_size - 1) / c.page_size; }
    // At least one more than needed, and no multiple of 7.
    int pages() const {
        const int needed = sequences() * max_blocks();
        return needed % 7 == 6 ? needed + 2 : needed + 1;
    }
    int sequences() const { return c.starts_q.empty() ? c.batches : static_cast<int>(c.starts_q.size()) - 1; }
    // The first row and the number of rows of a sequence.
    struct rows {
        int member, first, count;
    };
    rows query_rows_of(int sequence) const { return rows_of(sequence, c.starts_q, c.seqlen_q); }
    rows key_rows_of(int sequence) const {
        rows found = rows_of(sequence, c.starts_k, c.seqlen_k);
        if (!c.used_k.empty()) found.count = c.used_k[sequence];
        return found;
    }
    // Makes everything NaN that belongs to no sequence, or to sequence `except`.
    void poison_keys(int except = -1) {
        std::vector<bool> belongs(std::size_t(kv_batches()) * c.seqlen_k);
        for (int i = 0; i < sequences(); ++i) {
            const rows one = key_rows_of(i);
            for (int row = 0; row < one.count; ++row) {
                belongs[std::size_t(one.member) * c.seqlen_k + one.first + row] = i != except;
            }
        }
        const std::size_t row_size = std::size_t(c.kv_heads) * c.head_dim;
        for (std::size_t i = 0; i < k.values.size(); ++i) {
            if (belongs[i / row_size]) continue;
            k.values[i] = e4m3(NAN);
            v.values[v_place(i)] = e4m3(NAN);
        }
    }

    imbrex::attention_fp8_problem<Out> upload() {
        using imbrex::batch_sequence_head;
        std::fill(out.values.begin(), out.values.end(), Out(NAN));
        std::fill(lse2.values.begin(), lse2.values.end(), NAN);
        imbrex::attention_fp8_problem<Out> p{};
        p.q = batch_sequence_head<const e4m3>(q.upload(), c.batches, c.seqlen_q, c.heads, c.head_dim);
        p.k = batch_sequence_head<const e4m3>(k.upload(), kv_batches(), c.seqlen_k, c.kv_heads, c.head_dim);
        if (k_major) {
            p.v = {v.upload(),
                   {c.batches, c.kv_heads, c.head_dim, c.seqlen_k},
                   {std::int64_t(c.kv_heads) * c.head_dim * row_of_v, c.head_dim * row_of_v, row_of_v}};
        } else {
            p.v = batch_sequence_head<const e4m3>(v.upload(), c.batches, c.seqlen_k, c.kv_heads, c.head_dim);
        }
        if (c.page_size != 0) put_in_pages(p);
        p.out = batch_sequence_head(out.upload(), c.batches, c.seqlen_q, c.heads, c.head_dim);
        p.lse2 = imbrex::batch_head_rows(lse2.upload(), c.heads, c.seqlen_q);
        p.q_descale = view_of(q_scales.upload(), c.heads, c.seqlen_q, Scaling::q_block);
        p.k_descale = kv_view_of(k_scales.upload());
        p.v_descale = kv_view_of(v_scales.upload());
        if (sizeof(Out) == 1) p.out_descale = view_of(out_scales.upload(), c.heads, 1, 0);
        if (c.sinks) p.sinks = sinks.upload();
        if (!c.starts_q.empty()) {
            p.varlen = {sequences(), starts_q.upload(), c.page_size == 0 ? starts_k.upload() : nullptr};
        }
        if (!c.used_k.empty()) p.seqused_k = used_k.upload();
        return p;
    }

    struct errors {
        double out = 0;      // relative to what is allowed
        double lse2 = 0;     // absolute
        double average = 0;  // of |O - right|, relative to the average of |right|
    };
    // `keep(sequence, query, key)` and `score(sequence, query, key, x)` are those of a mask and a score_mod. Skips
    // sequence `except`.
    template <class Keep, class Score>
    errors compare(const Keep& keep, const Score& score, int except = -1) {
        out.download();
        lse2.download();
        errors worst;
        double sum_of_errors = 0, sum_of_values = 0;
        for (int i = 0; i < sequences(); ++i) {
            if (i != except) compare_sequence(i, keep, score, worst, sum_of_errors, sum_of_values);
        }
        worst.average = sum_of_errors / std::max(sum_of_values, 1e-30);
        return worst;
    }

    fp8_case c;
    int row_of_v;
    buffer<e4m3> q, k, v;
    buffer<Out> out;
    buffer<float> lse2, sinks, q_scales, k_scales, v_scales, out_scales;
    buffer<int> starts_q, starts_k, used_k, block_table;
    buffer<e4m3> k_pages, v_pages;

  private:
    static constexpr bool per_head = !std::is_same_v<Scaling, imbrex::fp8_scaling::per_tensor>;

    std::size_t rows_of_pages() const { return std::size_t(pages()) * c.page_size; }
    std::size_t row_elements() const { return std::size_t(c.kv_heads) * c.head_dim; }
    void put_in_pages(imbrex::attention_fp8_problem<Out>& p) {
        for (int i = 0; i < sequences(); ++i) {
            for (int key = 0; key < key_rows_of(i).count; ++key) {
                const int page = block_table.values[i * max_blocks() + key / c.page_size];
                const std::size_t from = (std::size_t(i) * c.seqlen_k + key) * row_elements();
                const std::size_t to = (std::size_t(page) * c.page_size + key % c.page_size) * row_elements();
                std::copy_n(k.values.begin() + from, row_elements(), k_pages.values.begin() + to);
                std::copy_n(v.values.begin() + from, row_elements(), v_pages.values.begin() + to);
            }
        }
        using imbrex::batch_sequence_head;
        p.k = batch_sequence_head<const e4m3>(k_pages.upload(), pages(), c.page_size, c.kv_heads, c.head_dim);
        p.v = batch_sequence_head<const e4m3>(v_pages.upload(), pages(), c.page_size, c.kv_heads, c.head_dim);
        p.paged_kv = {block_table.upload(), max_blocks()};
    }

    int blocks_of(int length, int block) const { return block == 0 ? 1 : (length + block - 1) / block; }
    std::size_t scales_of(int heads, int length, int block) const {
        return per_head ? std::size_t(sequences()) * heads * blocks_of(length, block) : 1;
    }
    imbrex::descale_view view_of(const float* pointer, int heads, int length, int block) const {
        const int blocks = blocks_of(length, block);
        return {pointer, std::int64_t(heads) * blocks, blocks};
    }
    imbrex::descale_view kv_view_of(const float* pointer) const {
        if (by_page) return imbrex::descale_of_cache(imbrex::kv_scales_per_page(pointer, c.kv_heads));
        return view_of(pointer, c.kv_heads, c.seqlen_k, Scaling::kv_block);
    }
    double kv_scale_of(const buffer<float>& scales, int sequence, int head, int row) const {
        if (!by_page) return scale_of(scales, sequence, c.kv_heads, head, c.seqlen_k, Scaling::kv_block, row);
        return scales.values[block_table.values[sequence * max_blocks() + row / c.page_size] * c.kv_heads + head];
    }
    double scale_of(const buffer<float>& scales, int sequence, int heads, int head, int length, int block,
                    int row) const {
        if (!per_head) return scales.values[0];
        const int blocks = blocks_of(length, block);
        return scales.values[(std::size_t(sequence) * heads + head) * blocks + (block == 0 ? 0 : row / block)];
    }
    rows rows_of(int sequence, const std::vector<int>& starts, int length) const {
        if (starts.empty()) return {sequence, 0, length};
        return {0, starts[sequence], starts[sequence + 1] - starts[sequence]};
    }
    // The place in `v` of an element of [batch, sequence, head, head_dim].
    std::size_t v_place(std::size_t i) const {
        if (!k_major) return i;
        const std::size_t column = i % c.head_dim, head = i / c.head_dim % c.kv_heads;
        const std::size_t key = i / c.head_dim / c.kv_heads % c.seqlen_k;
        const std::size_t batch = i / c.head_dim / c.kv_heads / c.seqlen_k;
        return ((batch * c.kv_heads + head) * c.head_dim + column) * row_of_v + key;
    }

    template <class Keep, class Score>
    void compare_sequence(int i, const Keep& keep, const Score& score, errors& worst, double& sum_of_errors,
                          double& sum_of_values) const {
        const rows some_q = query_rows_of(i), some_k = key_rows_of(i);
        reference_sizes sizes{i,
                              c.heads,
                              c.kv_heads,
                              some_q.count,
                              some_k.count,
                              c.head_dim,
                              c.head_dim,
                              1 / std::sqrt(double(c.head_dim))};
        tensor_values q_rows, k_rows, v_rows, v_magnitudes;
        const auto place = [&](const rows& of, int length, int heads, int head, int row) {
            return ((std::size_t(of.member) * length + of.first + row) * heads + head) * c.head_dim;
        };
        for (int head = 0; head < c.heads; ++head) {
            for (int row = 0; row < some_q.count; ++row) {
                const double scale = scale_of(q_scales, i, c.heads, head, c.seqlen_q, Scaling::q_block, row);
                const std::size_t at = place(some_q, c.seqlen_q, c.heads, head, row);
                for (int d = 0; d < c.head_dim; ++d) q_rows.push_back(scale * float(q.values[at + d]));
            }
        }
        for (int head = 0; head < c.kv_heads; ++head) {
            for (int row = 0; row < some_k.count; ++row) {
                const double k_scale = kv_scale_of(k_scales, i, head, row);
                const double v_scale = kv_scale_of(v_scales, i, head, row);
                const std::size_t at = place(some_k, c.seqlen_k, c.kv_heads, head, row);
                for (int d = 0; d < c.head_dim; ++d) {
                    k_rows.push_back(k_scale * float(k.values[at + d]));
                    v_rows.push_back(v_scale * float(v.values[v_place(at + d)]));
                }
            }
        }
        tensor_values p, unused;
        for (int head = 0; head < c.heads; ++head) {
            for (int query = 0; query < some_q.count; ++query) {
                const auto slope = [](const imbrex::attention_extents&, int, int, double) { return 1.0; };
                double lse = probabilities_in_double(sizes, q_rows, k_rows, head, query, keep, score, slope, p, unused);
                const double top = p.empty() ? 0 : *std::max_element(p.begin(), p.end());
                double share = 1;  // of the softmax denominator that is not the sink
                if (c.sinks) {
                    const double sink = sinks.values[head], with_sink = std::fmax(lse, sink);
                    const double sum = std::exp(lse - with_sink) + std::exp(sink - with_sink);
                    share = std::exp(lse - with_sink) / sum;
                    lse = with_sink + std::log(sum);
                }
                const std::size_t at = place(some_q, c.seqlen_q, c.heads, head, query);
                std::vector<double> wanted(c.head_dim), allowed(c.head_dim);
                for (int key = 0; key < some_k.count; ++key) {
                    if (p[key] == 0) continue;
                    const double* const values = &v_rows[sizes.key_at(sizes.kv_head_of(head), key, c.head_dim)];
                    const double weight = share * p[key], error = share * std::max(p[key] / 16, top / (1 << 18));
                    for (int d = 0; d < c.head_dim; ++d) {
                        wanted[d] += weight * values[d];
                        allowed[d] += error * std::abs(values[d]);
                    }
                }
                const double out_scale = sizeof(Out) == 1 ? scale_of(out_scales, i, c.heads, head, 1, 0, 0) : 1;
                for (int d = 0; d < c.head_dim; ++d) {
                    constexpr double rounding = sizeof(Out) == 1                    ? 1.0 / 16
                                                : std::is_same_v<Out, imbrex::bf16> ? 1.0 / 256
                                                                                    : 1.0 / 2048;
                    constexpr double smallest = sizeof(Out) == 1 ? 1.0 / 1024 : 0;  // half of it
                    if (sizeof(Out) == 1) wanted[d] = std::clamp(wanted[d], -448 * out_scale, 448 * out_scale);
                    const double error = std::abs(wanted[d] - out_scale * float(out.values[at + d]));
                    sum_of_errors += error;
                    sum_of_values += std::abs(wanted[d]);
                    const double most =
                        allowed[d] + (rounding + 1e-4) * std::abs(wanted[d]) + smallest * out_scale + 1e-6;
                    worst.out = std::isnan(error) ? INFINITY : std::fmax(worst.out, error / most);
                }
                const float found =
                    lse2.values[(std::size_t(some_q.member) * c.heads + head) * c.seqlen_q + some_q.first + query];
                const double right = lse * 1.4426950408889634;
                const double error = right == found ? 0 : std::abs(right - found);
                worst.lse2 = std::isnan(error) ? INFINITY : std::fmax(worst.lse2, error);
            }
        }
    }
};

}  // namespace imbrex_test
