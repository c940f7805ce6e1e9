// What is said about a command line that cannot be understood.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace triptych::cli {

/// "no verb is named "rnu"; did you mean run? (see triptych --help)".
std::string unknown_verb(const CLI::App& program, std::string_view word);

/// Names the flag that is not known, and the one that may have been meant; else what the parser says.
std::string usage_error(const CLI::App& program, const CLI::ParseError& error);

}  // namespace triptych::cli
