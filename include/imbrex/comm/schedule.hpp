// Exact attention over a sequence that no single device holds, as data: who has which tokens, who attends to what in which step, who
// sends what to whom and when, how many bytes that is, and how even the work. Nothing here moves a byte or computes a score;
// docs/ring_attention.md draws it all.
//
//     ring_schedule ring{.tokens = 1 << 20, .ranks = 8};                                               causal, if not told otherwise
//     ring_schedule zigzag{.tokens = 1 << 20, .ranks = 8, .placement = token_placement::zigzag};       balanced
//     ring_schedule striped{.tokens = 1 << 20, .ranks = 8, .placement = token_placement::striped};     almost
//     ring_schedule mesh{.tokens = 1 << 20, .ranks = 64, .q_chunks = 8, .placement = token_placement::zigzag};
//     ulysses_schedule ulysses{.tokens = 1 << 20, .ranks = 8, .sizes = {.heads = 32, .kv_heads = 8}};
//
//     for (const planned_step& step : plan_of(zigzag, rank).steps) ...                                     what one rank does
//     load_of(zigzag).load_balance()                                                                         what all of it costs
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
