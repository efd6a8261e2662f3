// Streams of a world, and launches captured in a CUDA graph and replayed.
#include <imbrex/hw/world_event.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/embedding.hpp>

#include "worlds.hpp"

#include <cstddef>
#include <utility>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Rows of a table, which may change between replays.
struct table_of_rows {
    static constexpr int rows = 4, columns = 64, ids = 2;

    explicit table_of_rows(world of)
        : where(of), table(of, bytes(rows)), chosen(of, ids * sizeof(int)), out(of, bytes(ids)) {}

    void write(float first, const std::vector<int>& which, void* stream) {
        std::vector<float> values(rows * columns);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i / columns);
        table.write(0, values.data(), bytes(rows), stream);
        chosen.write(0, which.data(), ids * sizeof(int), stream);
    }
    void look_up(void* stream) const {
        embedding<float>::launch(where,
                                 {.table = as_rows<const float>(table.at<float>(), rows, columns),
                                  .ids = chosen.at<int>(),
                                  .out = as_rows(out.at<float>(), ids, columns)},
                                 stream);
    }
    std::vector<float> found(void* stream) const {
        std::vector<float> values(ids * columns);
        out.read(0, values.data(), bytes(ids), stream);
        return {values.front(), values.back()};
    }
    static constexpr std::size_t bytes(int count) { return sizeof(float) * columns * static_cast<std::size_t>(count); }

    world where;
    world_memory table, chosen, out;
};

}  // namespace

TEST_CASE("launches are captured once, and replays read the current data") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const world_stream stream(where);
        table_of_rows rows(where);
        cuda_graph graph;
        int calls = 0;
        const auto launches = [&] {
            ++calls;
            rows.look_up(stream.get());
        };
        rows.write(0, {3, 1}, stream.get());
        graph.replay(stream, launches);
        CHECK(rows.found(stream.get()) == std::vector<float>{3, 1});
        rows.write(10, {0, 2}, stream.get());
        cuda_graph moved = std::move(graph);
        moved.replay(stream, launches);
        stream.wait();
        CHECK(rows.found(stream.get()) == std::vector<float>{10, 12});
        CHECK(calls == (where == world::device ? 1 : 2));
    }
}

TEST_CASE("a launch that throws leaves nothing captured and the stream usable") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const world_stream stream(where);
        table_of_rows rows(where);
        cuda_graph graph;
        CHECK_THROWS_AS(graph.replay(stream,
                                     [&] {
                                         rows.look_up(stream.get());
                                         require(false, "second: invalid");
                                     }),
                        error);
        rows.write(5, {2, 3}, stream.get());
        graph.replay(stream, [&] { rows.look_up(stream.get()); });
        CHECK(rows.found(stream.get()) == std::vector<float>{7, 8});
    }
}

#if !defined(__CUDACC__)
TEST_CASE("rejects a device stream in a program with only the host world") {
    CHECK(error_message_of([] { world_stream stream(world::device); }) == imbrex::detail::host_world_only);
}
#endif

TEST_CASE("events with timing measure the time between them") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const world_stream stream(where);
        world_event begin(where, event_timing::on), end(where, event_timing::on);
        begin.record(stream.get());
        table_of_rows rows(where);
        rows.look_up(stream.get());
        end.record(stream.get());
        end.wait();
        CHECK((end.seconds_since(begin) > 0) == (where == world::device));
        CHECK(end.seconds_since(begin) < 10);
    }
}
