// Random numbers from 0 to limit - 1 of a seeded generator, the same on every platform; std::uniform_int_distribution is
// not.
#pragma once

#include <random>

namespace imbrex_test {

class random_below {
  public:
    explicit random_below(std::mt19937& generator) : generator_(&generator) {}

    int operator()(int limit) const { return static_cast<int>((*generator_)() % static_cast<unsigned>(limit)); }

  private:
    std::mt19937* generator_;
};

}  // namespace imbrex_test
