// Mutations: how the checker itself is checked. Every synchronisation a kernel asks for passes a *site* (what it is, on
// which line, by which role). A launch can list the sites it passed, and can be told to leave out or alter one of them,
// so that a test may break each synchronisation of a kernel in turn, without touching its source, and see it reported.
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
    async_fence,
    copy_commit,
    copy_wait,
    store_commit,
    store_wait,
    mma_commit,
    mma_wait,
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
    }
    return "unknown";
}

// What can be done to a synchronisation.
enum class alteration {
    none,
    skip,           // leave it out
    twice,          // do it two times
    other_phase,    // wait for the other phase
    fewer_bytes,    // arm with 16 bytes less
    more_bytes,     // arm with 16 bytes more
    fewer_warps,    // count one warp less
    more_warps,     // count one warp more
    one_group_less  // wait for all groups but one more than asked
};

inline const char* name_of(alteration how) {
    switch (how) {
        case alteration::none:
            return "as written";
        case alteration::skip:
            return "left out";
        case alteration::twice:
            return "done twice";
        case alteration::other_phase:
            return "other phase";
        case alteration::fewer_bytes:
            return "16 bytes less";
        case alteration::more_bytes:
            return "16 bytes more";
        case alteration::fewer_warps:
            return "one warp less";
        case alteration::more_warps:
            return "one warp more";
        case alteration::one_group_less:
            return "one group less";
    }
    return "unknown";
}

inline std::vector<alteration> alterations_of(synchronisation kind) {
    switch (kind) {
        case synchronisation::barrier_init:
            return {alteration::skip, alteration::fewer_warps, alteration::more_warps};
        case synchronisation::named_sync:
        case synchronisation::named_arrive:
            return {alteration::skip, alteration::fewer_warps, alteration::more_warps};
        case synchronisation::barrier_arrive:
            return {alteration::skip, alteration::twice};
        case synchronisation::barrier_expect:
            return {alteration::skip, alteration::twice, alteration::fewer_bytes, alteration::more_bytes};
        case synchronisation::barrier_wait:
            return {alteration::skip, alteration::other_phase};
        case synchronisation::copy_wait:
        case synchronisation::store_wait:
        case synchronisation::mma_wait:
            return {alteration::skip, alteration::one_group_less};
        default:
            return {alteration::skip};
    }
}

struct synchronisation_site {
    synchronisation kind = synchronisation::barrier_init;
    std::string file;
    int line = 0;
    std::string role;
    int which = 0;  // of several on this line

    friend bool operator==(const synchronisation_site& a, const synchronisation_site& b) {
        return a.kind == b.kind && a.line == b.line && a.file == b.file && a.role == b.role && a.which == b.which;
    }
    std::string text() const {
        return std::string(name_of(kind)) + (which > 0 ? " (number " + std::to_string(which + 1) + ")" : "") + " by " +
               role + " at " + file + ":" + std::to_string(line);
    }
};

struct mutation {
    synchronisation_site site;
    alteration how = alteration::none;
    std::string text() const { return site.text() + ", " + name_of(how); }
};

}  // namespace imbrex
