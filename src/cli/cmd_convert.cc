// triptych convert: quantizes a checkpoint once and stores it ready made.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/picture_file.h"
#include "engine/packed_directory.h"
#include "media/picture_names.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

constexpr std::size_t kSelfDraftPictures = 8;  // a prompt of each stays in memory during the search

struct ConvertFlags {
  ModelFlags model;
  std::string out;
  bool force = false;
  std::string calibrate;
  std::size_t n_samples = 32;
  std::string self_draft;
  bool json = false;
};

// The pictures of a folder in the order of their names, n at most.
std::vector<MediaInput> read_pictures_of(const char* flag, const std::string& folder, std::size_t n) {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (has_picture_ending(it->path().filename().string())) names.push_back(it->path().string());
  }
  if (error) fail(ErrorCode::kIo, "{} {}: {}", flag, folder, error.message());
  if (names.empty())
    fail(ErrorCode::kInvalidArgument, "{} {}: no picture in it (png, jpeg, webp, bmp, gif, tiff, ppm)", flag,
         folder);
  std::sort(names.begin(), names.end());
  names.resize(std::min(names.size(), n));
  std::vector<MediaInput> out;
  for (const std::string& name : names) {
    MediaInput picture;
    picture.frames.push_back(read_picture(name));
    picture.name = name;
    out.push_back(std::move(picture));
  }
  return out;
}

void print_self_draft(const SelfDraft& draft) {
  if (draft.skipped_layers.empty()) {
    std::printf("self-draft: with no layer left out is a draft expected to gain\n");
    return;
  }
  std::printf("self-draft: without layers %s %.1f %% of the tokens are the same\n",
              fmt::format("{}", fmt::join(draft.skipped_layers, ", ")).c_str(), 100 * draft.acceptance);
}

void print_report(const ConvertFlags& flags, const ConvertReport& report, double seconds) {
  if (flags.json) {
    JsonOut out = json_document("convert");
    out["model"] = flags.model.model;
    out["out"] = flags.out;
    out["linears_quantized"] = report.n_linears;
    out["tensors_copied"] = report.n_tensors;
    out["files_copied"] = report.n_files;
    out["source_bytes"] = report.source_bytes;
    out["written_bytes"] = report.written_bytes;
    if (!flags.self_draft.empty())
      out["self_draft"] = {{"skipped_layers", report.self_draft.skipped_layers},
                           {"acceptance", report.self_draft.acceptance}};
    out["seconds"] = seconds;
    print_json(out);
    return;
  }
  std::printf(
      "%s: %zu linears quantized, %zu tensors and %zu files as they were; %s of weights became %s in %.1f "
      "s\n",
      one_line(flags.out).c_str(), report.n_linears, report.n_tensors, report.n_files,
      format_bytes(static_cast<double>(report.source_bytes)).c_str(),
      format_bytes(static_cast<double>(report.written_bytes)).c_str(), seconds);
  if (!flags.self_draft.empty()) print_self_draft(report.self_draft);
  if (report.left_out_golden)
    std::printf(
        "golden.json is left out: its values are those of the weights as they were; triptych verify OUT "
        "--golden %s compares with them\n",
        one_line(flags.model.model).c_str());
}

// Unwinds through the library, so that what was begun is removed.
struct Interrupted {};

int convert(const ConvertFlags& flags) {
  const Interrupt interrupt;
  LoadProgress bar(flags.model);
  ConvertOptions options{.load = flags.model.load_options(), .replace = flags.force};
  std::optional<ProgressBar> calibration_bar;
  options.calibration_progress = [&](std::int64_t n_done, std::int64_t n_runs) {
    if (Interrupt::take()) throw Interrupted();
    if (flags.model.quiet) return;
    if (!calibration_bar) calibration_bar.emplace("calibration, pictures", n_runs);
    calibration_bar->update(n_done);
    if (n_done + 1 == n_runs) calibration_bar.reset();
  };
  if (!flags.calibrate.empty()) {
    if (options.load.static_vision_inputs == false)
      fail(ErrorCode::kInvalidArgument, "--calibrate finds what --vision-activations dynamic does not use");
    options.load.static_vision_inputs.reset();
    options.calibration_pictures = read_pictures_of("--calibrate", flags.calibrate, flags.n_samples);
  }
  if (!flags.self_draft.empty())
    options.self_draft_pictures = read_pictures_of("--self-draft", flags.self_draft, kSelfDraftPictures);
  std::optional<ProgressBar> self_draft_bar;
  options.self_draft_progress = [&](std::int64_t n_done, std::int64_t n_passes) {
    if (Interrupt::take()) throw Interrupted();
    if (flags.model.quiet) return;
    if (!self_draft_bar) self_draft_bar.emplace("layers of drafts, passes at most", n_passes);
    self_draft_bar->update(n_done);
  };
  options.load.progress = [&](std::int64_t done_bytes, std::int64_t total_bytes) {
    if (Interrupt::take()) throw Interrupted();
    bar(done_bytes, total_bytes);
  };
  const auto start = std::chrono::steady_clock::now();
  try {
    const ConvertReport report = convert_checkpoint(flags.model.model, flags.out, options);
    bar.erase();
    self_draft_bar.reset();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    print_report(flags, report, seconds);
  } catch (const Interrupted&) {
    return kExitInterrupted;
  }
  return kExitOk;
}

}  // namespace

void add_convert_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App& app = *program.add_subcommand("convert", "Store a checkpoint with quantized weights, ready made");
  flags->model.add_to(app);
  app.add_option("OUT", flags->out, "Folder to write; it appears when it is complete")
      ->required()
      ->type_name("DIR");
  app.add_flag("--force", flags->force, "Replace the converted checkpoint that OUT holds");
  app.add_option(
         "--calibrate", flags->calibrate,
         "Folder of pictures: find the ranges of the tower's activations on them and store these, for "
         "--vision-activations static")
      ->type_name("DIR");
  app.add_option("--calibration-samples", flags->n_samples, "Pictures of it to look at")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}).description(""))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--self-draft", flags->self_draft,
                 "Folder of pictures: find the layers that drafts of --speculative self-draft may leave out, "
                 "by answers "
                 "about the first eight, and store them")
      ->type_name("DIR");
  add_json_flag(app, flags->json);
  show_first(app, {"weights", "force", "calibrate", "json"});
  app.footer(
      "OUT is a complete checkpoint for this program: it loads at once, takes no private copy of the "
      "weights, "
      "and answers\n"
      "as MODEL does with the same flags, bit by bit (docs/format.md).\n\n"
      "Examples:\n"
      "  triptych convert MODEL OUT --weights int4:g128\n"
      "  triptych convert MODEL OUT --weights int8 --lm-head auto\n"
      "  triptych convert MODEL OUT --weights int4:g128 --calibrate PICTURES\n"
      "  triptych inspect OUT --verify");
  app.callback([flags, &action] { action = [flags] { return convert(*flags); }; });
}

}  // namespace triptych::cli
