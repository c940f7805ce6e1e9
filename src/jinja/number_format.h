// Numbers as text with a precision, shared by % formatting, str.format and round.
#pragma once

#include <cstdint>
#include <string>

namespace triptych::jinja {

/// printf's e, f or g (upper case allowed) without sign handling: digits of |value|. `alternate` keeps the
/// point (#).
std::string float_digits(double value, char type, int precision, bool alternate);

/// Digits of a magnitude in base 2, 8, 10 or 16.
std::string integer_digits(std::uint64_t magnitude, unsigned base, bool upper);

/// Python's round(value, digits) of a float: correctly rounded decimal, ties to even.
double round_decimal(double value, int digits);

constexpr int kMaxPrecision = 1000;

}  // namespace triptych::jinja
