// Reads protocol buffers, field by field, with bounds checks: for SentencePiece's model files, which need no more.
//
//   for (protobuf_reader fields(bytes, name); const auto field = fields.next();)
//       if (field->number == 1) text = field->text;
#pragma once

#include <bit>
#include <cstdint>
#include <imbrex/core/error.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace imbrex::engine {

struct protobuf_field {
    enum class wire_type { varint = 0, fixed64 = 1, length_delimited = 2, fixed32 = 5 };
    std::uint32_t number;
    wire_type type;
    std::uint64_t value;    // of a number
    std::string_view text;  // of a string, bytes or a message; points into the input
};

class protobuf_reader {
  public:
    protobuf_reader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

    // The next field; nothing at the end.
    std::optional<protobuf_field> next() {
        if (bytes_.empty()) return {};
        const std::uint64_t key = varint();
        const auto type = static_cast<protobuf_field::wire_type>(key & 7);
        require(key >> 3 > 0 && key >> 3 < 1u << 29, name_, ": field number ", key >> 3, " is not allowed");
        protobuf_field field{static_cast<std::uint32_t>(key >> 3), type, 0, {}};
        switch (type) {
            case protobuf_field::wire_type::varint:
                field.value = varint();
                return field;
            case protobuf_field::wire_type::fixed64:
                field.value = fixed(8);
                return field;
            case protobuf_field::wire_type::fixed32:
                field.value = fixed(4);
                return field;
            case protobuf_field::wire_type::length_delimited:
                field.text = take(varint());
                return field;
        }
        require(false, name_, ": wire type ", key & 7, "; 0, 1, 2 and 5 are known");
        return {};
    }

  private:
    std::string_view take(std::uint64_t length) {
        require(length <= bytes_.size(), name_, ": a field has ", length, " bytes; only ", bytes_.size(), " follow");
        const std::string_view taken = bytes_.substr(0, length);
        bytes_.remove_prefix(length);
        return taken;
    }

    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const auto byte = static_cast<unsigned char>(take(1)[0]);
            value |= std::uint64_t{byte & 0x7fu} << shift;
            if (byte < 0x80) return value;
        }
        require(false, name_, ": a number has more than 10 bytes");
        return 0;
    }

    std::uint64_t fixed(std::size_t length) {
        const std::string_view bytes = take(length);
        std::uint64_t value = 0;
        for (std::size_t i = length; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
        return value;
    }

    std::string_view bytes_;
    const std::string& name_;
};

}  // namespace imbrex::engine
