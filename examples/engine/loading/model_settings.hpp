// The settings of a model by name, from config.json or from GGUF metadata, so that a family is described once for both
// (families.cpp). A setting has a name in each kind of file; null: files of that kind do not have it.
//
//     config.logits_softcap = from.real({"final_logit_softcapping", "final_logit_softcapping"}).value_or(0);
#pragma once

#include <imbrex/core/error.hpp>
#include <optional>
#include <string>
#include <vector>

namespace imbrex::engine {

struct setting {
    const char* json = nullptr;
    const char* gguf = nullptr;  // without the prefix of the architecture
};

// Getters return nothing if the setting is missing or null, and throw if it has another type.
class model_settings {
  public:
    virtual ~model_settings() = default;

    virtual bool is_gguf() const = 0;
    virtual const std::string& file() const = 0;
    virtual std::string shown(setting which) const = 0;  // the name, for messages
    virtual std::optional<int> size(setting which) const = 0;
    virtual std::optional<double> real(setting which) const = 0;
    virtual std::optional<bool> truth(setting which) const = 0;
    virtual std::optional<std::string> text(setting which) const = 0;
    virtual std::optional<std::vector<int>> sizes(setting which) const = 0;
    virtual std::optional<std::vector<std::string>> texts(setting which) const = 0;
    virtual bool has_tensor(const std::string& name) const = 0;  // GGUF: whether the file has it

    int needed_size(setting which) const { return needed(size(which), which); }
    double needed_real(setting which) const { return needed(real(which), which); }

    // Throws if a setting that the model cannot obey is on.
    void refuse(setting which) const {
        require(!truth(which).value_or(false), file(), ": ", shown(which), " is true; models without it are known");
    }

  private:
    template <class T>
    T needed(const std::optional<T>& value, setting which) const {
        require(value.has_value(), file(), ": ", shown(which), " is missing");
        return *value;
    }
};

}  // namespace imbrex::engine
