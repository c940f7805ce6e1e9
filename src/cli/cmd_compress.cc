// triptych compress: a checkpoint made several times smaller on calibration data, measured, behind a gate.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/compress_output.h"
#include "cli/flag_checks.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "compress/compress.h"
#include "compress/gate.h"
#include "compress/html_report.h"

namespace triptych::cli {
namespace {

namespace fs = std::filesystem;

struct CompressFlags {
  ModelFlags machine;
  std::string out, data, eval, gate;
  std::optional<std::string> html;
  std::string recipe = "balanced";
  // What is given counts before the recipe.
  std::optional<std::string> weights, vision_weights, lm_head;
  std::optional<std::int64_t> n_samples;
  std::optional<float> image_row_weight;
  std::int64_t eval_limit = 0;
  std::optional<double> bits, max_loss;
  std::optional<std::string> budget;
  std::vector<std::string> choices;
  std::optional<std::size_t> n_sensitivity_samples;
  std::optional<double> clip_to;
  bool no_equalize = false, no_gptq = false, force = false, allow_overlap = false, json = false;
  bool dry_run = false;
};

// Unwinds through the library, so that what was begun is removed.
struct Interrupted {};

std::optional<QuantFormat> format_of(const std::string& word) {
  return word == "auto" ? std::nullopt : std::optional(QuantFormat::parse(word));
}

compress::Recipe recipe_of(const CompressFlags& flags) {
  compress::Recipe out = compress::read_recipe(flags.recipe);
  if (flags.weights) out.formats.language = format_of(*flags.weights);
  if (flags.vision_weights) out.formats.vision = format_of(*flags.vision_weights);
  if (flags.lm_head) out.formats.lm_head = format_of(*flags.lm_head);
  if (flags.n_samples) out.calibration.n_samples = *flags.n_samples;
  if (flags.image_row_weight) out.calibration.image_row_weight = *flags.image_row_weight;
  if (flags.bits || flags.budget || flags.max_loss) {
    out.budget.bits = flags.bits.value_or(0);
    out.budget.bytes = flags.budget ? compress::parse_bytes(*flags.budget, "--budget") : 0;
    out.budget.max_loss = flags.max_loss.value_or(0);
  }
  if (!flags.choices.empty()) {
    out.budget.choices.clear();
    for (const std::string& word : flags.choices) out.budget.choices.push_back(QuantFormat::parse(word));
  }
  if (flags.n_sensitivity_samples) out.budget.n_samples = *flags.n_sensitivity_samples;
  if ((!flags.choices.empty() || flags.n_sensitivity_samples) && !out.budget.any())
    fail(ErrorCode::kInvalidArgument,
         "--choices and --sensitivity-samples are for --bits, --budget or --max-loss, and none is given");
  if (flags.no_equalize) std::erase_if(out.passes, [](const auto& step) { return step.name == "equalize"; });
  compress::PassSettings& round = *out.settings_of("round");
  if (flags.no_gptq) round["feedback"] = 0;
  if (flags.clip_to) round["clip_to"] = *flags.clip_to;
  return out;
}

compress::CompressOptions options_of(const CompressFlags& flags) {
  compress::CompressOptions out;
  out.load = flags.machine.load_options();
  out.recipe = recipe_of(flags);
  out.data = flags.data;
  return out;
}

// Both models over the same questions, the original in float32.
compress::QualityLoss measure(const CompressFlags& flags, const fs::path& made) {
  std::vector<EvalQuestion> questions = read_questions(flags.eval);
  if (flags.eval_limit > 0 && static_cast<std::size_t>(flags.eval_limit) < questions.size())
    questions.resize(static_cast<std::size_t>(flags.eval_limit));
  LoadOptions in_float = flags.machine.load_options();
  in_float.weight_dtype = DType::kF32;
  const auto original = LoadedModel::open(flags.machine.model, in_float);
  const auto model = LoadedModel::open(made, flags.machine.load_options());
  compress::QualityLoss out;
  const auto total = 2 * static_cast<std::int64_t>(questions.size());
  std::optional<ProgressBar> bar;
  if (!flags.machine.quiet) bar.emplace("evaluation, questions", total);
  const auto tell = [&](std::int64_t n) {
    if (Interrupt::take()) throw Interrupted();
    if (bar) bar->update(n);
  };
  EvalOptions options{.kv_cache_dtype = KvDType::kF32};
  options.control = false;
  out.before = evaluate(*original, flags.eval, questions, options, tell).total();
  options.control = true;
  options.kv_cache_dtype = model->auto_kv_dtype();
  options.reference = original.get();
  out.after =
      evaluate(*model, flags.eval, questions, options, [&](std::int64_t n) { tell(n + total / 2); }).total();
  return out;
}

// A folder beside OUT that becomes OUT when the gate is passed.
class Candidate {
 public:
  explicit Candidate(const fs::path& out) {
    const fs::path target = fs::absolute(out.filename().empty() ? out.parent_path() : out).lexically_normal();
    path_ = target.parent_path() / fmt::format(".{}.{}.candidate", target.filename().string(), ::getpid());
    target_ = target;
  }
  ~Candidate() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;
  const fs::path& path() const noexcept { return path_; }
  void accept(bool replace) const { move_directory(path_, target_, replace); }

