// attention_forward: head dims, layouts, GQA, lengths, random cases of all that, kernel selection, argument checks,
// untouched memory, and CUDA graph capture.
#include <imbrex/kernels/attention_forward.hpp>

#include "kernels/attention/random_cases.hpp"
#include "kernels/attention/trial.hpp"

#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// One type for all tests here, with kernels of every head_dim.
using attention = attention_forward<bf16, attention_options{}, any_mask>;
using trial = attention_trial<bf16>;

void check(const attention_test_case& given, attention_kernel_kind expected = attention_kernel_kind::hopper) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.head_dim_qk);
        CAPTURE(given.head_dim_v);
        CAPTURE(given.heads);
        CAPTURE(given.kv_heads);
        CAPTURE(static_cast<int>(given.lie));
        CAPTURE(given.right);
        trial there(where, given, 1);
        const auto problem = there.upload();
        CHECK(attention::choice(where, problem) == expected);
        attention::launch(where, problem, there.mask());
        const auto worst = there.worst();
        CHECK(worst.out <= 1);
        CHECK(worst.lse2 <= 1);
    }
}

}  // namespace

TEST_CASE("every head_dim uses the next larger compiled kernel") {
    for (const int head_dim : {16, 64, 80, 96, 112, 128, 144, 192, 208, 256}) {
        check({.heads = 2, .seqlen_q = 70, .seqlen_k = 90, .head_dim_qk = head_dim, .head_dim_v = head_dim});
    }
    check({.heads = 2, .seqlen_q = 70, .seqlen_k = 150, .head_dim_qk = 192, .head_dim_v = 128, .right = 0});
    check({.heads = 2, .seqlen_q = 70, .seqlen_k = 150, .head_dim_qk = 48, .head_dim_v = 112, .right = 0});
    check({.heads = 2, .seqlen_q = 70, .seqlen_k = 150, .head_dim_qk = 176, .head_dim_v = 16});
    CHECK(all_attention_head_dims.index_for({80, 80}) == 1);
    CHECK(all_attention_head_dims.index_for({192, 128}) == 3);
    CHECK(all_attention_head_dims.index_for({16, 192}) == 4);
    CHECK(attention_head_dim_set{64, 128}.index_for(160) == 2);
    CHECK(attention_head_dim_set{64, attention_head_dims(192, 128)}.text() == "64 x 64, 192 x 128");
}

TEST_CASE("accepts every layout; without TMA alignment the Ampere-class kernel runs") {
    attention_test_case given{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 100, .seqlen_k = 100};
    for (const layout lie :
         {layout::batch_sequence_head, layout::batch_head_sequence, layout::one_tensor, layout::slices}) {
        given.lie = lie;
        check(given);
    }
    given.lie = layout::unaligned;
    check(given, attention_kernel_kind::ampere_class);
    given.head_dim_qk = given.head_dim_v = 80;
    check(given, attention_kernel_kind::ampere_class);
}

TEST_CASE("GQA: any number of heads shares a KV head, also with a batch stride of 0") {
    for (const auto& [heads, kv_heads] : {std::pair{1, 1}, std::pair{3, 3}, std::pair{6, 2}, std::pair{7, 1}}) {
        check({.heads = heads, .kv_heads = kv_heads, .seqlen_q = 40, .seqlen_k = 70, .right = 0});
    }
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        trial there(where, {.batches = 2, .heads = 2, .seqlen_q = 50, .seqlen_k = 60}, 1);
        auto same = there.at;
        for (tensor_layout* one : {&same.k, &same.v}) {
            for (int row = 0; row < 60; ++row) {
                std::copy_n(&there.inputs.values[one->at(0, 0, row)], 64, &there.inputs.values[one->at(1, 0, row)]);
            }
        }
        auto problem = there.upload();
        problem.k.strides.given[0] = problem.v.strides.given[0] = 0;
        attention::launch(where, problem, there.mask());
        CHECK(attention::choice(where, problem) == attention_kernel_kind::hopper);
        CHECK(there.worst().out <= 1);
    }
}

TEST_CASE("accepts padded and varlen sequences, some of them empty, sinks, and a custom scale") {
    attention_test_case padded{.batches = 4, .heads = 2, .seqlen_q = 70, .seqlen_k = 200, .sinks = true};
    padded.seqused_k = {200, 0, 1, 130};
    padded.right = 0;
    padded.scale = 0.3f;
    check(padded);
    attention_test_case packed{.heads = 4, .kv_heads = 2, .seqlen_q = 300, .seqlen_k = 420};
    packed.packed = {{130, 200}, {0, 30}, {1, 1}, {100, 64}, {33, 0}, {5, 70}};
    packed.right = 0;
    check(packed);
    packed.lie = layout::unaligned;
    check(packed, attention_kernel_kind::ampere_class);
}

