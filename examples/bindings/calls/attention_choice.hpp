// The masks and score_mods that callers without C++ types choose from (C, JAX), and the variant of a choice.
#pragma once

#include "attention.hpp"

#include <imbrex/core/error.hpp>
#include <imbrex/kernels/attention/mask.hpp>

#include <cstdint>
#include <string>

namespace imbrex::bindings {

enum class mask_kind { full, causal, window };

struct attention_choice {
    mask_kind mask = mask_kind::full;
    int window_left = -1;  // keys before the query's own, or -1 without a limit
    int window_right = -1;
    float softcap = 0;  // 0: none

    // Fills in the members of the mask and the score_mod; returns the name of the variant.
    std::string give_to(attention_inputs& call, const char* binding) const {
        if (mask == mask_kind::window) {
            call.mask.add(side(window_left, "window_left"));
            call.mask.add(side(window_right, "window_right"));
        }
        require(softcap >= 0, "softcap: ", softcap, "; must be positive, or 0 for none");
        if (softcap > 0) call.score.add(softcap);
        const char* const masks[] = {"full_mask", "causal_mask", "window_mask"};
        return attention_variant(binding, call, masks[static_cast<int>(mask)],
                                 softcap > 0 ? "score_mod::softcap" : "score_mod::identity");
    }

  private:
    static int side(int keys, const char* name) {
        require(keys >= -1, name, ": ", keys, "; must be a number of keys, or -1 without a limit");
        return keys == -1 || keys > unbounded ? unbounded : keys;
    }
};

}  // namespace imbrex::bindings
