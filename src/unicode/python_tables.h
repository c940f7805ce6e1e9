// Tables behind unicode/python.h; written by tools/make_python_tables.py.
#pragma once

#include <span>

namespace triptych::python {

/// Full case mappings that are longer than one code point, UTF-8. Sorted by code point.
struct SpecialCase {
  char32_t code_point;
  const char* upper;
  const char* title;
  const char* fold;
};

/// Inclusive. Tables are sorted.
struct CodePointRange {
  char32_t first;
  char32_t last;
};

extern const std::span<const SpecialCase> kSpecialCases;
extern const std::span<const CodePointRange> kOtherLowercase;
extern const std::span<const CodePointRange> kOtherUppercase;
extern const std::span<const CodePointRange> kOtherDigits;
extern const std::span<const CodePointRange> kOtherNumerics;

}  // namespace triptych::python
