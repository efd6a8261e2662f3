#include "engine/grammar/string_formats.hpp"

namespace imbrex::engine {

namespace {

// February has 29 days in years that 4 divides and that end in no 00, and in those that 400 divides.
const std::string leap_year = "(?:[1-9]\\d(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)";
const std::string date =
    "(?:[1-9]\\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)"
    "|02-(?:0[1-9]|1\\d|2[0-8]))|" +
    leap_year + "-02-29)";
const std::string time = "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
const std::string label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?";
const std::string hostname = label + "(?:\\." + label + "){0,4}";
const std::string byte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const std::string ipv4 = "(?:" + byte + "\\.){3}" + byte;
const std::string hex = "[0-9a-fA-F]";
const std::string group = hex + "{1,4}";

// Eight groups; one run of zero groups may be "::".
std::string ipv6() {
    std::string all = "(?:" + group + ":){7}" + group;
    for (int before = 0; before < 8; ++before) {
        const std::string left = before == 0 ? "" : group + "(?::" + group + "){" + std::to_string(before - 1) + "}";
        const int after = 7 - before;
        const std::string right =
            after <= 0 ? "" : "(?:" + group + "(?::" + group + "){0," + std::to_string(after - 1) + "})?";
        all += "|" + left + "::" + right;
    }
    return "(?:" + all + ")";
}

}  // namespace

std::optional<std::string> regex_of_format(std::string_view format) {
    if (format == "date") return date;
    if (format == "time") return time;
    if (format == "date-time") return date + "T" + time;
    if (format == "duration") {
        const std::string clock = "T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S)";
        const std::string days = "(?:\\d{1,4}Y(?:\\d{1,4}M(?:\\d{1,4}D)?)?|\\d{1,4}M(?:\\d{1,4}D)?|\\d{1,4}D)";
        return "P(?:" + days + "(?:" + clock + ")?|" + clock + "|\\d{1,4}W)";
    }
    if (format == "email")
        return "[a-zA-Z0-9_+-]{1,30}(?:\\.[a-zA-Z0-9_+-]{1,30}){0,3}@" + label + "(?:\\." + label + "){1,3}";
    if (format == "hostname") return hostname;
    if (format == "ipv4") return ipv4;
    if (format == "ipv6") return ipv6();
    if (format == "uuid") return hex + "{8}-" + hex + "{4}-" + hex + "{4}-" + hex + "{4}-" + hex + "{12}";
    if (format == "uri")
        return "[a-z][a-z0-9+.-]{1,15}://" + hostname +
               "(?::[1-9]\\d{0,3})?(?:/[a-zA-Z0-9._~!$&'()*+,;=:@-]*)*(?:\\?[a-zA-Z0-9._~!$&'()*+,;=:@/?-]*)?"
               "(?:#[a-zA-Z0-9._~!$&'()*+,;=:@/?-]*)?";
    return std::nullopt;
}

}  // namespace imbrex::engine
