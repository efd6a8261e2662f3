// The length of a decode session's sequence, counted in the memory of the kernel's world. Append and decode kernels
// read it there, and a kernel of one warp updates it between them. No value comes from the host, so a replayed CUDA
// graph continues at the end of the sequence.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/ops/grid/pdl.hpp>

namespace imbrex {

struct session_length {
    int seqused_k;
    // End of the tokens that are being appended. If they do not fit, it lies past all pages, and paged_append skips
    // them.
    int appended;
};

// Discards all but the first `keep` tokens, then reserves `tokens` new ones if all of them fit.
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
