#include "evaluation/golden.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "io/checkpoint.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"

namespace triptych {
namespace {

constexpr std::int64_t kMaxId = std::numeric_limits<std::int32_t>::max();

std::vector<std::int32_t> read_ids(const JsonView& list) {
  std::vector<std::int32_t> out;
  for (const JsonView& item : list.items()) out.push_back(static_cast<std::int32_t>(item.as_int(0, kMaxId)));
  return out;
}

bool names_a_picture(const std::string& text, const std::filesystem::path& directory) {
  static constexpr std::string_view kEndings[] = {".png", ".jpg", ".jpeg", ".webp",
                                                  ".gif", ".bmp", ".ppm",  ".tiff"};
  const auto has_ending = [&](std::string_view ending) {
    return text.size() > ending.size() && text.ends_with(ending);
  };
  std::error_code ignored;
  return std::any_of(std::begin(kEndings), std::end(kEndings), has_ending) && is_plain_file_name(text) &&
         std::filesystem::is_regular_file(directory / text, ignored);
}

GoldenPart read_part(const JsonView& part, const std::filesystem::path& directory) {
  if (part.is_string()) {
    const std::string text = part.as_string();
    return {names_a_picture(text, directory), text};
  }
  if (const auto text = part.find("text")) return {false, text->as_string()};
  const JsonView image = part.at("image");
  if (!is_plain_file_name(image.as_string())) image.fail_expected("the name of a file in the directory");
  return {true, image.as_string()};
}

GoldenCase read_case(const JsonView& json, const std::filesystem::path& directory) {
  GoldenCase out;
  out.name = json.at("name").as_string();
  if (!is_plain_file_name(out.name)) json.at("name").fail_expected("a name that can be a file's");
  const JsonView parts = json.has("parts") ? json.at("parts") : json.at("content");
  for (const JsonView& part : parts.items()) out.parts.push_back(read_part(part, directory));
  out.is_video = json.get_bool("video", false);
  out.frames_per_s = json.get_double("fps", 0.0);
  out.media_options.min_pixels = json.get_int("min_pixels", 0, 0);
  out.media_options.max_pixels = json.get_int("max_pixels", 0, 0);
  if (const auto prompt = json.find("prompt")) out.prompt = prompt->as_string();
  if (const auto ids = json.find("input_ids")) out.input_ids = read_ids(*ids);
  if (const auto ids = json.find("generated_ids")) out.generated_ids = read_ids(*ids);
  if (const auto margins = json.find("margins"))
    for (const JsonView& margin : margins->items()) out.margins.push_back(margin.as_double());
  if (const auto text = json.find("text")) out.text = text->as_string();
  return out;
}

TensorView checked_logits(const std::string& file, const std::string& name, const TensorView& view) {
  if (view.dtype() != DType::kF32 || view.rank() != 2)
    fail(ErrorCode::kInvalidFile, "{}: {}: expected float32 [rows, vocabulary], got {} {}", file, name,
         to_string(view.dtype()), to_string(view.shape()));
  return view;
}

std::vector<std::int32_t> ids_of(const std::string& file, const WeightEntry& entry) {
  if (entry.view.dtype() != DType::kI64)
    fail(ErrorCode::kInvalidFile, "{}: {}: expected I64, got {}", file, entry.name,
         to_string(entry.view.dtype()));
  const auto* values = entry.view.as<std::int64_t>();
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < entry.view.numel(); ++i) {
    if (values[i] < 0 || values[i] > kMaxId)
      fail(ErrorCode::kInvalidFile, "{}: {}[{}]: {} is no token id", file, entry.name, i, values[i]);
    out.push_back(static_cast<std::int32_t>(values[i]));
  }
  return out;
}

// Sorts the tensors of a case by what they are. `prefix` is "<name>." in the older form, where taps have no
// "tap.".
void take_tensors(GoldenCase& out, const WeightTable& table, const std::string& file,
                  const std::string& prefix) {
  for (const WeightEntry& entry : table) {
    if (!entry.name.starts_with(prefix)) continue;
    const std::string name = entry.name.substr(prefix.size());
    if (name == "logits") {
      out.logits = checked_logits(file, name, entry.view);
    } else if (name == "step_logits") {
      out.step_logits = checked_logits(file, name, entry.view);
    } else if (name.starts_with("input.")) {
      out.inputs.push_back({name.substr(6), entry.view});
    } else if (name.starts_with("tap.")) {
      out.taps.push_back({name.substr(4), entry.view});
    } else if (prefix.empty()) {
      fail(ErrorCode::kInvalidFile, "{}: unknown tensor {}", file, entry.name);
    } else if (name == "input_ids") {
      out.input_ids = ids_of(file, entry);
    } else if (name == "pixel_values") {
      out.inputs.push_back({name, entry.view});
    } else if (name != "generated_ids") {
      out.taps.push_back({name, entry.view});
    }
  }
}

}  // namespace

GoldenSet read_golden(const std::filesystem::path& directory) {
  GoldenSet out;
  out.directory = directory;
  const Json document = parse_json(read_text_file(directory / "golden.json"), "golden.json");
  const JsonView root(document, "golden.json");
  out.reference = root.get_string("reference", root.get_string("source", "unknown"));
  std::error_code ignored;
  const bool one_file = std::filesystem::exists(directory / "golden.safetensors", ignored);
  if (one_file) out.tables.push_back(read_safetensors(directory / "golden.safetensors"));
  for (const JsonView& item : root.at("cases").items()) {
    GoldenCase one = read_case(item, directory);
    if (one_file) {
      take_tensors(one, out.tables.front(), "golden.safetensors", one.name + ".");
    } else {
      const std::string file = one.name + ".safetensors";
      out.tables.push_back(read_safetensors(directory / file));
      take_tensors(one, out.tables.back(), file, "");
    }
    out.cases.push_back(std::move(one));
  }
  if (out.cases.empty()) root.at("cases").fail_expected("at least one case");
  return out;
}

std::filesystem::path find_golden(const std::filesystem::path& directory) {
  std::error_code ignored;
  for (const std::filesystem::path& place : {directory, directory / "golden"})
    if (std::filesystem::is_regular_file(place / "golden.json", ignored)) return place;
  fail(ErrorCode::kNotFound,
       "no golden.json in {} nor in its folder \"golden\"; tools/make_golden.py makes one",
       directory.string());
}

}  // namespace triptych
