#include "tensor/quant_format.h"

#include <charconv>

#include "base/error.h"

namespace triptych {
namespace {

struct CodeName {
  QuantCode code;
  std::string_view name;
};
constexpr CodeName kCodes[] = {{QuantCode::kInt8, "int8"},
                               {QuantCode::kInt4, "int4"},
                               {QuantCode::kNf4, "nf4"},
                               {QuantCode::kF8E4M3, "fp8_e4m3"},
                               {QuantCode::kF8E5M2, "fp8_e5m2"}};

struct RangeName {
  QuantRange range;
  std::string_view name;
};
constexpr RangeName kRanges[] = {{QuantRange::kFullRange, "sym"},
                                 {QuantRange::kAbsMax, "absmax"},
                                 {QuantRange::kHalfStep, "half"},
                                 {QuantRange::kAsymmetric, "asym"}};

std::string_view name_of(DType dtype) {
  return dtype == DType::kF32 ? "fp32" : dtype == DType::kBF16 ? "bf16" : "fp16";
}

// What a kind has when nothing more is said.
QuantFormat defaults_of(QuantCode code) {
  QuantFormat out;
  out.code = code;
  if (code == QuantCode::kInt4) {
    out.group_size = 128;
    out.range = QuantRange::kFullRange;
  }
  if (code == QuantCode::kNf4) out.group_size = 64;
  return out;
}

bool take_range(QuantFormat& format, std::string_view part) {
  for (const RangeName& r : kRanges)
    if (part == r.name) {
      if (format.code != QuantCode::kInt4 && part != "sym")
        fail(ErrorCode::kInvalidArgument, "quantization \"{}\": only int4 has a range to choose", part);
      if (format.code == QuantCode::kInt4) format.range = r.range;
      return true;
    }
  return false;
}

bool take_group(QuantFormat& format, std::string_view part) {
  if (part == "channel") {
    format.group_size = QuantFormat::kWholeRow;
    return true;
  }
  if (part.size() < 2 || part[0] != 'g') return false;
  std::int64_t n = 0;
  const auto end = std::from_chars(part.data() + 1, part.data() + part.size(), n);
  if (end.ec != std::errc() || end.ptr != part.data() + part.size()) return false;
  if (n == 0)
    fail(ErrorCode::kInvalidArgument, "quantization \"g0\": expected a group of 16 to 65536 elements");
  format.group_size = n;
  return true;
}

}  // namespace

std::int64_t QuantFormat::n_groups(std::int64_t k) const noexcept {
  if (k == 0) return 0;
  const std::int64_t group = group_of_row(k);
  return (k + group - 1) / group;
}

std::int64_t QuantFormat::row_scale_bytes(std::int64_t k) const noexcept {
  const auto wide = static_cast<std::int64_t>(triptych::size_bytes(scale_dtype));
  return two_level ? n_groups(k) + wide : n_groups(k) * wide;
}

std::int64_t QuantFormat::matrix_bytes(std::int64_t n, std::int64_t k) const noexcept {
  return n * (row_code_bytes(k) + row_scale_bytes(k) + row_zero_bytes(k));
}

double QuantFormat::bits_per_weight(std::int64_t k) const noexcept {
  return k == 0 ? 0 : static_cast<double>(matrix_bytes(1, k)) * 8 / static_cast<double>(k);
}

void QuantFormat::validate() const {
  if (group_size != kWholeRow && (group_size < 16 || group_size > 65536 || group_size % 2 != 0))
    fail(ErrorCode::kInvalidArgument,
         "quantization group of {} elements: expected an even number from 16 to 65536, or the whole row",
         group_size);
  if (scale_dtype != DType::kF16 && scale_dtype != DType::kBF16 && scale_dtype != DType::kF32)
    fail(ErrorCode::kInvalidArgument, "quantization scales of type {}: expected F16, BF16 or F32",
         triptych::to_string(scale_dtype));
  if (two_level && code != QuantCode::kInt4)
    fail(ErrorCode::kInvalidArgument, "only int4 has scales of two levels");
  if (code != QuantCode::kInt4 && range != QuantRange::kAbsMax)
    fail(ErrorCode::kInvalidArgument, "only int4 has a range to choose");
}

std::string QuantFormat::to_string() const {
  std::string out;
  for (const CodeName& c : kCodes)
    if (c.code == code) out = c.name;
  out += group_size == kWholeRow ? ":channel" : fmt::format(":g{}", group_size);
  if (code == QuantCode::kInt4)
    for (const RangeName& r : kRanges)
      if (r.range == range) out.append(":").append(r.name);
  if (scale_dtype != DType::kF16) out.append(":").append(name_of(scale_dtype));
  if (two_level) out += ":two-level";
  return out;
}

QuantFormat QuantFormat::parse(std::string_view text) {
  const std::string_view kind = text.substr(0, text.find(':'));
  const CodeName* found = nullptr;
  for (const CodeName& c : kCodes)
    if (c.name == kind || (kind == "fp8" && c.code == QuantCode::kF8E4M3)) {
      found = &c;
      break;
    }
  if (found == nullptr)
    fail(ErrorCode::kInvalidArgument, "quantization \"{}\": expected int8, int4, nf4, fp8_e4m3 or fp8_e5m2",
         kind);
  QuantFormat out = defaults_of(found->code);
  std::string_view rest = text.substr(kind.size());
  bool has_group = false, has_range = false, has_scale = false, has_levels = false;
  const auto once = [&](bool& seen, const char* what) {
    if (seen) fail(ErrorCode::kInvalidArgument, "quantization \"{}\": {} is given twice", text, what);
    seen = true;
  };
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view part = rest.substr(0, rest.find(':'));
    rest.remove_prefix(part.size());
    if (take_group(out, part)) {
      once(has_group, "the group (gN or channel)");
      continue;
    }
    if (take_range(out, part)) {
      once(has_range, "the range (sym, absmax, half or asym)");
      continue;
    }
    if (part == "two-level") {
      once(has_levels, "two-level");
    } else if (part == "fp16" || part == "bf16" || part == "fp32") {
      once(has_scale, "the type of scales (fp16, bf16 or fp32)");
    }
    if (part == "fp16") {
      out.scale_dtype = DType::kF16;
    } else if (part == "bf16") {
      out.scale_dtype = DType::kBF16;
    } else if (part == "fp32") {
      out.scale_dtype = DType::kF32;
    } else if (part == "two-level") {
      out.two_level = true;
    } else {
      fail(ErrorCode::kInvalidArgument,
           "quantization \"{}\": \"{}\" is unknown; expected gN, channel, sym, absmax, half, asym, fp16, "
           "bf16, fp32 or "
           "two-level",
           text, part);
    }
  }
  out.validate();
  return out;
}

}  // namespace triptych
