// Shared by the tests of operations: running a body on a scope, poison, and a count of mismatches.
#pragma once

#include <worlds.hpp>

#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace imbrex_test {

// Stands for the block itself, of this many warps, in a test's list of scopes.
template <int Warps>
struct whole_block {
    static constexpr int warps = Warps;
};

// Runs body(scope) on every warp or warpgroup of the block, or once on the block.
template <class Scope, class Block, class Body>
IMBREX_KERNEL void each(Block& block, const Body& body) {
    if constexpr (std::is_same_v<Scope, imbrex::warp>) {
        block.each_warp(body);
    } else if constexpr (std::is_same_v<Scope, imbrex::warpgroup>) {
        block.each_warpgroup(body);
    } else {
        body(block);
    }
}

// The index of this scope in the block; 0 for the block itself.
template <class Scope>
IMBREX_KERNEL int index_of(const Scope& scope) {
    if constexpr (requires { scope.number; }) {
        return scope.index();
    } else {
        return 0;
    }
}

// A value whose bytes are all ones: NaN in every floating-point type.
template <class T>
T poison() {
    T value;
    std::memset(static_cast<void*>(&value), 0xff, sizeof value);
    return value;
}

template <class T>
bool same_bits(const T& one, const T& other) {
    return std::memcmp(&one, &other, sizeof(T)) == 0;
}

// Within a relative error of the larger value, or within an absolute error.
inline bool near(double value, double wanted, double relative, double absolute = 0) {
    if (std::isinf(wanted) || std::isinf(value)) return value == wanted;
    return std::fabs(value - wanted) <= absolute + relative * std::fabs(wanted);
}

// Counts mismatches and keeps a message for the first: an assertion for each of many thousand elements is slow.
class tally {
  public:
    explicit tally(std::string of) : of_(std::move(of)) {}
    tally(const tally&) = delete;
    tally& operator=(const tally&) = delete;

    template <class... Words>
    void expect(bool agrees, const Words&... words) {
        ++count_;
        if (agrees) return;
        if (wrong_++ > 0) return;
        std::ostringstream text;
        text.precision(9);
        ((text << words << ' '), ...);
        first_ = text.str();
    }
    // Element (row, column) has the expected bits.
    template <class T>
    void expect_same(int row, int column, const T& value, const T& wanted) {
        expect(same_bits(value, wanted), "row", row, "column", column, "is", imbrex::convert<float>(value), "not",
               imbrex::convert<float>(wanted));
    }
    ~tally() {
        CHECK_MESSAGE(count_ > 0, of_, ": nothing was compared");
        CHECK_MESSAGE(wrong_ == 0, of_, ": ", wrong_, " of ", count_, " disagree; the first: ", first_);
    }

  private:
    std::string of_;
    long count_ = 0;
    long wrong_ = 0;
    std::string first_;
};

// The name of a shape in a test's messages.
template <class T>
std::string name_of_shape(world where, int rows, int columns, int warps) {
    return imbrex::str_cat(name_of(where), ", ", imbrex::name_of<T>(), " ", rows, " x ", columns, " of ", warps,
                           " warps");
}

}  // namespace imbrex_test
