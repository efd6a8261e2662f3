// Element types of the KV cache.
//
//             bits   significant bits   largest      on
//   f16         16                 11   65504        a CPU, by default
//   bf16        16                  8   3.4e38       a GPU, and a CPU
//   e4m3         8                  4   448          a CPU
//   f32         32                 24   3.4e38       a CPU
//
// f16 is the more accurate of the 16-bit types, and a CPU converts it in hardware. A key or value outside the range of f16 or
// e4m3 is an error, never an infinity and never clamped.
#pragma once

#include <imbrex/hw/world.hpp>

namespace imbrex::engine {

enum class kv_cache_format { by_device, f32, f16, bf16, e4m3 };

const char* name_of(kv_cache_format format);

// The format itself, or the default of the device. Throws for a format that the device does not have.
kv_cache_format kv_cache_format_on(world where, kv_cache_format wanted);

int element_bytes(kv_cache_format format);

}  // namespace imbrex::engine
