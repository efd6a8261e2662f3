// What the service needs of an engine. The interface keeps the service free of models: tests give it a fake engine.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/serving/text_engine.hpp"

namespace imbrex::engine::server {

struct generation_request {
    std::vector<int> prompt{};
    text_options options{};
};

// As in text_engine; all calls come from one thread.
class generation_engine {
  public:
    virtual ~generation_engine() = default;

    virtual sequence_id submit(const generation_request& request) = 0;
    virtual void cancel(sequence_id id) = 0;
    virtual std::vector<text_event> step() = 0;
    virtual std::vector<sequence_id> failed_batch() const = 0;  // when step() has thrown
    virtual statistics_summary summary() const = 0;
};

class model_generation_engine final : public generation_engine {
  public:
    explicit model_generation_engine(text_engine& model) : model_(model) {}

    sequence_id submit(const generation_request& request) override {
        return model_.submit(request.prompt, request.options);
    }
    void cancel(sequence_id id) override { model_.cancel(id); }
    std::vector<text_event> step() override { return model_.step(); }
    std::vector<sequence_id> failed_batch() const override { return model_.failed_batch(); }
    statistics_summary summary() const override { return model_.summary_with_energy(); }

  private:
    text_engine& model_;
};

}  // namespace imbrex::engine::server