 private:
  fs::path path_, target_;
};

int run_compress(const CompressFlags& flags) {
  const Interrupt interrupt;
  const auto gate =
      flags.gate.empty() ? std::vector<compress::GateCondition>() : compress::parse_gate(flags.gate);
  compress::CompressOptions options = options_of(flags);
  if (!flags.eval.empty() && !flags.allow_overlap)
    if (const std::size_t n = compress::n_shared_pictures(flags.data, flags.eval); n > 0)
      fail(ErrorCode::kInvalidArgument,
           "--eval {}: {} of its pictures are in --data {}, so that the loss would look smaller than it is; "
           "give "
           "other pictures, or --allow-overlap",
           flags.eval, n, flags.data);
  if (flags.html)
    check_output("--html", *flags.html,
                 {{"MODEL", flags.machine.model}, {"--data", flags.data}, {"--eval", flags.eval}});
  check_convert_target({flags.machine.model, flags.data}, flags.out, flags.force);
  std::optional<ProgressBar> bar;
  std::string activity;  // of the bar
  options.progress = [&](const compress::CompressProgress& now) {
    if (Interrupt::take()) throw Interrupted();
    if (flags.machine.quiet) return;
    if (!bar || now.activity != activity) bar.emplace(now.activity, now.n);
    activity = now.activity;
    bar->update(now.n_done, now.what);
  };
  try {
    if (flags.dry_run) {
      const compress::CompressPlan plan = compress::plan_compression(flags.machine.model, options);
      bar.reset();
      if (flags.json)
        print_plan_json(flags.machine.model, plan, options.recipe);
      else
        print_plan_text(plan, options.recipe);
      return kExitOk;
    }
    const Candidate candidate(flags.out);
    const compress::CompressReport report =
        compress::compress_checkpoint(flags.machine.model, candidate.path(), options);
    bar.reset();
    std::optional<compress::QualityLoss> loss;
    if (!flags.eval.empty()) loss = measure(flags, candidate.path());
    const auto results = loss ? compress::check_gate(gate, *loss) : std::vector<compress::GateResult>();
    bool passed = true;
    for (const compress::GateResult& result : results) passed = passed && result.passed;
    if (passed) candidate.accept(flags.force);
    if (flags.html)
      write_output("--html", *flags.html,
                   compress::html_report({.model = flags.machine.model,
                                          .out = flags.out,
                                          .data = flags.data,
                                          .eval = flags.eval,
                                          .report = report,
                                          .loss = loss ? &*loss : nullptr,
                                          .gate = results}));
    const CompressOutcome outcome{.model = flags.machine.model,
                                  .out = flags.out,
                                  .data = flags.data,
                                  .eval = flags.eval,
                                  .report = report,
                                  .loss = loss,
                                  .gate = results};
    if (flags.json)
      print_compress_json(outcome);
    else
      print_compress_text(outcome);
    if (passed) return kExitOk;
    std::fprintf(stderr, "triptych: the gate was not passed; nothing was written to %s\n", flags.out.c_str());
    return kExitCheckFailed;
  } catch (const Interrupted&) {
    return kExitInterrupted;
  }
}

}  // namespace

void add_compress_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<CompressFlags>();
  CLI::App& app =
      *program.add_subcommand("compress", "Make a checkpoint several times smaller, and measure the loss");
  app.add_option("MODEL", flags->machine.model, "Checkpoint directory as published")
      ->required()
      ->type_name("DIR");
  app.add_option("OUT", flags->out, "Folder to write; it appears when it is complete and the gate is passed")
      ->required()
      ->type_name("DIR");
  app.add_option("--data", flags->data,
                 "Calibration: a folder with questions.jsonl (as for eval), or of pictures, which the model "
                 "describes")
      ->required()
      ->type_name("DIR");
  app.add_option(
         "--recipe", flags->recipe,
         "What is done, as a YAML file or one that ships: balanced, smallest, fastest; other flags count "
         "before it")
      ->capture_default_str()
      ->type_name("NAME|FILE");
  app.add_option("--weights", flags->weights,
                 "Format of the language model's linears (as for run), or auto: as they are")
      ->type_name("TYPE");
  app.add_option("--vision-weights", flags->vision_weights, "The same of towers, projectors and resamplers")
      ->type_name("TYPE");
  app.add_option("--lm-head", flags->lm_head, "The same of the output layer")->type_name("TYPE");
  CLI::Option* const bits =
      app.add_option(
             "--bits", flags->bits,
             "Bits a weight, scales included, that all linears take on average: each takes the format "
             "of --choices that costs the answers least")
          ->check(is_within(1, 16))
          ->type_name("X");
  CLI::Option* const budget = app.add_option("--budget", flags->budget,
                                             "The same with a bound on the bytes of all weights, e.g. 4.4GB")
                                  ->excludes(bits)
                                  ->type_name("SIZE");
  app.add_option("--max-loss", flags->max_loss,
                 "The same, as small as it gets while at most so many points of exact match are lost on the "
                 "calibration's answers")
      ->check(is_within(0, 100))
      ->excludes(bits)
      ->excludes(budget)
      ->type_name("POINTS");
  app.add_option("--choices", flags->choices, "Formats to choose from then")
      ->expected(1)
      ->take_all()
      ->delimiter(',')
      ->type_name("TYPE,...");
  app.add_option("--sensitivity-samples", flags->n_sensitivity_samples,
                 "Conversations to measure that cost on")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}).description(""))
      ->type_name("N");
  app.add_option("--calibration-samples", flags->n_samples, "Conversations of DATA to look at")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100000}).description(""))
      ->type_name("N");
  app.add_option("--image-token-weight", flags->image_row_weight,
                 "What a token of a picture counts beside one of text in the calibration")
      ->check(is_within(0, 1))
      ->type_name("X");
  app.add_option("--clip-to", flags->clip_to,
                 "Smallest share of a group's range that the search of scales tries; 1: no search")
      ->check(is_within(0.1, 1))
      ->type_name("X");
  app.add_flag("--no-equalize", flags->no_equalize, "Leave the scale of channels as it is");
  app.add_flag("--no-gptq", flags->no_gptq, "Round every weight to its nearest code");
  CLI::Option* const eval =
      app.add_option("--eval", flags->eval, "Folder with questions.jsonl: measure what was lost on it")
          ->type_name("DIR");
  app.add_option("--eval-limit", flags->eval_limit, "Only its first N questions")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""))
      ->needs(eval)
      ->type_name("N");
  app.add_flag("--allow-overlap", flags->allow_overlap, "Even if pictures of --eval are in --data")
      ->needs(eval);
  app.add_option(
         "--gate", flags->gate,
         "Conditions for OUT to be written, else exit code 1: accuracy (points against the original), kl, "
         "same_top, picture")
      ->needs(eval)
      ->type_name("CONDITIONS");
  app.add_flag("--dry-run", flags->dry_run, "Print what would be done, and what memory and time it takes");
  app.add_flag("--force", flags->force, "Replace the converted checkpoint that OUT holds");
  app.add_option("--html", flags->html, "Write the report as one HTML file")->type_name("FILE");
  flags->machine.add_machine_flags(app);
  add_json_flag(app, flags->json);
  show_first(app, {"data", "recipe", "weights", "vision-weights", "eval", "gate", "json"});
  app.footer(
      "Blocks are worked on one after another, each on what the blocks before it give once they are "
      "quantized: scale\n"
      "moves between channels where the model allows it, then weights are rounded so that later columns make "
      "up for the\n"
      "error of earlier ones (docs/compression.md). OUT is what `convert` writes, and loads at once.\n\n"
      "Examples:\n"
      "  triptych compress MODEL OUT --data PICTURES\n"
      "  triptych compress MODEL OUT --data CALIB --weights int4:g128 --vision-weights int4:channel:asym\n"
      "  triptych compress MODEL OUT --data CALIB --eval EVAL --gate \"accuracy>=-0.3,kl<=0.005\" --html "
      "report.html");
  app.callback([flags, &action] { action = [flags] { return run_compress(*flags); }; });
}

}  // namespace triptych::cli
