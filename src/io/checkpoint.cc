#include "io/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "io/folder_kind.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"
#include "io/torch_zip.h"
#include "io/untrusted_text.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxListed = 40;
constexpr std::size_t kMaxPointer_bytes = 1024;  // of git-lfs

std::string list_names(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (shown.size() == kMaxListed) {
      shown.push_back(fmt::format("and {} more", names.size() - kMaxListed));
      break;
    }
    shown.push_back(show_name(name));
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

bool has_suffix(std::string_view name, std::string_view suffix) {
  return name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix;
}

// True for "<stem>-00002-of-00010<suffix>": one piece of several.
bool is_shard_name(std::string_view name, std::string_view suffix) {
  if (!has_suffix(name, suffix)) return false;
  name.remove_suffix(suffix.size());
  const auto of = name.rfind("-of-");
  if (of == std::string_view::npos) return false;
  const std::string_view total = name.substr(of + 4);
  const auto is_digits = [](std::string_view text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  const auto dash = name.substr(0, of).rfind('-');
  const bool is_single = is_digits(total) &&
                         total.substr(0, total.size() - 1).find_first_not_of('0') == std::string_view::npos &&
                         total.back() <= '1';
  return is_digits(total) && !is_single && dash != std::string_view::npos &&
         is_digits(name.substr(dash + 1, of - dash - 1));
}

// The format follows from the name of the index or of the usual file, not from the file itself.
WeightTable read_weights(const fs::path& path, std::string_view name, bool is_torch) {
  const auto file = MappedFile::open(path);
  const std::string_view start(reinterpret_cast<const char*>(file->data()),
                               std::min(file->size_bytes(), kMaxPointer_bytes));
  if (is_lfs_pointer(start)) fail(ErrorCode::kInvalidFile, "{}: {}", show_name(name), lfs_message(start));
  WeightTable out =
      is_torch ? read_torch_zip(file->bytes(), file, name) : read_safetensors(file->bytes(), file, name);
  out.mark_mapped(file->bytes());
  return out;
}

}  // namespace

bool is_plain_file_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f && c != '/' && c != '\\';
  });
}

std::map<std::string, std::string> parse_weight_index(std::string_view text, std::string_view source) {
  const Json json = parse_json_unique_keys(text, source);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object() ||
      json["weight_map"].empty())
    fail(ErrorCode::kInvalidFile, "{}: expected an object \"weight_map\" from tensor names to file names",
         source);
  std::map<std::string, std::string> out;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>()))
      fail(ErrorCode::kInvalidFile,
           "{}: weight_map: {}: expected the name of a file in the same folder, got {}", source,
           show_name(tensor), file.is_string() ? show_name(file.get_ref<const std::string&>()) : "no string");
    out.emplace(tensor, file.get<std::string>());
  }
  return out;
}

Checkpoint Checkpoint::open(const fs::path& directory, const CheckpointOptions& options) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (status.type() == fs::file_type::not_found)
    fail(ErrorCode::kNotFound, "{}: {}", directory.string(), why_no_checkpoint(directory));
  if (status.type() != fs::file_type::directory)
    fail(ErrorCode::kInvalidArgument, "{}: {}", directory.string(), why_no_checkpoint(directory));
  Checkpoint out;
  out.directory_ = fs::canonical(directory, error);
  if (error) fail(ErrorCode::kIo, "{}: {}", directory.string(), error.message());
  out.links_ = options.links;
  out.refuse_adapters();
  std::optional<Json> config = out.json_file("config.json");
  if (!config) fail(ErrorCode::kNotFound, "{}: {}", directory.string(), why_no_checkpoint(directory));
  if (!config->is_object()) fail(ErrorCode::kInvalidFile, "config.json: expected an object");
  out.config_ = std::make_shared<const Json>(std::move(*config));
  if (options.load_weights) out.load_weights();
  return out;
}

std::optional<fs::path> Checkpoint::file(std::string_view name) const {
  if (!is_plain_file_name(name))
    fail(ErrorCode::kInvalidFile, "{}: expected the name of a file in the checkpoint folder",
         show_name(name));
  fs::path path = directory_ / fs::path(name);
  std::error_code error;
  fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::symlink) {
    const fs::path target = fs::canonical(path, error);
    if (error == std::errc::no_such_file_or_directory) return std::nullopt;  // its target is missing
    if (error)
      fail(ErrorCode::kInvalidFile, "{}: the link cannot be followed: {}", show_name(name), error.message());
    if (!may_lead_to(directory_, target, links_))
      fail(ErrorCode::kInvalidFile, "{}: the link leads out of the checkpoint folder", show_name(name));
    path = target;
    status = fs::symlink_status(path, error);
  }
  switch (status.type()) {
    case fs::file_type::not_found:
      return std::nullopt;
    case fs::file_type::regular:
      return path;
    case fs::file_type::none:
      fail(ErrorCode::kIo, "{}: cannot be looked at: {}", show_name(name), error.message());
    default:
      fail(ErrorCode::kInvalidFile, "{}: expected a regular file", show_name(name));
  }
}

