// Runs batches: stages the inputs, launches the model and samples. A decode step launches the same kernels each time;
// from the second time on they are replayed as a CUDA graph (imbrex/hw/world_stream.hpp).
//
// Two steps may be in flight, in one stream. Their host buffers take turns; the device buffers are the same, since copies
// to and from them are in stream order:
//
//     stream   | inputs 1 up | step 1 | tokens 1 down | inputs 2 up | tokens 1 into inputs 2, step 2 | tokens 2 down
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/world_event.hpp>
#include <imbrex/hw/world_stream.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/model/hidden_state_pooling.hpp"
#include "engine/model/input_tokens.hpp"
#include "engine/model/model.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/sampler.hpp"
#include "engine/model/step_inputs.hpp"

namespace imbrex::engine {
inline namespace IMBREX_WORLDS {

template <class Kernels>
class model_runner final : public runner {
  public:
    model_runner(const model_files& files, const runner_options& options, const loading_progress& progress)
        : options_(options),
          stream_(options.where),
          model_(files, options, progress, stream_.get()),
          staging_(options.where, options.max_num_batched_tokens, options.max_num_seqs,
                   max_blocks_per_seq(files.config, options), model_.cache_groups()),
          sampler_(options.where, files.config.vocab_size, options.max_samples()),
          pooling_(options.where, files.config.hidden_size, options.max_num_batched_tokens, options.max_num_seqs),
          times_{step_times(options.where), step_times(options.where), step_times(options.where)} {
        if (options.where != world::device) owners_ = files.weights.owners();
    }

    void launch(const batch& work) override {
        require(in_flight_.size() < 2, "launch: two batches are in flight; call wait first");
        try {
            step now{.work = &work, .number = launches_};
            enqueue(now);
            in_flight_.push_back(std::move(now));
            ++launches_;
        } catch (...) {
            wait_for_stream_quietly();  // the next launch writes the same host buffer
            throw;
        }
    }

    std::vector<int> wait() override {
        require(!in_flight_.empty(), "wait: no batch is in flight; call launch first");
        step ended = std::move(in_flight_.front());
        in_flight_.pop_front();
        times_of(ended.number).end.wait();
        idle_seconds_ = idle_before(ended);
        if (ended.work->entries.empty()) return {};
        if (options_.where == world::device) take_results(ended);
        sampled_ = std::move(ended.sampled);
        std::vector<int> tokens;
        for (const sampled_token& one : sampled_) tokens.push_back(one.token);
        return tokens;
    }

    std::optional<double> idle_seconds() const override { return idle_seconds_; }
    const std::vector<sampled_token>& last_sampled() const override { return sampled_; }

    std::vector<float> last_logits() const override {
        if (logits_ == nullptr) return {};
        return logits_->read(static_cast<std::int64_t>(sampled_.size()) * model_.config().vocab_size, stream_.get());
    }

    std::span<std::byte> slot(int group, int number) override { return model_.kv_cache().slot(group, number); }

  private:
    // A batch in flight.
    struct step {
        const batch* work = nullptr;
        std::int64_t number = 0;
        sampler::result_layout results{};
        hidden_state_pooling::sums pooled{};
        std::vector<sampled_token> sampled{};  // once it has ended
    };
    struct step_times {
        explicit step_times(world where) : begin(where, event_timing::on), end(where, event_timing::on) {}
        world_event begin, end;
    };

    // Those of a step, of the one before it and of the one behind it are needed at the same time.
    step_times& times_of(std::int64_t number) { return times_[static_cast<std::size_t>(number % 3)]; }
    std::optional<double> idle_before(const step& one) {
        if (options_.where != world::device || one.number == 0) return std::nullopt;
        return times_of(one.number).begin.seconds_since(times_of(one.number - 1).end);
    }

    void enqueue(step& now) {
        const batch& work = *now.work;
        model_.kv_cache().move(work, stream_.get());
        if (work.entries.empty()) {
            times_of(now.number).begin.record(stream_.get());
        } else {
            const int host_buffer = static_cast<int>(now.number % 2);
            sampler_.stage(work, host_buffer);
            now.results = sampler_.staged();
            const int entries = static_cast<int>(work.entries.size()), generated = work.generated();
            require(!options_.batch_invariant || generated == 0 || generated == entries, "batch: ", generated,
                    " of its ", entries,
                    " entries have tokens that were generated; in an invariant runner's all have, or none");
            inputs_ = staging_.stage(pack_batch(work, options_.block_size, model_.cache_groups()), host_buffer);
            inputs_.is_decode = generated == entries;
            inputs_.pools = hidden_state_pooling::is_needed(work);
            staging_.copy_to_device(stream_.get());
            sampler_.copy_to_device(stream_.get());
            times_of(now.number).begin.record(stream_.get());
            launch_inputs();
            sampler_.copy_to_host(stream_.get());
            if (inputs_.pools) now.pooled = pooling_.launch(work, host_buffer, model_.hidden_states(), stream_.get());
        }
        times_of(now.number).end.record(stream_.get());
        if (options_.where == world::device || work.entries.empty()) return;
        require_finite_logits(inputs_);
        take_results(now);  // the next step writes their memory
    }

    void take_results(step& ended) {
        ended.sampled = sampler_.results(*ended.work, ended.results);
        pooling_.finish(ended.pooled, *ended.work, ended.sampled);
    }

    void wait_for_stream_quietly() {
        try {
            stream_.wait();
        } catch (...) {  // the first error is the one to report
        }
    }

    void launch_inputs() {
        // Penalties, bias and logprobs change the sampling arguments between steps; sampling then stays outside the
        // CUDA graph.
        const bool graph_samples = sampler_.graph_key().first != nullptr;
        const auto launches = [&] {
            take_input_tokens(options_.where, inputs_, sampler_.tokens(), stream_.get());
            logits_ = &model_.forward(inputs_);
            if (graph_samples) sampler_.launch(logits_->data(), stream_.get());
        };
        const bool decodes = inputs_.tokens == inputs_.samples && inputs_.samples <= max_graph_rows &&
                             (inputs_.is_decode || !options_.batch_invariant);
        const graph_key key{inputs_.sequences,
                            inputs_.tokens,
                            inputs_.has_few_tokens,
                            inputs_.max_blocks_per_seq,
                            inputs_.input_rows != nullptr,
                            sampler_.graph_key()};
        if (decodes && warmed_up_.contains(key)) {
            if (graphs_.size() >= max_graphs && !graphs_.contains(key)) {
                stream_.wait();  // the step before may replay one
                graphs_.clear();
            }
            graphs_[key].replay(stream_, launches);
        } else {
            launches();
            if (decodes) warmed_up_.insert(key);
        }
        if (!graph_samples) sampler_.launch(logits_->data(), stream_.get());
    }

    // A broken file or an overflow. Text drawn from such logits would be noise.
    void require_finite_logits(const step_inputs& now) {
        if (now.samples == 0) return;
        const float* const all = logits_->data();
        const auto count = static_cast<std::size_t>(now.samples) * static_cast<std::size_t>(model_.config().vocab_size);
        bool finite = true;
        for (std::size_t i = 0; i < count; ++i) finite &= std::fabs(all[i]) <= std::numeric_limits<float>::max();
        if (finite) return;
        require(false, "the logits have a NaN or an infinity; the first part of the model with one is ",
                model_.first_part_with_nan(now));
    }

    // Steps with equal keys have the same launches and the same buffer addresses.
    // Sequences, tokens, has_few_tokens, max_blocks_per_seq, whether the step before has input tokens, the sampler's graph
    // key.
    using graph_key = std::tuple<int, int, bool, int, bool, sampler::graph_key_type>;

    // With more rows the launch overhead is negligible.
    static constexpr int max_graph_rows = 64;
    // Numbers of draft tokens vary: with many sequences there are many keys.
    static constexpr std::size_t max_graphs = 512;

    runner_options options_;
    std::vector<std::shared_ptr<const void>> owners_;  // of the weights, which a CPU reads where they lie
    world_stream stream_;
    model<Kernels> model_;
    step_staging staging_;
    sampler sampler_;
    hidden_state_pooling pooling_;
    std::array<step_times, 3> times_;
    std::deque<step> in_flight_;
    std::int64_t launches_ = 0;
    std::optional<double> idle_seconds_;
    step_inputs inputs_;  // of the last launch, as are the logits
    const world_buffer<float>* logits_ = nullptr;
    std::set<graph_key> warmed_up_;  // ran once without capture: lazy allocations must not be captured
    std::map<graph_key, cuda_graph> graphs_;
    std::vector<sampled_token> sampled_;
};

}  // namespace IMBREX_WORLDS
}  // namespace imbrex::engine
