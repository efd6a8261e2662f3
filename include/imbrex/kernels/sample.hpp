// Fused token sampling: one kernel launch turns rows of logits into token ids. It applies token masks (constrained
// decoding), logit bias, the repetition penalty, frequency and presence penalties, temperature, top-k, top-p (nucleus)
// and min-p, draws by Gumbel-max, and optionally returns logprobs.
//
//     sample_tokens<float>::launch(world::device, {.logits = as_rows<const float>(logits, rows, vocabulary),
//                                                  .options = options,            // one sample_options per row
//                                                  .tokens = tokens}, stream);
//
// Steps for each row, in this order:
//
//   token mask            makes the logits of all tokens but the allowed ones -infinity
//   bias                  added to the logits of selected tokens
//   repetition penalty    for tokens in the prompt or generated: divides positive logits, multiplies others
//   frequency penalty     subtracted once for each time the token was generated
//   presence penalty      subtracted once if the token was generated
//   temperature           divides the logits; 0 is greedy: the argmax (lowest token of equals), without the steps below
//   top-k                 keeps the k largest logits
//   top-p                 of those, keeps the fewest most likely tokens whose probability reaches top_p of their sum
//   min-p                 of those, keeps tokens with at least min_p times the probability of the most likely token
//   draw                  Gumbel-max over the tokens kept; depends on the seed and the position only
//
// Where a threshold cuts through equal logits, the lowest token ids are kept. logprobs are the log-softmax of the input
// logits, before bias, penalties and temperature, as vLLM and llama.cpp report by default. With a token mask it is the
// log-softmax over the allowed tokens: the others have -infinity and are not among the top logprobs.
//
// The draw hashes (seed, position, token) into one random number per token. The batch, the other options and the number
// of warps or blocks do not change it. Probabilities are rounded to 2^-40 of the most likely token's and summed exactly
// as integers.
//
// NaN counts as -infinity, +infinity as the largest float. A token with -infinity is never drawn; if there is no other
// token, as with a mask that allows none, the result is 0 and its logprob -infinity. Logits are float, bf16 or fp16. Rows
// with a multiple of 8 columns that start at 16-byte boundaries use vectorised loads. On Hopper, a cluster of blocks shares
// each row when there are few long rows (docs/sampling.md).
//
// All arrays are in the memory of the kernel's world. A launch allocates nothing and does not synchronise. Invalid
// arguments throw `imbrex::error` before launch. Options are checked where the host can read them; on the device,
// invalid options select an arbitrary token of the vocabulary.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/kernels/sample/kernel.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>

namespace imbrex {

template <class T>
struct sample_problem {
    static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, fp16> || std::is_same_v<T, float>,
                  "imbrex: logits are bf16, fp16 or float");

    row_view<const T> logits = {};
    const sample_options* options = nullptr;  // one per row
    // Tokens with a bias or a penalty. Row i owns adjustments[adjustment_offsets[i]] up to, not including,
    // adjustments[adjustment_offsets[i + 1]] (CSR), in ascending token order, no token twice. Null if no row has any.
    const logit_adjustment* adjustments = nullptr;
    const int* adjustment_offsets = nullptr;  // rows + 1
    // Token masks of ceil(vocabulary / 32) words each: bit t % 32 of word t / 32 is set if token t may be drawn. Row i has
    // mask token_mask_rows[i], or none if that is -1; rows may share one. Null if no row has any.
    const std::uint32_t* token_masks = nullptr;
    const int* token_mask_rows = nullptr;  // one per row
    int num_token_masks = 0;
    int* tokens = nullptr;               // one per row
    float* logprobs = nullptr;           // of those tokens; optional
    int num_top_logprobs = 0;            // number of most likely tokens to return, most likely first
    int* top_logprobs_tokens = nullptr;  // [rows, num_top_logprobs]; padded with -1
    float* top_logprobs = nullptr;
    sample_threshold* thresholds = nullptr;  // the tokens kept, per row; optional

    std::int64_t rows() const { return logits.extents[0] * logits.extents[1]; }
};

namespace detail {

inline void require_sample_options(const sample_options& one, std::int64_t row) {
    constexpr float huge = std::numeric_limits<float>::max();
    require(one.temperature >= 0 && one.temperature <= huge, "options[", row, "].temperature: ", one.temperature,
            "; must be 0 (greedy) or a positive number");
    require(one.top_k >= 0, "options[", row, "].top_k: ", one.top_k, "; must be 0 (all tokens) or more");
    require(one.top_p > 0 && one.top_p <= 1, "options[", row, "].top_p: ", one.top_p,
            "; must be greater than 0 and at most 1");
    require(one.min_p >= 0 && one.min_p <= 1, "options[", row, "].min_p: ", one.min_p, "; must be from 0 to 1");
    require(one.repetition_penalty > 0 && one.repetition_penalty <= huge, "options[", row,
            "].repetition_penalty: ", one.repetition_penalty, "; must be greater than 0 (1: none)");
    require(std::isfinite(one.presence_penalty), "options[", row, "].presence_penalty: ", one.presence_penalty,
            "; must be finite");
    require(std::isfinite(one.frequency_penalty), "options[", row, "].frequency_penalty: ", one.frequency_penalty,
            "; must be finite");
    require(one.position >= 0, "options[", row, "].position: ", one.position, "; must be 0 or more");
}

template <class T>
void require_adjustments(const sample_problem<T>& p) {
    for (std::int64_t row = 0; row < p.rows(); ++row) {
        const int first = p.adjustment_offsets[row], end = p.adjustment_offsets[row + 1];
        require(first >= 0 && end >= first, "adjustment_offsets[", row, "], adjustment_offsets[", row + 1, "]: ", first,
                ", ", end, "; they must be nonnegative and nondecreasing");
        for (int i = first; i < end; ++i) {
            const logit_adjustment& one = p.adjustments[i];
            require(one.token >= 0 && one.token < p.logits.extents[2], "adjustments[", i, "].token: ", one.token,
                    "; the vocabulary has ", p.logits.extents[2], " tokens");
            require(i == first || p.adjustments[i - 1].token < one.token, "adjustments[", i, "].token: ", one.token,
                    "; must be greater than the token before it, ", i == first ? -1 : p.adjustments[i - 1].token);
            require(one.generated >= 0, "adjustments[", i, "].generated: ", one.generated, "; must be 0 or more");
            require(one.bias <= std::numeric_limits<float>::max(), "adjustments[", i, "].bias: ", one.bias,
                    "; must be finite or -infinity");
        }
    }
}

}  // namespace detail