TEST_CASE("accepts queries that see nothing, before others that do") {
    for (const int keys : {1, 20, 150}) {
        check({.heads = 4, .kv_heads = 2, .seqlen_q = 450, .seqlen_k = keys, .right = 0});
        check({.heads = 2, .seqlen_q = 450, .seqlen_k = keys, .sinks = true, .left = 10, .right = 0});
    }
}

TEST_CASE("random attention cases of all head dims") {
    with_random_cases(8000, 150, {.head_dims = 256, .seen = masks::any},
                      [](world where, const attention_test_case& c, unsigned number) {
                          trial there(where, c, number);
                          const any_mask mask = there.mask();
                          attention::launch(where, there.upload(), mask);
                          const auto bits = there.download();
                          attention::launch(where, there.upload(), mask);
                          CHECK(bits == there.download());
                          return there.worst();
                      });
}

TEST_CASE("does nothing without queries; without keys O is zero and the LSE is -infinity") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const attention_test_case& given :
             {attention_test_case{.batches = 0}, attention_test_case{.seqlen_q = 0, .seqlen_k = 5},
              attention_test_case{.heads = 0, .kv_heads = 0}}) {
            trial there(where, given, 1);
            auto problem = there.upload();
            problem.q.pointer = nullptr;
            problem.out.pointer = nullptr;
            problem.lse2.pointer = nullptr;
            if (given.seqlen_q == 1) problem.k.pointer = problem.v.pointer = nullptr;
            attention::launch(where, problem);
        }
        trial there(where, {.batches = 2, .heads = 2, .seqlen_q = 70, .seqlen_k = 0}, 1);
        auto problem = there.upload();
        problem.k.pointer = problem.v.pointer = nullptr;
        CHECK(attention::choice(where, problem) == attention_kernel_kind::ampere_class);
        attention::launch(where, problem, there.mask());
        CHECK(there.worst().out == 0);
        CHECK(there.lse2.values == std::vector<float>(there.lse2.values.size(), -INFINITY));
        // A varlen batch without sequences.
        attention_test_case none{.seqlen_q = 10, .seqlen_k = 10};
        trial packed(where, none, 1);
        auto empty = packed.upload();
        empty.varlen = {0, packed.cu_seqlens_q.upload(), packed.cu_seqlens_k.upload()};
        attention::launch(where, empty);
        packed.download();
        for (const bf16 value : packed.out.values) REQUIRE(std::isnan(float(value)));
    }
}

