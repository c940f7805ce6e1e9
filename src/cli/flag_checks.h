// Checks of a flag's value that say what was expected: the parser's own messages do not.
#pragma once

#include <string>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace triptych::cli {

/// A number in [low, high]; NaN is not.
CLI::Validator is_within(double low, double high);
/// Anything but "": an empty variable of a script is no value.
CLI::Validator is_not_empty();
/// A whole number of 64 bits: the parser itself takes -1 for the largest, and wraps beyond it.
CLI::Validator is_unsigned_64();
/// Of these types, where the range is said elsewhere.
CLI::Validator is_number();
CLI::Validator is_int_32(const char* expected);

/// What holds for every verb of `program`: a flag takes one value each time it is given, one that may be
/// repeated too, so that a positional behind it stays one; of two values of any other flag the last counts; a
/// value is not empty, but for texts, which may be.
void settle_values(CLI::App& program);

}  // namespace triptych::cli
