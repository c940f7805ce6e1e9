#include "cli/flag_checks.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdint>

#include <CLI/CLI.hpp>

namespace triptych::cli {
namespace {

// Where what is allowed is said elsewhere: the parser's own message does not say what was expected.
template <typename T>
CLI::Validator is_a(const char* what) {
  return CLI::Validator(
      [what](const std::string& text) -> std::string {
        T value{};
        const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
        return whole ? "" : fmt::format("expected {}, got \"{}\"", what, text);
      },
      "");
}

}  // namespace

CLI::Validator is_within(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) -> std::string {
        double value = 0;
        const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
        return whole && value >= low && value <= high
                   ? ""
                   : fmt::format("expected a number from {} to {}, got {}", low, high, text);
      },
      "");
}

CLI::Validator is_not_empty() {
  return CLI::Validator(
      [](const std::string& text) -> std::string { return text.empty() ? "expected a value, got \"\"" : ""; },
      "");
}

CLI::Validator is_unsigned_64() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        std::uint64_t value = 0;
        const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
        return whole ? "" : "expected a whole number from 0 to 18446744073709551615, got " + text;
      },
      "");
}

CLI::Validator is_number() { return is_a<double>("a number"); }
CLI::Validator is_int_32(const char* expected) { return is_a<std::int32_t>(expected); }

void settle_values(CLI::App& program) {
  for (CLI::App* verb : program.get_subcommands([](const CLI::App*) { return true; }))
    for (CLI::Option* option : verb->get_options()) {
      const bool takes_value = option->get_items_expected_max() > 0;
      const bool is_text = option->check_lname("prompt") || option->check_lname("system");
      if (takes_value && !is_text) option->check(is_not_empty());
      if (option->get_positional()) continue;
      if (takes_value) option->allow_extra_args(false);
      if (option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw &&
          option->get_expected_max() <= 1)
        option->take_last();
    }
}

}  // namespace triptych::cli
