// Rectangles with every remainder of rows and columns, at aligned and unaligned addresses: each block of a grid loads
// one into a whole tile and stores the in-bounds part of the tile.
#pragma once

#include <ops/tools.hpp>

namespace imbrex_test {

// The placement of a matrix in memory: its start and its row stride, in elements.
struct placement {
    int shift;
    int row_stride;
};
inline constexpr int placements = 4;

template <class T>
struct ragged_arguments {
    const T* in;
    T* whole;   // for each block a contiguous tile: the data loaded
    T* ragged;  // for each block an area: the data stored
    int area;   // elements of an area
    placement places[placements];
    T outside;

    // The rectangle of a block: x - 1 rows and y - 1 columns are in bounds, so some are empty and some exceed the tile.
    template <class Element>
    IMBREX_FN imbrex::global_tile<Element> rectangle(Element* base, imbrex::grid_dim at) const {
        const placement place = places[at.z];
        return imbrex::matrix(base + place.shift, at.x - 1, at.y - 1, place.row_stride).at(0, 0);
    }
    IMBREX_FN static std::int64_t number(imbrex::grid_dim at, imbrex::grid_dim grid) {
        return at.x + grid.x * (at.y + static_cast<std::int64_t>(grid.y) * at.z);
    }
    IMBREX_FN imbrex::global_tile<const T> source(imbrex::grid_dim at) const { return rectangle(in, at); }
    IMBREX_FN imbrex::global_tile<T> target(imbrex::grid_dim at, imbrex::grid_dim grid) const {
        return rectangle(ragged + area * number(at, grid), at);
    }
    IMBREX_FN imbrex::global_tile<T> tile(int rows, int columns, imbrex::grid_dim at, imbrex::grid_dim grid) const {
        return imbrex::matrix(whole + rows * columns * number(at, grid), rows, columns).at(0, 0);
    }
};

// The whole test but the launch, which is `launch(grid, arguments)`.
template <class T, class Launch>
void test_ragged(world where, const std::string& name, int rows, int columns, T outside, Launch launch) {
    const int size = sizeof(T);
    const int aligned = (columns + 2) * size / 16 * 16 / size + 32 / size;
    const placement places[placements] = {
        {0, aligned},                              // whole 16-byte chunks
        {1, aligned},                              // rows that start beside them
        {0, aligned + 1},                          // and each at another offset
        {4 / size, aligned + 8 / size + 4 / size}  // multiples of 4 bytes
    };
    const imbrex::grid_dim grid{rows + 3, columns + 3, placements};
    const std::size_t blocks = static_cast<std::size_t>(grid.x) * grid.y * grid.z;
    const int area = (rows + 2) * (aligned + 16);
    buffer<T> in(where, area), whole(where, blocks * rows * columns, poison<T>()),
        ragged(where, blocks * area, poison<T>());
    fill_random(in.values, 15, -100.0f, 100.0f);
    ragged_arguments<T> arguments{in.upload(), whole.upload(), ragged.upload(), area, {}, outside};
    std::copy(places, places + placements, arguments.places);
    launch(grid, arguments);
    whole.download();
    ragged.download();

    tally read_tally(name + ", read"), written_tally(name + ", written");
    for (imbrex::grid_dim at{0, 0, 0}; at.z < grid.z; ++at.z) {
        const placement place = places[at.z];
        for (at.y = 0; at.y < grid.y; ++at.y) {
            for (at.x = 0; at.x < grid.x; ++at.x) {
                const int existing_rows = at.x - 1, existing_columns = at.y - 1;
                const std::size_t number = at.x + grid.x * (at.y + static_cast<std::size_t>(grid.y) * at.z);
                std::vector<T> wanted(area, poison<T>());
                for (int row = 0; row < rows; ++row) {
                    for (int column = 0; column < columns; ++column) {
                        const bool exists = row < existing_rows && column < existing_columns;
                        const int i = place.shift + row * place.row_stride + column;
                        if (exists) wanted[i] = in.values[i];
                        const T value = whole.values[(number * rows + row) * columns + column];
                        read_tally.expect(same_bits(value, exists ? in.values[i] : outside), existing_rows, "x",
                                          existing_columns, "exist, placement", at.z, ", row", row, "column", column,
                                          "is", imbrex::convert<float>(value));
                    }
                }
                for (int i = 0; i < area; ++i) {
                    const T value = ragged.values[number * area + i];
                    written_tally.expect(same_bits(value, wanted[i]), existing_rows, "x", existing_columns,
                                         "exist, placement", at.z, ", element", i - place.shift, "is",
                                         imbrex::convert<float>(value), "not", imbrex::convert<float>(wanted[i]));
                }
            }
        }
    }
}

}  // namespace imbrex_test
