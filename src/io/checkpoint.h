// A checkpoint directory as published: config.json, weights in one of the usual layouts, and small files
// beside them. Weights, first match: model.safetensors.index.json and its shards; model.safetensors;
// pytorch_model.bin.index.json and its shards; pytorch_model.bin; one other *.safetensors file. Files that an
// index does not name are ignored. Names come from outside, so a file is opened only when its name is a plain
// base name of a regular file in the directory.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/checkpoint_links.h"
#include "base/json.h"
#include "tensor/weight_table.h"

namespace triptych {

struct CheckpointOptions {
  LinkPolicy links = LinkPolicy::kAllowHubCache;
  bool load_weights = true;  // false: config and small files only
};

/// weight_map of an index: tensor -> file, checked to be plain base names. `text` is the JSON. For Checkpoint
/// and fuzzing.
std::map<std::string, std::string> parse_weight_index(std::string_view text, std::string_view source);

/// True for what may be a file in a checkpoint: not empty, no '/', '\\', NUL or control character, not "." or
/// "..".
bool is_plain_file_name(std::string_view name) noexcept;

class Checkpoint {
 public:
  /// Throws Error(kNotFound) naming what is missing (every missing shard at once), kInvalidFile for broken
  /// files, kUnsupported for a folder with an adapter (adapter_config.json, adapter_model.*).
  static Checkpoint open(const std::filesystem::path& directory, const CheckpointOptions& options = {});

  const std::filesystem::path& directory() const noexcept { return directory_; }
  const Json& config() const noexcept { return *config_; }
  /// config() with the path "config.json" for error messages; valid while the checkpoint lives.
  JsonView config_view() const { return JsonView(*config_, "config.json"); }
  WeightTable& weights() noexcept { return weights_; }
  const WeightTable& weights() const noexcept { return weights_; }
  /// Base names of the files the weights came from.
  const std::vector<std::string>& weight_files() const noexcept { return weight_files_; }

  /// Path of a file of the directory after all checks; nothing when absent. `name` may come from a config.
  /// Throws Error(kInvalidFile) that names `name` when it is no plain base name, no regular file, or a link
  /// that leads outside.
  std::optional<std::filesystem::path> file(std::string_view name) const;
  /// Its contents (64 MiB at most).
  std::optional<std::string> text_file(std::string_view name) const;
  /// Its contents as JSON.
  std::optional<Json> json_file(std::string_view name) const;

 private:
  void refuse_adapters() const;
  void load_weights();
  void load_sharded(const std::string& index_name, const std::string& index_text, bool is_torch);
  std::optional<std::string> other_safetensors() const;

  std::filesystem::path directory_;
  LinkPolicy links_ = LinkPolicy::kAllowHubCache;
  std::shared_ptr<const Json> config_;
  WeightTable weights_;
  std::vector<std::string> weight_files_;
};

}  // namespace triptych
