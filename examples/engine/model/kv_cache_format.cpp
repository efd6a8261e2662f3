#include "engine/model/kv_cache_format.hpp"

#include <imbrex/core/error.hpp>

namespace imbrex::engine {

const char* name_of(kv_cache_format format) {
    switch (format) {
        case kv_cache_format::by_device:
            return "auto";
        case kv_cache_format::f32:
            return "f32";
        case kv_cache_format::f16:
            return "f16";
        case kv_cache_format::bf16:
            return "bf16";
        case kv_cache_format::e4m3:
            return "e4m3";
    }
    return "unknown";
}

kv_cache_format kv_cache_format_on(world where, kv_cache_format wanted) {
    if (where != world::device) return wanted == kv_cache_format::by_device ? kv_cache_format::f16 : wanted;
    require(wanted == kv_cache_format::by_device || wanted == kv_cache_format::bf16, "KV cache: ", name_of(wanted),
            "; on a GPU it is bf16");
    return kv_cache_format::bf16;
}

int element_bytes(kv_cache_format format) {
    return format == kv_cache_format::f32 ? 4 : format == kv_cache_format::e4m3 ? 1 : 2;
}

}  // namespace imbrex::engine
