// imbrex::rope, and imbrex::rope_ in place.
#include "rope_style.hpp"
#include "rows.hpp"

#include "../../bindings/calls/rope.hpp"

namespace imbrex_torch {

namespace {

using optional_tensor = std::optional<Tensor>;
constexpr row_layout layout = row_layout::heads_of_tokens;

// The arguments of both operators after x.
struct rotation {
    const optional_tensor& positions;  // of each token; without them tokens are numbered from first_position
    std::int64_t first_position;
    const Tensor& inv_freq;
    const std::string& style;
    double attention_factor;
};

void require_arguments(const Tensor& x, const rotation& by) {
    require_row_type(x, "x");
    require_same_device(x, {{"positions", by.positions}, {"inv_freq", by.inv_freq}});
    require_rank(x, "x", layout);
    TORCH_CHECK_TYPE(by.inv_freq.scalar_type() == at::kLong, "inv_freq.dtype: ", by.inv_freq.scalar_type(),
                     "; must be Long: 2^-64 turns per position");
    rope_style_of(by.style);
    if (!by.positions) return;
    TORCH_CHECK_TYPE(by.positions->scalar_type() == at::kInt, "positions.dtype: ", by.positions->scalar_type(),
                     "; must be Int");
    TORCH_CHECK_VALUE(by.positions->sizes() == x.sizes().slice(0, x.dim() - 2), "positions: shape ",
                      by.positions->sizes(), "; must be ", x.sizes().slice(0, x.dim() - 2), ", one for each token");
}

// `out` may be x.
void run(Tensor* x, Tensor* out, const rotation& by) {
    const Tensor inv_freq = by.inv_freq.contiguous();
    const optional_tensor positions = by.positions ? optional_tensor(by.positions->contiguous()) : std::nullopt;
    const auto rows = described_rows(layout, {{"x", x}, {"out", out}});
    const imbrex::bindings::rope_call call{
        .x = rows[0],
        .out = rows[1],
        .positions = described(positions ? optional_tensor(positions->view(-1)) : std::nullopt, "positions"),
        .first_position = by.first_position,
        .inv_freq = described(inv_freq, "inv_freq"),
        .style = rope_style_of(by.style),
        .attention_factor = static_cast<float>(by.attention_factor)};
    execution_on(*x).run("rope, " + type_name(*x, "x"), call);
}

Tensor rope(const Tensor& x_given, const optional_tensor& positions, std::int64_t first_position,
            const Tensor& inv_freq, const std::string& style, double attention_factor) {
    const rotation by{positions, first_position, inv_freq, style, attention_factor};
    require_arguments(x_given, by);
    Tensor x = x_given, out;
    if (collapses(x, layout)) {
        out = at::empty(x.sizes(), x.options());
    } else {
        x = out = x.contiguous();  // a copy, rotated in place
    }
    run(&x, &out, by);
    return out;
}

void rope_in_place(const Tensor& x_given, const optional_tensor& positions, std::int64_t first_position,
                   const Tensor& inv_freq, const std::string& style, double attention_factor) {
    const rotation by{positions, first_position, inv_freq, style, attention_factor};
    require_arguments(x_given, by);
    overwritten x(x_given);
    run(x.rows(), x.rows(), by);
    x.finish();
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def(
        "rope(Tensor x, Tensor? positions, SymInt first_position, Tensor inv_freq, str style, float attention_factor) "
        "-> Tensor");
    m.def(
        "rope_(Tensor(a!) x, Tensor? positions, SymInt first_position, Tensor inv_freq, str style, "
        "float attention_factor) -> ()");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("rope", rope);
    m.impl("rope_", rope_in_place);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("rope", rope);
    m.impl("rope_", rope_in_place);
}

}  // namespace imbrex_torch
