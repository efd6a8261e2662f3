#include "engine/serving/cache_options.hpp"

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <ios>
#include <sstream>

#include "engine/cache/checksum.hpp"

namespace imbrex::engine {

namespace {

constexpr std::int64_t most_staging = std::int64_t{1} << 30;

std::uint64_t sample(std::span<const std::byte> bytes) {
    constexpr std::size_t page = 4096, pages = 16;
    if (bytes.size() <= page * pages) return checksum::of(bytes);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < pages; ++i)
        sum = checksum::of(bytes.subspan((bytes.size() - page) / (pages - 1) * i, page), sum);
    return sum;
}

void describe_rope(std::ostream& to, const model_config& config, const rope_config& rope, int context) {
    to << " rope " << static_cast<int>(rope.style) << ' ' << config.rotary_dim(rope) << ' '
       << rope_attention_factor(config, rope);
    for (const double frequency : rope_inv_freq(config, rope, context)) to << ' ' << frequency;
}

void describe_config(std::ostream& to, const model_config& config, int context) {
    to << static_cast<int>(config.family) << ' ' << config.layers << ' ' << config.hidden_size << ' '
       << config.intermediate_size << ' ' << config.heads << ' ' << config.kv_heads << ' ' << config.head_dim << ' '
       << config.norm_eps << ' ' << static_cast<int>(config.norm) << ' ' << static_cast<int>(config.norms) << ' '
       << config.norm_weights_from_one << ' ' << static_cast<int>(config.qk_norm) << ' '
       << static_cast<int>(config.activation) << ' ' << config.parallel_residual << ' ' << config.qkv_bias << ' '
       << config.output_bias << ' ' << config.attention_sinks << ' ' << config.embedding_scale << ' '
       << config.residual_scale << ' ' << config.attention_softcap << ' ' << config.attention_scale.value_or(0) << ' '
       << config.experts.count << ' ' << config.experts.per_token << ' ' << config.experts.weights_of_chosen << ' '
       << config.experts.bias << ' ' << config.experts.swiglu_limit << " layers";
    for (int i = 0; i < config.layers; ++i)
        to << ' ' << config.attention_of(i).window << '/' << static_cast<int>(config.attention_of(i).rope);
    describe_rope(to, config, config.rope, context);
    if (config.local_rope) describe_rope(to, config, *config.local_rope, context);
}

}  // namespace

void check(const prefix_cache_options& options) {
    require(options.host_bytes >= 0, "cache-host: ", options.host_bytes, "; it must be positive");
    require(options.disk_bytes >= 0, "cache-disk: ", options.disk_bytes, "; it must be positive");
    require(options.disk_bytes == 0 || !options.directory.empty(), "cache-dir: none; cache-disk, ", options.disk_bytes,
            " bytes, needs a directory");
    require(options.disk_bytes > 0 || options.directory.empty(), "cache-disk: 0; cache-dir, ", options.directory,
            ", needs its size");
    require(options.disk_bytes > 0 || options.compression == cache_compression::none,
            "cache-compress: ", name_of(options.compression), "; it is for files, and cache-disk is not given");
    require(options.disk_bytes > 0 || !options.quantised, "cache-8bit: it is for files, and cache-disk is not given");
}

std::int64_t host_cache_bytes(const prefix_cache_options& options) {
    if (options.host_bytes > 0) return options.host_bytes;
    return std::min(options.disk_bytes / 8, most_staging);
}

std::string describe_cache(const model_files& files, const runner_options& options, bool quantised) {
    std::ostringstream all;
    all << std::hexfloat << "imbrex " << IMBREX_VERSION_MAJOR << '.' << IMBREX_VERSION_MINOR << '.'
        << IMBREX_VERSION_PATCH << " config ";
    describe_config(all, files.config, options.context);
    all << " in " << name_of(options.where) << ' ' << name_of(options.weights) << ' '
        << (options.weights == weight_format::mixed ? options.bits_per_weight : 0) << ' '
        << name_of(kv_cache_format_on(options.where, options.kv_cache)) << ' ' << options.block_size << ' '
        << options.batch_invariant << ' ' << (quantised ? "8bit" : "exact") << " weights";
    for (const weight& each : files.weights.all()) {
        all << ' ' << each.name << ' ' << static_cast<int>(each.type) << ' ' << to_string(each.shape) << ' '
            << sample(each.bytes);
    }
    return all.str();
}

std::shared_ptr<disk_level> make_disk_level(const prefix_cache_options& options, const model_config& config,
                                            const runner_options& runner) {
    if (options.disk_bytes == 0) return {};
    const kv_cache_format format = kv_cache_format_on(runner.where, runner.kv_cache);
    const block_codec codec{.compression = options.compression,
                            .quantised = options.quantised,
                            .element = format == kv_cache_format::f16    ? cache_element::f16
                                       : format == kv_cache_format::bf16 ? cache_element::bf16
                                                                         : cache_element::other,
                            .columns = config.head_dim};
    return std::make_shared<disk_level>(disk_level_options{
        .directory = options.directory, .bytes = options.disk_bytes, .policy = options.policy, .codec = codec});
}

}  // namespace imbrex::engine