template <class T>
void require_sample(world where, const sample_problem<T>& p) {
    using namespace detail;
    require_rows(p.logits, "logits");
    if (p.rows() == 0) return;
    require(p.logits.extents[2] >= 1 && p.logits.extents[2] <= max_vocab_size,
            "logits.extents[2]: ", p.logits.extents[2], "; the vocabulary size must be from 1 to ", max_vocab_size);
    require(p.options != nullptr, "options: null; ", p.rows(), " sample_options are needed");
    require(p.tokens != nullptr, "tokens: null; ", p.rows(), " elements are needed, one per row");
    require(p.num_top_logprobs >= 0 && p.num_top_logprobs <= max_top_logprobs, "num_top_logprobs: ", p.num_top_logprobs,
            "; must be from 0 to ", max_top_logprobs);
    require(p.num_top_logprobs == 0 || (p.top_logprobs_tokens != nullptr && p.top_logprobs != nullptr),
            "top_logprobs_tokens, top_logprobs: null; ", p.rows(), " x ", p.num_top_logprobs, " of each are needed");
    require((p.adjustments == nullptr) == (p.adjustment_offsets == nullptr),
            "adjustments, adjustment_offsets: one of them is null; both or neither must be given");
    require((p.token_masks == nullptr) == (p.token_mask_rows == nullptr),
            "token_masks, token_mask_rows: one of them is null; both or neither must be given");
    if (where == world::device) return;
    for (std::int64_t row = 0; row < p.rows(); ++row) require_sample_options(p.options[row], row);
    for (std::int64_t row = 0; p.token_mask_rows != nullptr && row < p.rows(); ++row) {
        require(p.token_mask_rows[row] >= -1 && p.token_mask_rows[row] < p.num_token_masks, "token_mask_rows[", row,
                "]: ", p.token_mask_rows[row], "; must be -1 (no mask) or below num_token_masks, ", p.num_token_masks);
    }
    if (p.adjustments != nullptr) require_adjustments(p);
}

inline namespace IMBREX_WORLDS {

template <class T>
class sample_tokens {
  public:
    using problem = sample_problem<T>;
    using arguments = sample_arguments<T>;
    template <row_alignment Known, int ClusterSize = 1, bool Masked = false>
    using kernel = sample_kernel<T, Known, ClusterSize, Masked>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, void* stream = nullptr) {
        require_sample(where, p);
        if (p.rows() == 0) return;
        const arguments args = arguments_of(p);
        if (!detail::can_vectorise(p.logits)) {
            launch_by_masks<row_alignment::unaligned>(where, args, stream);
        } else if (is_cooperative(where, args)) {
            launch_on_device<cluster_kernel>(cluster_kernel::grid_of(args), args, stream);
        } else {
            launch_by_masks<row_alignment::aligned>(where, args, stream);
        }
    }

    static arguments arguments_of(const problem& p) {
        return {.logits = row_accessor_of(p.logits),
                .options = p.options,
                .adjustments = p.adjustments,
                .adjustment_offsets = p.adjustment_offsets,
                .token_masks = p.token_masks,
                .token_mask_rows = p.token_mask_rows,
                .tokens = p.tokens,
                .logprobs = p.logprobs,
                .top_logprobs_tokens = p.top_logprobs_tokens,
                .top_logprobs = p.top_logprobs,
                .thresholds = p.thresholds,
                .rows = static_cast<int>(p.rows()),
                .vocab_size = p.logits.columns(),
                .num_top_logprobs = p.num_top_logprobs};
    }

  private:
    using cluster_kernel = kernel<row_alignment::aligned, 8>;
    static constexpr int min_cluster_vocab_size = 65536;  // for shorter rows one block is fast enough

    // One cluster per row pays off while all clusters are resident at once. In the host world one row per core is
    // faster.
    static bool is_cooperative(world where, const arguments& args) {
        return where == world::device && cluster_kernel::can_do(args) && args.vocab_size >= min_cluster_vocab_size &&
               args.rows <= imbrex::num_sms(where) / cluster_kernel::cluster_size && can_run<cluster_kernel>(where);
    }

    template <row_alignment Known>
    static void launch_by_masks(world where, const arguments& args, void* stream) {
        if (args.token_masks == nullptr) {
            launch_kernel<kernel<Known>>(where, args, stream);
        } else {
            launch_kernel<kernel<Known, 1, true>>(where, args, stream);
        }
    }
    template <class Kernel>
    static void launch_kernel(world where, const arguments& args, void* stream) {
        imbrex::launch<Kernel>(where, Kernel::grid_of(args), args, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
