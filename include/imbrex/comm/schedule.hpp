// Context parallelism (sequence parallelism) as data: ring attention, zigzag and striped ring attention, a 2D mesh, and
// Ulysses (all-to-all), for exact attention over a sequence divided among ranks. A schedule says which rank holds which
// tokens, which blocks of scores each rank computes in each step, what it sends and receives, how many bytes that is
// and how well the load is balanced. Nothing here moves a byte or computes a score. Diagrams: docs/ring_attention.md.
//
//     ring_schedule ring{.tokens = 1 << 20, .ranks = 8};                                              causal by default
//     ring_schedule zigzag{.tokens = 1 << 20, .ranks = 8, .placement = token_placement::zigzag};      balanced
//     ring_schedule striped{.tokens = 1 << 20, .ranks = 8, .placement = token_placement::striped};    nearly balanced
//     ring_schedule mesh{.tokens = 1 << 20, .ranks = 64, .q_chunks = 8, .placement = token_placement::zigzag};
//     ulysses_schedule ulysses{.tokens = 1 << 20, .ranks = 8, .sizes = {.heads = 32, .kv_heads = 8}};
//
//     for (const planned_step& step : plan_of(zigzag, rank).steps) ...                                steps of one rank
//     load_of(zigzag).load_balance()                                                                  work of all ranks
#pragma once

#include <imbrex/comm/schedule/attention_block.hpp>
#include <imbrex/comm/schedule/backward.hpp>
#include <imbrex/comm/schedule/load_balance.hpp>
#include <imbrex/comm/schedule/plan.hpp>
#include <imbrex/comm/schedule/ring_schedule.hpp>
#include <imbrex/comm/schedule/score_rectangles.hpp>
#include <imbrex/comm/schedule/token_ranges.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/comm/schedule/tree_all_reduce.hpp>
#include <imbrex/comm/schedule/ulysses_schedule.hpp>
