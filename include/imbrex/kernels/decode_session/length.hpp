// How long a growing sequence is, counted in the memory of the kernel's world. Kernels that append and attend read it there, and a
// kernel of one warp counts on between them: nothing comes from the host, so that a graph with these kernels goes on where the
// sequence ends each time it is replayed.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scalar.hpp>
#include <imbrex/ops/grid/pdl.hpp>

namespace imbrex {

struct session_length {
    int seqused_k;  // keys that the sequence has
    int appended;  // where the new tokens end that are being appended. Those that have no room end behind all pages, which leaves
                   // them out
};

// Forgets all but the first `keep` tokens, and makes room for some new ones, if there is any for all of them.
struct update_session_length {
    static constexpr int warps = 1;
    static constexpr bool uses_pdl = true;

    struct arguments {
        session_length* length;
        int keep;
        int tokens;
        int capacity;
    };

    template <class Block, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, SharedMemory&) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const int seqlen = args.length->seqused_k;
        const int kept = seqlen < args.keep ? seqlen : args.keep;
        const bool fits = args.tokens <= args.capacity - kept;
        hw::put_global(block, &args.length->seqused_k, fits ? kept + args.tokens : kept, source::current());
        hw::put_global(block, &args.length->appended, (fits ? kept : args.capacity) + args.tokens, source::current());
    }
};

}  // namespace imbrex