TEST_CASE("rejects invalid arguments, and writes nothing") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        trial there(where, {.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 30, .seqlen_k = 40}, 1);
        const attention_problem<bf16> good = there.upload();
        const auto refused = [&](auto change) {
            attention_problem<bf16> bad = good;
            change(bad);
            return error_message_of([&] { attention::launch(where, bad); });
        };
        const auto with = [](auto& view, int dimension, int extent) { view.extents.given[dimension] = extent; };
        CHECK(refused([](auto& p) { p.q.pointer = nullptr; }) ==
              "q.pointer: null; a tensor of 2 x 4 x 30 x 64 is needed");
        CHECK(refused([](auto& p) { p.k.pointer = nullptr; }) ==
              "k.pointer: null; a tensor of 2 x 2 x 40 x 64 is needed");
        CHECK(refused([](auto& p) { p.v.pointer = nullptr; }) ==
              "v.pointer: null; a tensor of 2 x 2 x 40 x 64 is needed");
        CHECK(refused([](auto& p) { p.out.pointer = nullptr; }) ==
              "out.pointer: null; a tensor of 2 x 4 x 30 x 64 is needed");
        CHECK(refused([&](auto& p) { with(p.q, 2, -1); }) == "q.extents[2]: -1; 0 to 2147483647 is allowed");
        CHECK(refused([](auto& p) { p.v.strides.given[1] = -64; }) == "v.strides[1]: -64; it must not be negative");
        CHECK(refused([&](auto& p) { with(p.q, 3, 60), with(p.k, 3, 60); }) ==
              "q.extents[3]: 60; head_dim is a multiple of 16 from 16 to 256");
        CHECK(refused([&](auto& p) { with(p.v, 3, 272), with(p.out, 3, 272); }) ==
              "v.extents[3]: 272; head_dim is a multiple of 16 from 16 to 256");
        CHECK(refused([&](auto& p) { with(p.k, 3, 48); }) ==
              "k.extents[3]: 48; q has 64 columns, and it must have as many");
        CHECK(refused([&](auto& p) { with(p.out, 3, 48); }) ==
              "out.extents[3]: 48; v has 64 columns, and it must have as many");
        CHECK(refused([&](auto& p) { with(p.k, 0, 1); }) ==
              "k.extents[0]: 1; q has 2 batch entries, and it must have as many");
        CHECK(refused([&](auto& p) { with(p.v, 0, 3); }) ==
              "v.extents[0]: 3; q has 2 batch entries, and it must have as many");
        CHECK(refused([&](auto& p) { with(p.out, 0, 1); }) ==
              "out.extents[0]: 1; q has 2 batch entries, and it must have as many");
        CHECK(refused([&](auto& p) { with(p.v, 1, 1); }) == "v.extents[1]: 1; k has 2 heads, and it must have as many");
        CHECK(refused([&](auto& p) { with(p.v, 2, 39); }) ==
              "v.extents[2]: 39; k has 40 rows, and it must have as many");
        CHECK(refused([&](auto& p) { with(p.out, 1, 3); }) ==
              "out.extents[1]: 3; q has 4 heads, and it must have as many");
        CHECK(refused([&](auto& p) { with(p.out, 2, 29); }) ==
              "out.extents[2]: 29; q has 30 rows, and it must have as many");
        CHECK(refused([&](auto& p) { with(p.k, 1, 3), with(p.v, 1, 3); }) ==
              "k.extents[1]: 3 KV heads; the 4 heads of q must be a multiple of that");
        CHECK(refused([&](auto& p) { with(p.k, 1, 0), with(p.v, 1, 0); }) ==
              "k.extents[1]: 0 KV heads; the 4 heads of q must be a multiple of that");
        CHECK(refused([](auto& p) { p.scale = -1.0f; }) == "scale: -1; a positive number is needed");
        CHECK(refused([](auto& p) { p.out.strides.given[0] = 0; }) ==
              "out.strides[0]: 0; must be at least 64: batch entries must not overlap");
        CHECK(refused([](auto& p) { p.lse2.head_stride = 29; }) ==
              "lse2.head_stride: 29; must be at least 30, the number of queries");
        CHECK(refused([](auto& p) { p.lse2.batch_stride = 0; }) ==
              "lse2.batch_stride: 0; must be at least 30, the number of queries");
        CHECK(refused([](auto& p) { p.varlen.count = 2; }) == "q.extents[0]: 2; must be 1 for varlen");
        const auto alone = [&](auto& p) { with(p.q, 0, 1), with(p.k, 0, 1), with(p.v, 0, 1), with(p.out, 0, 1); };
        CHECK(refused([&](auto& p) { alone(p), p.varlen.count = -1; }) ==
              "varlen.count: -1; the number of sequences must not be negative");
        CHECK(refused([&](auto& p) { alone(p), p.varlen.count = 2; }) ==
              "varlen.cu_seqlens_q: null; 3 numbers are needed");
        buffer<int> starts(where, 3);
        starts.values = {0, 10, 30};
        const int* const some = starts.upload();
        CHECK(refused([&](auto& p) {
                  alone(p), p.varlen = {2, some, nullptr};
              }) == "varlen.cu_seqlens_k: null; 3 numbers are needed");
        CHECK(refused([&](auto& p) {
                  alone(p), p.varlen = {2, some, some}, p.seqused_k = some;
              }).ends_with("; must be null for varlen: varlen.cu_seqlens_k has the lengths"));
        using narrow = attention_forward<bf16, attention_options{.head_dims = {64}}, any_mask>;
        const auto wide = [&](auto p) { with(p.q, 3, 80), with(p.k, 3, 80), narrow::choice(where, p); };
        CHECK(error_message_of([&] { wide(good); }) ==
              "q.extents[3], v.extents[3]: 80, 64; the compiled head dims are 64 x 64");
        there.download();
        for (const bf16 value : there.out.values) REQUIRE(std::isnan(float(value)));
    }
}

#if !defined(__CUDACC__)
TEST_CASE("selects the kernel by device, strides and number of keys") {
    CHECK(choose_attention_kernel({true, true, 1}) == attention_kernel_kind::hopper);
    CHECK(choose_attention_kernel({false, true, 1}) == attention_kernel_kind::ampere_class);
    CHECK(choose_attention_kernel({true, false, 1}) == attention_kernel_kind::ampere_class);
    CHECK(choose_attention_kernel({true, true, 0}) == attention_kernel_kind::ampere_class);
}

