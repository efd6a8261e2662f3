#include "engine/model/weight_format.hpp"

namespace imbrex::engine {

const char* name_of(weight_format format) {
    switch (format) {
        case weight_format::as_in_file:
            return "as in file";
        case weight_format::f32:
            return "f32";
        case weight_format::f16:
            return "f16";
        case weight_format::bf16:
            return "bf16";
        case weight_format::e4m3:
            return "e4m3";
        case weight_format::int8:
            return "int8";
        case weight_format::int4:
            return "int4";
        case weight_format::mixed:
            return "mixed";
    }
    return "unknown";
}

}  // namespace imbrex::engine
