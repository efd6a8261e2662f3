// What a check runs under each schedule.
#pragma once

#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/hw/host/options.hpp>

#include <optional>

namespace imbrex::hw {

// A kernel or several launches, with their preparation: a reference to a function of the options that returns the hazard.
class checked_run {
  public:
    template <class Run>
    explicit checked_run(const Run& run)
        : data_(&run), run_([](const void* data, const host_options& options) {
              return (*static_cast<const Run*>(data))(options);
          }) {}

    std::optional<hazard> operator()(const host_options& options) const { return run_(data_, options); }

  private:
    const void* data_;
    std::optional<hazard> (*run_)(const void*, const host_options&);
};

}  // namespace imbrex::hw