TEST_CASE("rejects lengths beyond the tensors where the host can read them") {
    trial there(world::host, {.heads = 2, .seqlen_q = 30, .seqlen_k = 40}, 1);
    const auto good = there.upload();
    const auto refused = [&](std::vector<int> cu_seqlens_q, std::vector<int> cu_seqlens_k) {
        auto bad = good;
        bad.varlen = {2, cu_seqlens_q.data(), cu_seqlens_k.data()};
        return error_message_of([&] { attention::launch(world::host, bad); });
    };
    CHECK(refused({-1, 10, 30}, {0, 10, 40}) == "varlen.cu_seqlens_q[0]: -1; it must not be negative");
    CHECK(refused({0, 10, 31}, {0, 10, 40}) == "varlen.cu_seqlens_q[2]: 31; the tensor has 30 rows");
    CHECK(refused({0, 10, 30}, {0, 10, 41}) == "varlen.cu_seqlens_k[2]: 41; the tensor has 40 rows");
    CHECK(refused({0, 10, 30}, {0, 20, 10}) ==
          "varlen.cu_seqlens_k[2]: 10; sequence 1 begins at 20 and cannot end before that");
    auto padded = good;
    for (const int length : {-1, 41}) {
        padded.seqused_k = &length;
        CHECK(error_message_of([&] { attention::launch(world::host, padded); }) ==
              "seqused_k[0]: " + std::to_string(length) + "; the tensor has 40 keys, and none may be negative");
    }
}

TEST_CASE("rejects merged and partial outputs without their row values") {
    using merged =
        attention_forward<bf16, attention_options{.head_dims = {64}, .output = attention_output_mode::merged},
                          full_mask>;
    using partial =
        attention_forward<bf16, attention_options{.head_dims = {64}, .output = attention_output_mode::partial},
                          full_mask>;
    const attention_test_case given{.heads = 2, .seqlen_q = 30, .seqlen_k = 40};
    attention_trial<bf16, attention_output_mode::merged> whole(world::host, given, 1);
    auto wrong = whole.upload();
    wrong.lse2.pointer = nullptr;
    CHECK(error_message_of([&] { merged::choice(world::host, wrong); }) ==
          "lse2.pointer: null; 1 x 2 x 30 numbers are needed");
    attention_trial<bf16, attention_output_mode::partial> part(world::host, given, 1);
    auto none = part.upload();
    none.row_max.pointer = nullptr;
    CHECK(error_message_of([&] { partial::choice(world::host, none); }) ==
          "row_max.pointer: null; 1 x 2 x 30 numbers are needed");
    none = part.upload();
    none.row_sum.pointer = nullptr;
    CHECK(error_message_of([&] { partial::choice(world::host, none); }) ==
          "row_sum.pointer: null; 1 x 2 x 30 numbers are needed");
    none = part.upload();
    none.sinks = part.sinks.upload();
    CHECK(error_message_of([&] {
              partial::choice(world::host, none);
          }).ends_with("; must be null for attention_output_mode::partial"));
}

TEST_CASE("views of layouts and of parts") {
    std::vector<bf16> values(2 * 10 * 6 * 32);
    bf16* const memory = values.data();
    const auto all = batch_sequence_head(memory, 2, 10, 6, 32);
    CHECK(all.strides[0] == 1920);
    CHECK(all.strides[1] == 32);
    CHECK(all.strides[2] == 192);
    const auto keys = heads_of(all, 4, 1);
    CHECK(keys.pointer == memory + 128);
    CHECK(keys.extents[1] == 1);
    CHECK(rows_of(keys, 3, 7).pointer == memory + 128 + 576);
    CHECK(batch_head_sequence(memory, 2, 6, 10, 32).strides[1] == 320);
    CHECK(error_message_of([&] { heads_of(all, 5, 2); }) == "first, count: 5, 2; the view has 6 heads");
    CHECK(error_message_of([&] { rows_of(all, -1, 2); }) == "first, count: -1, 2; the view has 10 rows");
}
#else
TEST_CASE("launches of both kernels are captured in a CUDA graph and replayed") {
    cudaStream_t stream;
    imbrex::detail::require_success(cudaStreamCreate(&stream), "stream");
    for (const layout lie : {layout::batch_sequence_head, layout::unaligned}) {
        trial there(world::device, {.heads = 3, .seqlen_q = 300, .seqlen_k = 300, .lie = lie, .right = 0}, 1);
        const auto problem = there.upload();
        const any_mask mask = there.mask();
        cudaGraph_t graph;
        cudaGraphExec_t replay;
        REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
        attention::launch(world::device, problem, mask, {}, stream);
        REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
        REQUIRE(cudaGraphInstantiate(&replay, graph, 0) == cudaSuccess);
        for (int i = 0; i < 3; ++i) {
            there.upload();  // poison
            REQUIRE(cudaGraphLaunch(replay, stream) == cudaSuccess);
            REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
            CHECK(there.worst().out <= 1);
        }
        cudaGraphExecDestroy(replay);
        cudaGraphDestroy(graph);
    }
    cudaStreamDestroy(stream);
}
#endif
