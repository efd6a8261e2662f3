// Exact attention over a sequence that no single device holds, as data: who has which tokens, who attends to what in which step, who
// sends what to whom and when, how many bytes that is, and how even the work. Nothing here moves a byte or computes a score;
// docs/ring_attention.md draws it all.
//
//     sequence_schedule ring{.tokens = 1 << 20, .ranks = 8};                                               causal, if not told otherwise
//     sequence_schedule zigzag{.tokens = 1 << 20, .ranks = 8, .placement = token_placement::zigzag};       balanced
//     sequence_schedule striped{.tokens = 1 << 20, .ranks = 8, .placement = token_placement::striped};     almost
//     sequence_schedule mesh{.tokens = 1 << 20, .ranks = 64, .query_chunks = 8, .placement = token_placement::zigzag};
//     head_schedule ulysses{.tokens = 1 << 20, .ranks = 8, .sizes = {.heads = 32, .key_heads = 8}};
//
//     for (const planned_step& step : plan_of(zigzag, rank).steps) ...                                     what one rank does
//     account_of(zigzag).balance()                                                                         what all of it costs
#pragma once

#include <imbrex/comm/schedule/account.hpp>
#include <imbrex/comm/schedule/attended_block.hpp>
#include <imbrex/comm/schedule/backward.hpp>
#include <imbrex/comm/schedule/block.hpp>
#include <imbrex/comm/schedule/head_schedule.hpp>
#include <imbrex/comm/schedule/plan.hpp>
#include <imbrex/comm/schedule/sequence_schedule.hpp>
#include <imbrex/comm/schedule/token_runs.hpp>
#include <imbrex/comm/schedule/transfer.hpp>
#include <imbrex/comm/schedule/tree.hpp>
