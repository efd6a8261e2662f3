// Starts the clusters of a grid, one by one.
#pragma once

namespace imbrex::hw {

struct cluster_state;

class cluster_source {
  public:
    virtual ~cluster_source() = default;
    virtual int left() const = 0;
    virtual void start_next() = 0;
    virtual void ended(cluster_state& cluster) = 0;
};

}  // namespace imbrex::hw
