#include "tile_runner.hpp"

#include "engine/model_runner.hpp"
#include "engine/tile_kernels.hpp"

namespace imbrex::engine::test {

std::unique_ptr<runner> make_tile_runner(const model_files& files, const runner_options& options) {
    return std::make_unique<model_runner<tile_kernels<64>>>(files, options, loading_progress{});
}

}  // namespace imbrex::engine::test
