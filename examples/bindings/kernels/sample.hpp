// sample_tokens behind a plain function (../variant.hpp), after a launch that writes the sample_options of each row.
#pragma once

#include "../calls/sample.hpp"
#include "../variant.hpp"

#include <imbrex/core/splitmix64.hpp>
#include <imbrex/kernels/sample.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/memory/read_element.hpp>

#include <cstdint>
#include <optional>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

// per_row as the kernel takes it.
template <class T>
struct row_numbers {
    T all;
    const T* each;

    IMBREX_FN T at(int row) const { return each == nullptr ? all : read_element(each, row); }
};

// A warp writes the options of a row.
struct write_sample_options {
    static constexpr int warps = 8;

    struct arguments {
        row_numbers<float> temperature;
        row_numbers<int> top_k;
        row_numbers<float> top_p, min_p;
        row_numbers<std::int64_t> seed;
        row_numbers<int> position;
        sample_options* options;
        int rows;

        // Rows that share a seed have draws of their own.
        IMBREX_FN std::uint64_t seed_of(int row) const {
            const auto given = static_cast<std::uint64_t>(seed.at(row));
            return seed.each != nullptr ? given : given ^ static_cast<std::uint64_t>(row) * splitmix64_step;
        }
    };

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        block.each_warp([&](warp& self) {
            const int row = block.index().x * warps + self.index();
            if (row >= args.rows) return;
            sample_options& to = args.options[row];
            put(self, &to.temperature, args.temperature.at(row));
            put(self, &to.top_k, args.top_k.at(row));
            put(self, &to.top_p, args.top_p.at(row));
            put(self, &to.min_p, args.min_p.at(row));
            put(self, &to.repetition_penalty, 1.0f);
            put(self, &to.presence_penalty, 0.0f);
            put(self, &to.frequency_penalty, 0.0f);
            put(self, &to.position, args.position.at(row));
            put(self, &to.seed, args.seed_of(row));
        });
    }
};

template <class T>
struct sample {
    using call = sample_call;

    static void run(const execution& on, const call& c) {
        problem p{.tokens = {.logits = rows_of<const T>(c.logits, "logits")}};
        const int rows = static_cast<int>(p.tokens.rows());
        if (rows == 0) return;
        auto* const options = static_cast<sample_options*>(on.allocate(rows * sizeof(sample_options)));
        p.options = {.temperature = numbers_of(c.temperature, "temperature", rows),
                     .top_k = numbers_of(c.top_k, "top_k", rows),
                     .top_p = numbers_of(c.top_p, "top_p", rows),
                     .min_p = numbers_of(c.min_p, "min_p", rows),
                     .seed = numbers_of(c.seed, "seed", rows),
                     .position = numbers_of(c.position, "position", rows),
                     .options = options,
                     .rows = rows};
        p.tokens.options = options;
        p.tokens.tokens = elements_of<int>(c.tokens, "tokens", rows);
        p.tokens.logprobs = elements_of<float>(c.logprobs, "logprobs", rows);
        if (c.top_logprobs.given()) {
            p.tokens.num_top_logprobs = static_cast<int>(c.top_logprobs.sizes[1]);
            p.tokens.top_logprobs = elements_of<float>(c.top_logprobs, "top_logprobs");
            p.tokens.top_logprobs_tokens =
                elements_of<int>(c.top_logprobs_tokens, "top_logprobs_tokens", c.top_logprobs.count());
        }
        launch_or_check<launcher>(on, p);
    }

  private:
    struct problem {
        write_sample_options::arguments options = {};
        sample_problem<T> tokens;
    };
    struct launcher {
        static void launch(world where, const problem& p, void* stream) {
            const int blocks = (p.options.rows - 1) / write_sample_options::warps + 1;
            imbrex::launch<write_sample_options>(where, {blocks}, p.options, stream);
            sample_tokens<T>::launch(where, p.tokens, stream);
        }
        static std::optional<hazard> check(const problem& p, const host::check_options& options) {
            return host::check_launches([&] { launch(world::host_checked, p, nullptr); }, options);
        }
    };

    template <class Number>
    static row_numbers<Number> numbers_of(const per_row<Number>& given, const char* name, int rows) {
        return {given.all, elements_of<const Number>(given.each, name, rows)};
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
