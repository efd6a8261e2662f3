#include "variant.hpp"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <utility>

namespace imbrex::bindings {

namespace {

struct known_variants {
    std::mutex mutex;
    std::map<std::string, variant_function, std::less<>> functions[2];  // for the host, for the device
    variant_compiler compiler = nullptr;

    variant_function find(bool for_device, const std::string& name) {
        const std::lock_guard lock(mutex);
        const auto found = functions[for_device].find(name);
        return found == functions[for_device].end() ? nullptr : found->second;
    }
};

known_variants& known() {
    static known_variants all;  // constructed by the first variant that is added, before main
    return all;
}

}  // namespace

void add_variant(const variant& one) {
    const std::lock_guard lock(known().mutex);
    known().functions[one.for_device][one.name] = one.run;
}

void set_variant_compiler(variant_compiler compiler) {
    known().compiler = compiler;
}

variant_function find_variant(world where, const std::string& name) {
    const bool for_device = where == world::device;
    if (const variant_function found = known().find(for_device, name)) return found;
    if (known().compiler != nullptr) {
        const char* const message = known().compiler(name.c_str(), for_device);
        if (message != nullptr) throw unknown_variant(message);
        if (const variant_function found = known().find(for_device, name)) return found;
    }
    throw unknown_variant("variant: " + name + " for the " + (for_device ? "device" : "host") +
                          "; it is not in this build, which has\n" + variant_names(for_device));
}

std::string variant_names(bool for_device) {
    const std::lock_guard lock(known().mutex);
    std::string all;
    for (const auto& [name, function] : known().functions[for_device]) all += "    " + name + "\n";
    return all;
}

void load_variant(const char* library) {
    void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    require(handle != nullptr, "library: ", library, "; ", handle == nullptr ? dlerror() : "");
    const auto get = reinterpret_cast<const variant* (*)()>(dlsym(handle, "imbrex_variant"));
    require(get != nullptr, "library: ", library, "; it exports no imbrex_variant");
    add_variant(*get());
}

}  // namespace imbrex::bindings
