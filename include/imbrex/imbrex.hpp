// The umbrella header: the tiles, scopes, operations and launchers that kernels are written with. Ready-made kernels
// are in imbrex/kernels/.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/memory_order.hpp>
#include <imbrex/hw/host/launch.hpp>
#include <imbrex/hw/host/mutate.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/ops/block/reduce.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/last_block.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/grid/reduce.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/memory/bulk.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/cp_async_iterator.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/read_element.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/dequantise.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/mask.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/ops/register/rope.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/register/vector_row_neighbours.hpp>
#include <imbrex/ops/register/vector_row_rope.hpp>
#include <imbrex/ops/register/vector_row_search.hpp>
#include <imbrex/ops/register/vector_row_values.hpp>
#include <imbrex/ops/warp/accumulator_order.hpp>
#include <imbrex/ops/warp/gather.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warp/upconvert.hpp>
#include <imbrex/ops/warpgroup/accumulator_order.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/global_view.hpp>
#include <imbrex/tile/packed_tile.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tma_tensor.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#if defined(__CUDACC__)
#include <imbrex/hw/cuda/launch.hpp>
#endif
