// A directory that `triptych convert` wrote (docs/format.md): config.json with a quantization_config of the
// method "triptych", model.safetensors, triptych.json, and the small files of the original checkpoint.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "engine/load.h"
#include "io/checkpoint.h"
#include "weights/packed_weights.h"

namespace triptych {

inline constexpr const char* kPackedIndexFile = "triptych.json";

/// Whether config.json says that the directory was converted, in whatever version.
bool is_packed_directory(const Json& config);
/// The quant_method of a quantization_config that another program wrote, e.g. "gptq"; nothing when there is
/// none.
std::optional<std::string> foreign_quantization(const JsonView& config);

/// What quantization_config says. Throws Error(kUnsupported) for another version, kInvalidFile naming a
/// field.
struct PackedConfig {
  WeightFormats formats;
  std::optional<DType> dtype;  // to which other matrices were converted
  bool tie_word_embeddings = false;
  std::string index_digest, header_digest;

  Json to_json() const;
  static PackedConfig parse(const JsonView& quantization_config);
};

/// triptych.json, checked against config.json and the weight file: versions, both checksums, every tensor
/// known. Values of tensors are not read; see check_packed_weights. Throws Error.
PackedIndex read_packed_index(const Checkpoint& checkpoint, const PackedConfig& config);

/// Throws Error(kInvalidArgument) when `asked` names formats or a type other than the stored ones.
void check_same_formats(const PackedConfig& stored, const LoadOptions& asked);

/// Reads all tensors, compares their checksums and looks at the scales inside panels. Throws
/// Error(kInvalidFile) naming the tensors that differ, or a scale that is not finite.
void check_packed_weights(const Checkpoint& checkpoint, ThreadPool& pool);

/// Throws Error(kInvalidArgument) unless `to` may be written: it does not exist, is an empty folder, or holds
/// a converted checkpoint and `replace` is set; and holds none of `inputs`.
void check_convert_target(const std::vector<std::filesystem::path>& inputs, const std::filesystem::path& to,
                          bool replace);
/// Renames a complete folder to `to`, which check_convert_target allows. Throws Error(kIo); `to` is as it was
/// then.
void move_directory(const std::filesystem::path& from, const std::filesystem::path& to, bool replace);

struct ConvertOptions {
  LoadOptions load;  // weight_formats or weight_dtype say to what
  /// What the directory says its parts are kept as, where linears come quantized already
  /// (LoadOptions::replaced_weights); empty: load.weight_formats.
  std::optional<WeightFormats> stated_formats = {};
  bool replace = false;  // a converted checkpoint in OUT; nothing else is replaced
  /// With pictures the ranges of the tower's activations are found first and stored (engine/calibrate.h); its
  /// weights must become int8.
  std::vector<MediaInput> calibration_pictures = {};
  std::function<void(std::int64_t n_done, std::int64_t n_runs)> calibration_progress = {};
  /// With pictures the layers that drafts may leave out are looked for, in the model as it was converted, and
  /// stored (engine/self_draft.h).
  std::vector<MediaInput> self_draft_pictures = {};
  std::function<void(std::int64_t n_done, std::int64_t n_passes)> self_draft_progress = {};
};
struct ConvertReport {
  std::size_t n_linears = 0, n_tensors = 0, n_files = 0;  // quantized; as they were; copied beside
  std::uint64_t source_bytes = 0, written_bytes = 0;      // of weights
  SelfDraft self_draft;          // found; empty: nothing gains, or none was looked for
  bool left_out_golden = false;  // reference values, which are of the checkpoint as it was
};
/// Quantizes the checkpoint in `from` tensor by tensor into the new directory `to`, which appears when it is
/// complete. Throws Error; nothing is left behind then.
ConvertReport convert_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                                 const ConvertOptions& options);

}  // namespace triptych
