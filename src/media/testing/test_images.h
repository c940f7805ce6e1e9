// Reference pictures for tests: files and tensors below tests/data/images (its README says how they were
// made).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/cpu_info.h"
#include "base/json.h"
#include "media/image.h"
#include "support/source_dir.h"

namespace triptych::testing {

inline std::filesystem::path image_data() { return test::source_dir() / "tests/data/images"; }

inline std::vector<std::byte> read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

inline Json read_json(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = read_bytes(path);
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

/// The uint8 [H, W, 3] tensors of a safetensors file, by name. (A reader for trusted test data only.)
inline std::map<std::string, Image> read_images(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = read_bytes(path);
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < 8; ++i) n |= std::to_integer<std::uint64_t>(bytes.at(i)) << (8 * i);
  const Json header = parse_json({reinterpret_cast<const char*>(bytes.data()) + 8, n}, path.string());
  std::map<std::string, Image> images;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry.at("data_offsets").at(0).get<std::size_t>() + 8 + n;
    const auto end = entry.at("data_offsets").at(1).get<std::size_t>() + 8 + n;
    Image image{entry.at("shape").at(1).get<int>(), entry.at("shape").at(0).get<int>(), {}};
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    image.rgb.assign(data + begin, data + end);
    images.emplace(name, std::move(image));
  }
  return images;
}

/// Where two pictures differ, for messages.
struct Difference {
  std::size_t n_different = 0;
  int largest = 0;
  std::size_t first = 0;  // index into rgb
};

inline Difference compare(const Image& a, const Image& b) {
  Difference difference;
  EXPECT_EQ(a.width_px, b.width_px);
  EXPECT_EQ(a.height_px, b.height_px);
  if (a.rgb.size() != b.rgb.size()) return {1, 255, 0};
  for (std::size_t i = 0; i < a.rgb.size(); ++i) {
    const int d = std::abs(int{a.rgb[i]} - int{b.rgb[i]});
    if (d != 0 && difference.n_different++ == 0) difference.first = i;
    if (d > difference.largest) difference.largest = d;
  }
  return difference;
}

inline void expect_same(const Image& got, const Image& want, int tolerance, const std::string& what) {
  const Difference d = compare(got, want);
  if (d.largest <= tolerance) return;
  ADD_FAILURE() << what << ": " << d.n_different << " of " << want.rgb.size() << " bytes differ, at most by "
                << d.largest << "; first at index " << d.first << ": got " << int{got.rgb.at(d.first)}
                << ", expected " << int{want.rgb.at(d.first)};
}

/// Sets the instruction sets back at the end of a scope.
class IsaScope {
 public:
  IsaScope() : before_(active_features()) {}
  ~IsaScope() { set_active_features(before_); }
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  CpuFeatures before_;
};

/// Pixels from a fixed generator, half of them only 0 or 255 (these reach the clipping).
inline Image noise(int width_px, int height_px, std::uint32_t seed) {
  Image image{width_px, height_px, {}};
  image.rgb.resize(image.row_bytes() * static_cast<std::size_t>(height_px));
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::uint8_t& px : image.rgb) {
    state = state * 1664525U + 1013904223U;
    const auto byte = static_cast<std::uint8_t>(state >> 24);
    px = (seed & 1) != 0 ? static_cast<std::uint8_t>(byte < 128 ? 0 : 255) : byte;
  }
  return image;
}

}  // namespace triptych::testing
