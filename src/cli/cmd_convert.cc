// triptych convert: quantizes a checkpoint once and stores it ready made.
#include <chrono>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/text_table.h"
#include "engine/packed_directory.h"

namespace triptych::cli {
namespace {

struct ConvertFlags {
  ModelFlags model;
  std::string out;
  bool force = false;
};

// Unwinds through the library, so that what was begun is removed.
struct Interrupted {};

int convert(const ConvertFlags& flags) {
  const Interrupt interrupt;
  LoadProgress bar(flags.model);
  ConvertOptions options{.load = flags.model.load_options(), .replace = flags.force};
  options.load.progress = [&](std::int64_t done_bytes, std::int64_t total_bytes) {
    if (Interrupt::take()) throw Interrupted();
    bar(done_bytes, total_bytes);
  };
  const auto start = std::chrono::steady_clock::now();
  try {
    const ConvertReport report = convert_checkpoint(flags.model.model, flags.out, options);
    bar.erase();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf(
        "%s: %zu linears quantized, %zu tensors and %zu files as they were; %s of weights became %s in "
        "%.1f s\n",
        one_line(flags.out).c_str(), report.n_linears, report.n_tensors, report.n_files,
        format_bytes(static_cast<double>(report.source_bytes)).c_str(),
        format_bytes(static_cast<double>(report.written_bytes)).c_str(), seconds);
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
  app.footer(
      "OUT is a complete checkpoint for this program: it loads at once, takes no private copy of the "
      "weights, "
      "and answers\n"
      "as MODEL does with the same flags, bit by bit (docs/format.md).\n\n"
      "Examples:\n"
      "  triptych convert MODEL OUT --weights int4:g128\n"
      "  triptych convert MODEL OUT --weights int8 --lm-head auto\n"
      "  triptych inspect OUT --verify");
  app.callback([flags, &action] { action = [flags] { return convert(*flags); }; });
}

}  // namespace triptych::cli