std::optional<std::string> Checkpoint::text_file(std::string_view name) const {
  const std::optional<fs::path> path = file(name);
  if (!path) return std::nullopt;
  std::string text = read_text_file(*path);
  if (is_lfs_pointer(text)) fail(ErrorCode::kInvalidFile, "{}: {}", show_name(name), lfs_message(text));
  return text;
}

std::optional<Json> Checkpoint::json_file(std::string_view name) const {
  const std::optional<std::string> text = text_file(name);
  if (!text) return std::nullopt;
  return parse_json(*text, name);
}

// The one *.safetensors file that a folder without the usual names may hold. Shards without their index are
// refused: one of them may be missing.
std::optional<std::string> Checkpoint::other_safetensors() const {
  std::vector<std::string> names;
  std::vector<std::string> shards;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (is_shard_name(name, ".safetensors") || is_shard_name(name, ".bin")) {
      shards.push_back(name);
    } else if (has_suffix(name, ".safetensors") && !it->is_directory(error)) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  std::sort(shards.begin(), shards.end());
  if (!shards.empty())
    fail(ErrorCode::kNotFound,
         "{}: the weights are in pieces ({}), but their index (model.safetensors.index.json or "
         "pytorch_model.bin.index.json) is missing",
         directory_.string(), list_names(shards));
  if (names.size() > 1)
    fail(ErrorCode::kInvalidFile, "{}: expected model.safetensors or one weight file, found {}",
         directory_.string(), list_names(names));
  if (names.empty()) return std::nullopt;
  return names.front();
}

// An adapter changes the weights it is loaded over, as the reference does without being asked; left out, the
// answers would be another model's.
void Checkpoint::refuse_adapters() const {
  for (const std::string_view name :
       {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"})
    if (file(name))
      fail(ErrorCode::kUnsupported,
           "{}: {}: adapters are not applied; expected weights that the adapter is merged into, without its "
           "files",
           directory_.string(), name);
}

void Checkpoint::load_weights() {
  for (const bool is_torch : {false, true}) {
    const std::string name = is_torch ? "pytorch_model.bin" : "model.safetensors";
    const std::string index = name + ".index.json";
    if (const auto text = text_file(index)) return load_sharded(index, *text, is_torch);
    if (const auto path = file(name)) {
      weights_ = read_weights(*path, name, is_torch);
      weight_files_ = {name};
      return;
    }
  }
  const std::optional<std::string> other = other_safetensors();
  if (!other)
    fail(ErrorCode::kNotFound,
         "{}: no weights: expected model.safetensors, pytorch_model.bin or the index of one",
         directory_.string());
  const std::optional<fs::path> path = file(*other);
  if (!path)
    fail(ErrorCode::kNotFound, "{}: {} is a link to a missing file", directory_.string(), show_name(*other));
  weights_ = read_weights(*path, *other, false);
  weight_files_ = {*other};
}

void Checkpoint::load_sharded(const std::string& index_name, const std::string& index_text, bool is_torch) {
  const std::map<std::string, std::string> index = parse_weight_index(index_text, index_name);
  std::set<std::string> names;
  for (const auto& [tensor, name] : index) names.insert(name);
  std::vector<fs::path> paths;
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (std::optional<fs::path> path = file(name)) {
      paths.push_back(std::move(*path));
    } else {
      missing.push_back(name);
    }
  }
  if (!missing.empty())
    fail(ErrorCode::kNotFound, "{}: {} of {} weight files named by {} are missing: {}", directory_.string(),
         missing.size(), names.size(), index_name, list_names(missing));

  std::vector<std::string> unlisted;
  auto path = paths.cbegin();
  for (const std::string& name : names) {
    WeightTable shard = read_weights(*path++, name, is_torch);
    // The index decides where a tensor is; copies elsewhere and left-overs are not part of the checkpoint.
    shard.erase_if([&](const WeightEntry& entry) {
      const auto listed = index.find(entry.name);
      if (listed != index.end() && listed->second == name) return false;
      unlisted.push_back(entry.name);
      return true;
    });
    weights_.merge(std::move(shard));
  }
  weight_files_.assign(names.begin(), names.end());
  std::vector<std::string> absent;
  for (const auto& [tensor, name] : index)
    if (!weights_.contains(tensor)) absent.push_back(tensor);
  if (!absent.empty())
    fail(ErrorCode::kInvalidFile, "{}: {} tensors are not in the files that {} names: {}",
         directory_.string(), absent.size(), index_name, list_names(absent));
  if (!unlisted.empty())
    log_warning("{}: {} tensors are ignored, {} does not list them for their file: {}", directory_.string(),
                unlisted.size(), index_name, list_names(unlisted));
}

}  // namespace triptych
