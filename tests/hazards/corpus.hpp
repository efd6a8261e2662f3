// The corpus of hazards: small kernels with one synchronisation or addressing bug each, and correct kernels with
// unusual synchronisation. A wrong kernel is a template over `Fixed`: the code under `if constexpr (Fixed)` (or the
// other branch) is the fix, everything else is the same. So a reader sees the bug, and the fixed variant must be silent
// under the checker and produces the expected results on a GPU.
//
//   // The wait for the copy is missing.
//   template <bool Fixed>
//   struct load_without_wait : hazard_kernel<4> { ... run(block, args, shared) ... };
//   HAZARD(barriers, load_without_wait, 1, read_before_landed)
//
// All kernels take the same arguments, so one program can run them all, on the host and on a GPU.
#pragma once

#include <imbrex/imbrex.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace imbrex_hazards {

using namespace imbrex;

// The tiles of the corpus: one row of a swizzle pattern wide.
using tile = shared_tile<float, 64, 32>;
using operand = shared_tile<bf16, 64, 64>;

inline constexpr int tile_rows = 8, tile_columns = 2;  // of each matrix, in tiles
inline constexpr int rows = tile_rows * tile::rows, columns = tile_columns * tile::columns;
inline constexpr int flag_count = 64;

// in, a, b hold random values, out and flags zeros. `work` also holds zeros, for data that goes from one block or kernel
// to another; what it holds in the end does not matter.
struct corpus_arguments {
    matrix_view<const float> in;  // 512 x 64
    matrix_view<float> out;       // 512 x 64
    matrix_view<float> work;      // 512 x 64
    matrix_view<const bf16> a;    // 512 x 64: eight operands
    tma_tensor<tile, 2> in_tensor;
    tma_tensor<tile, 2> out_tensor;   // for stores
    tma_tensor<tile, 2> work_tensor;  // for loads and stores
    tma_tensor<operand, 2> a_tensor;
    int* flags;  // 64 of them
};

// The traits of a corpus kernel. `Cluster`: blocks of a thread block cluster.
template <int Warps, int Cluster = 1>
struct hazard_kernel {
    static constexpr int warps = Warps;
    static constexpr int cluster = Cluster;
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    using arguments = corpus_arguments;
};

template <int Warps, bool Cooperative = true>
struct cooperative_kernel : hazard_kernel<Warps> {
    static constexpr bool cooperative = Cooperative;
};

template <int Warps>
struct pdl_kernel : hazard_kernel<Warps> {
    static constexpr bool uses_pdl = true;
};

// The memory behind the arguments, in one world.
class corpus_memory {
  public:
    explicit corpus_memory(world where)
        : in_(where, rows * columns),
          out_(where, rows * columns),
          work_(where, rows * columns),
          a_(where, rows * columns),
          flags_(where, flag_count) {
        std::uint32_t state = 12345;
        for (int i = 0; i < rows * columns; ++i) {
            state = state * 1664525u + 1013904223u;
            in_.values[i] = static_cast<float>(static_cast<int>(state >> 24) - 128) / 16.0f;
            a_.values[i] = convert<bf16>(static_cast<float>(static_cast<int>(state >> 20 & 15) - 8) / 4.0f);
        }
    }

    // Resets everything and returns the arguments of a launch.
    corpus_arguments upload() {
        for (float& one : out_.values) one = 0;
        for (float& one : work_.values) one = 0;
        for (int& one : flags_.values) one = 0;
        const auto in = matrix<const float>(in_.upload(), rows, columns);
        const auto out = matrix(out_.upload(), rows, columns);
        const auto work = matrix(work_.upload(), rows, columns);
        const auto a = matrix<const bf16>(a_.upload(), rows, columns);
        return {in,
                out,
                work,
                a,
                make_tma_tensor<tile>(in),
                make_tma_tensor<tile>(out, tma_use::store),
                make_tma_tensor<tile>(work, tma_use::store),
                make_tma_tensor<operand>(a),
                flags_.upload()};
    }
    // `work` has no contents before the first kernel.
    memory_range uninitialised() const { return {work_.values.data(), work_.values.size() * sizeof(float)}; }
    const std::vector<float>& result() {
        out_.download();
        return out_.values;
    }

  private:
    world_array<float> in_, out_, work_;
    world_array<bf16> a_;
    world_array<int> flags_;
};

// One kernel of the corpus, or a sequence of two kernels that overlap by PDL.
struct corpus_case {
    std::string family;
    std::string name;
    std::vector<hazard_kind> expected;  // any of them; none: a correct kernel, which must be silent
    const char* file;
    // Runs the wrong or the fixed variant: checked on the host, returning the hazard, or on the device.
    std::optional<hazard> (*check)(bool fixed, host::check_options options);
    void (*launch)(bool fixed, corpus_memory& memory);
    bool hangs;  // a kernel that does not end on a device
};

inline std::vector<corpus_case>& corpus() {
    static std::vector<corpus_case> all;
    return all;
}

