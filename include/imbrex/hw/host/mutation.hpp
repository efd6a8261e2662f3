// Mutations: mutation testing of the checker and of the tests of a kernel. Every synchronisation of a kernel passes a
// *site*: its kind, source line and role. A launch can list the sites that it passes, and can mutate one of them: skip
// the synchronisation or alter it. A test thus breaks each synchronisation of a kernel in turn, without changing its
// source, and requires that the checker detects each mutation.
#pragma once

#include <string>
#include <vector>

namespace imbrex {

enum class synchronisation {
    barrier_init,
    barrier_init_fence,
    barrier_arrive,
    barrier_expect,
    barrier_wait,
    named_sync,
    named_arrive,
    scope_sync,
    cluster_sync,
    cluster_fence,
    async_fence,
    copy_commit,
    copy_wait,
    store_commit,
    store_wait,
    mma_commit,
    mma_wait,
    store_write,  // the part of a store wait that waits for writes to global memory
    atomic_release,
    atomic_acquire,
    atomic_scope,
    pdl_wait,
    pdl_launch,
};

inline const char* name_of(synchronisation kind) {
    switch (kind) {
        case synchronisation::barrier_init:
            return "barrier init";
        case synchronisation::barrier_init_fence:
            return "barrier init fence";
        case synchronisation::barrier_arrive:
            return "barrier arrive";
        case synchronisation::barrier_expect:
            return "barrier expect";
        case synchronisation::barrier_wait:
            return "barrier wait";
        case synchronisation::named_sync:
            return "named sync";
        case synchronisation::named_arrive:
            return "named arrive";
        case synchronisation::scope_sync:
            return "scope sync";
        case synchronisation::cluster_sync:
            return "cluster sync";
        case synchronisation::cluster_fence:
            return "cluster fence";
        case synchronisation::async_fence:
            return "async fence";
        case synchronisation::copy_commit:
            return "copy commit";
        case synchronisation::copy_wait:
            return "copy wait";
        case synchronisation::store_commit:
            return "store commit";
        case synchronisation::store_wait:
            return "store wait";
        case synchronisation::mma_commit:
            return "mma commit";
        case synchronisation::mma_wait:
            return "mma wait";
        case synchronisation::store_write:
            return "wait for written stores";
        case synchronisation::atomic_release:
            return "atomic release";
        case synchronisation::atomic_acquire:
            return "atomic acquire";
        case synchronisation::atomic_scope:
            return "scope of an atomic operation";
        case synchronisation::pdl_wait:
            return "PDL wait";
        case synchronisation::pdl_launch:
            return "PDL launch of dependents";
    }
    return "unknown";
}

// What a mutation does to a synchronisation.
enum class mutation_operator {
    none,
    skip,            // leave it out
    twice,           // execute it twice
    other_phase,     // wait for the other phase
    fewer_bytes,     // expect 16 bytes less
    more_bytes,      // expect 16 bytes more
    fewer_warps,     // count one warp less
    more_warps,      // count one warp more
    one_group_less,  // leave one more group in flight than asked
    reads_only,      // wait_stores_read in place of wait_stores
    relaxed,         // a relaxed operation in place of a release or an acquire
    block_scope,     // memory_scope::block
    at_start         // at the start of the kernel
};

inline const char* name_of(mutation_operator how) {
    switch (how) {
        case mutation_operator::none:
            return "as written";
        case mutation_operator::skip:
            return "left out";
        case mutation_operator::twice:
            return "done twice";
        case mutation_operator::other_phase:
            return "other phase";
        case mutation_operator::fewer_bytes:
            return "16 bytes less";
        case mutation_operator::more_bytes:
            return "16 bytes more";
        case mutation_operator::fewer_warps:
            return "one warp less";
        case mutation_operator::more_warps:
            return "one warp more";
        case mutation_operator::one_group_less:
            return "one group less";
        case mutation_operator::reads_only:
            return "for reads only";
        case mutation_operator::relaxed:
            return "relaxed";
        case mutation_operator::block_scope:
            return "block";
        case mutation_operator::at_start:
            return "at the start of the kernel";
    }
    return "unknown";
}

inline std::vector<mutation_operator> mutation_operators_of(synchronisation kind) {
    switch (kind) {
        case synchronisation::barrier_init:
            return {mutation_operator::skip, mutation_operator::fewer_warps, mutation_operator::more_warps};
        case synchronisation::named_sync:
        case synchronisation::named_arrive:
            return {mutation_operator::skip, mutation_operator::fewer_warps, mutation_operator::more_warps};
        case synchronisation::barrier_arrive:
            return {mutation_operator::skip, mutation_operator::twice};
        case synchronisation::barrier_expect:
            return {mutation_operator::skip, mutation_operator::twice, mutation_operator::fewer_bytes,
                    mutation_operator::more_bytes};
        case synchronisation::barrier_wait:
            return {mutation_operator::skip, mutation_operator::other_phase};
        case synchronisation::copy_wait:
        case synchronisation::store_wait:
        case synchronisation::mma_wait:
            return {mutation_operator::skip, mutation_operator::one_group_less};
        case synchronisation::store_write:
            return {mutation_operator::reads_only};
        case synchronisation::atomic_release:
        case synchronisation::atomic_acquire:
            return {mutation_operator::relaxed};
        case synchronisation::atomic_scope:
            return {mutation_operator::block_scope};
        case synchronisation::pdl_launch:
            return {mutation_operator::at_start};
        default:
            return {mutation_operator::skip};
    }
}

struct synchronisation_site {
    synchronisation kind = synchronisation::barrier_init;
    std::string file;
    int line = 0;
    std::string role;
    int which = 0;  // among several on this line

    friend bool operator==(const synchronisation_site& a, const synchronisation_site& b) {
        return a.kind == b.kind && a.line == b.line && a.file == b.file && a.role == b.role && a.which == b.which;
    }
    std::string text() const {
        return std::string(name_of(kind)) + (which > 0 ? " (number " + std::to_string(which + 1) + ")" : "") + " by " +
               role + " at " + file + ":" + std::to_string(line);
    }
};

// Adds a site to a list unless it is there.
inline void add_site(std::vector<synchronisation_site>& sites, const synchronisation_site& site) {
    for (const synchronisation_site& old : sites) {
        if (old == site) return;
    }
    sites.push_back(site);
}

struct mutation {
    synchronisation_site site;
    mutation_operator how = mutation_operator::none;
    std::string text() const { return site.text() + ", " + name_of(how); }
};

}  // namespace imbrex