template <class Kernel>
std::optional<hazard> check_one([[maybe_unused]] int blocks, [[maybe_unused]] host::check_options options) {
#if !defined(__CUDACC__)
    corpus_memory memory(world::host_checked);
    corpus_arguments arguments = memory.upload();
    options.uninitialised = {memory.uninitialised()};
    return host::check<Kernel>({blocks}, arguments, options, [&] { arguments = memory.upload(); });
#else
    return std::nullopt;
#endif
}
template <class Kernel>
void launch_one([[maybe_unused]] int blocks, [[maybe_unused]] corpus_memory& memory) {
#if defined(__CUDACC__)
    device::launch<Kernel>({blocks}, memory.upload());
#endif
}

// Two kernels in one stream, both with PDL: `Pair::first` and `Pair::second`.
template <class Pair>
std::optional<hazard> check_pair([[maybe_unused]] int blocks, [[maybe_unused]] host::check_options options) {
#if !defined(__CUDACC__)
    corpus_memory memory(world::host_checked);
    const auto launch_both = [&] {
        const corpus_arguments arguments = memory.upload();
        launch<typename Pair::first>(world::host_checked, {blocks}, arguments);
        launch<typename Pair::second>(world::host_checked, {blocks}, arguments);
    };
    options.uninitialised = {memory.uninitialised()};
    return host::check_launches(launch_both, options);
#else
    return std::nullopt;
#endif
}
template <class Pair>
void launch_pair([[maybe_unused]] int blocks, [[maybe_unused]] corpus_memory& memory) {
#if defined(__CUDACC__)
    const corpus_arguments arguments = memory.upload();
    device::launch<typename Pair::first>({blocks}, arguments);
    device::launch<typename Pair::second>({blocks}, arguments);
#endif
}

struct add_to_corpus {
    explicit add_to_corpus(corpus_case one) { corpus().push_back(std::move(one)); }
};

}  // namespace imbrex_hazards

// Adds a wrong kernel (a template over bool Fixed) with its grid and the hazard kinds that a report may name.
#define HAZARD(family, name, blocks, ...) IMBREX_CORPUS(family, name, check_one, launch_one, blocks, false, __VA_ARGS__)
// The same for a kernel that never ends on a device.
#define HAZARD_THAT_HANGS(family, name, blocks, ...) \
    IMBREX_CORPUS(family, name, check_one, launch_one, blocks, true, __VA_ARGS__)
// The same for two kernels, name<Fixed>::first and name<Fixed>::second, that overlap by PDL.
#define HAZARD_OF_TWO_KERNELS(family, name, blocks, ...) \
    IMBREX_CORPUS(family, name, check_pair, launch_pair, blocks, false, __VA_ARGS__)

// The quick scope of the tests does not compile the fixed variants, which are half of the corpus.
#if defined(IMBREX_CORPUS_WITHOUT_FIXED)
#define IMBREX_FIXED(...) std::optional<::imbrex::hazard>()
#else
#define IMBREX_FIXED(...) ::imbrex_hazards::__VA_ARGS__
#endif

#define IMBREX_CORPUS(family, name, checked, launched, blocks, never_ends, ...)      \
    static const ::imbrex_hazards::add_to_corpus add_##name(                         \
        {#family, #name,                                                             \
         [] {                                                                        \
             using enum ::imbrex::hazard_kind;                                       \
             return std::vector{__VA_ARGS__};                                        \
         }(),                                                                        \
         __FILE__,                                                                   \
         [](bool fixed, ::imbrex::host::check_options options) {                     \
             return fixed ? IMBREX_FIXED(checked<name<true>>(blocks, options))       \
                          : ::imbrex_hazards::checked<name<false>>(blocks, options); \
         },                                                                          \
         [](bool fixed, ::imbrex_hazards::corpus_memory& memory) {                   \
             fixed ? ::imbrex_hazards::launched<name<true>>(blocks, memory)          \
                   : ::imbrex_hazards::launched<name<false>>(blocks, memory);        \
         },                                                                          \
         never_ends});

// Adds a correct kernel (not a template), which must be silent.
#define CORRECT(family, name, blocks) IMBREX_CORRECT(family, name, check_one, launch_one, blocks)
#define CORRECT_TWO_KERNELS(family, name, blocks) IMBREX_CORRECT(family, name, check_pair, launch_pair, blocks)

#define IMBREX_CORRECT(family, name, checked, launched, blocks)                                                        \
    static const ::imbrex_hazards::add_to_corpus add_##name(                                                           \
        {#family,                                                                                                      \
         #name,                                                                                                        \
         {},                                                                                                           \
         __FILE__,                                                                                                     \
         [](bool, ::imbrex::host::check_options options) { return ::imbrex_hazards::checked<name>(blocks, options); }, \
         [](bool, ::imbrex_hazards::corpus_memory& memory) { ::imbrex_hazards::launched<name>(blocks, memory); },      \
         false});
