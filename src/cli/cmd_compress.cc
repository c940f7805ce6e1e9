// triptych compress: a checkpoint made several times smaller on calibration data, measured, behind a gate.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/flag_checks.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/output_file.h"
#include "compress/compress.h"
#include "compress/gate.h"
#include "compress/html_report.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

namespace fs = std::filesystem;

struct CompressFlags {
  ModelFlags machine;
  std::string out, data, eval, gate;
  std::optional<std::string> html;
  std::string weights = "int4:g128", vision_weights = "int8", lm_head = "int8";
  compress::CalibrationOptions calibration;
  std::int64_t eval_limit = 0;
  double bits = 0;
  std::vector<std::string> choices = {"int4:g128", "int4:g32", "int8"};
  std::size_t n_sensitivity_samples = 64;
  float clip_to = 0.7F;
  bool no_equalize = false, no_gptq = false, force = false, allow_overlap = false, json = false;
};

// Unwinds through the library, so that what was begun is removed.
struct Interrupted {};

std::optional<QuantFormat> format_of(const std::string& word) {
  return word == "auto" ? std::nullopt : std::optional(QuantFormat::parse(word));
}

compress::CompressOptions options_of(const CompressFlags& flags) {
  compress::CompressOptions out;
  out.load = flags.machine.load_options();
  out.formats = {format_of(flags.weights), format_of(flags.vision_weights), format_of(flags.lm_head)};
  out.bits = flags.bits;
  for (const std::string& word : flags.choices) out.choices.push_back(QuantFormat::parse(word));
  out.n_sensitivity_samples = flags.n_sensitivity_samples;
  out.data = flags.data;
  out.calibration = flags.calibration;
  out.equalize = !flags.no_equalize;
  out.gptq = !flags.no_gptq;
  out.clip_to = flags.clip_to;
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

void print_text(const CompressFlags& flags, const compress::CompressReport& report,
                const std::optional<compress::QualityLoss>& loss,
                const std::vector<compress::GateResult>& gate) {
  TextTable table({{"linear", Align::kLeft}, {"format", Align::kLeft}, {"nearest, dB"}, {"compressed, dB"}});
  const auto decibel = [](double share) {
    return share > 0 ? fmt::format("{:.1f}", -10 * std::log10(share)) : std::string("exact");
  };
  for (const compress::LinearReport& linear : report.linears)
    table.add_row(
        {one_line(linear.name), linear.format, decibel(linear.error_nearest), decibel(linear.error)});
  std::fputs(table.render().c_str(), stdout);
  std::printf(
      "\n%zu linears at %.2f bits a weight, %zu kept; calibrated on %lld samples, %lld image and %lld text "
      "tokens\n",
      report.linears.size(), report.bits_per_weight(), report.kept.size(),
      static_cast<long long>(report.n_samples), static_cast<long long>(report.n_image_tokens),
      static_cast<long long>(report.n_text_tokens));
  std::printf("%s: %s of weights became %s in %.1f s\n", one_line(flags.out).c_str(),
              format_bytes(static_cast<double>(report.written.source_bytes)).c_str(),
              format_bytes(static_cast<double>(report.written.written_bytes)).c_str(), report.seconds);
  if (loss)
    std::printf(
        "exact match %s of the original, %s compressed (blank pictures %s); divergence %.2e; same top token "
        "%s\n",
        format_percent(loss->before.accuracy(), 2).c_str(), format_percent(loss->after.accuracy(), 2).c_str(),
        format_percent(loss->after.control_accuracy(), 2).c_str(), loss->after.mean_kl_divergence(),
        format_percent(loss->after.same_top(), 2).c_str());
  for (const compress::GateResult& result : gate)
    std::printf("gate %s: %.4g, %s\n", result.condition.c_str(), result.value,
                result.passed ? "passed" : "FAILED");
}

void print_document(const CompressFlags& flags, const compress::CompressReport& report,
                    const std::optional<compress::QualityLoss>& loss,
                    const std::vector<compress::GateResult>& gate) {
  JsonOut out = json_document("compress");
  out["model"] = flags.machine.model;
  out["out"] = flags.out;
  out["bits_per_weight"] = report.bits_per_weight();
  out["source_bytes"] = report.written.source_bytes;
  out["written_bytes"] = report.written.written_bytes;
  out["seconds"] = report.seconds;
  out["calibration"] = {{"data", flags.data},
                        {"samples", report.n_samples},
                        {"image_tokens", report.n_image_tokens},
                        {"text_tokens", report.n_text_tokens},
                        {"fingerprint", report.data_fingerprint}};
  out["linears"] = JsonOut::array();
  for (const compress::LinearReport& l : report.linears)
    out["linears"].push_back({{"name", l.name},
                              {"part", l.part},
                              {"format", l.format},
                              {"weights", l.n_weights},
                              {"bits_per_weight", l.bits_per_weight},
                              {"error_nearest", l.error_nearest},
                              {"error", l.error},
                              {"damping", l.damping}});
  out["kept"] = report.kept;
  out["unreached"] = report.unreached;
  out["sensitivities"] = JsonOut::array();
  for (const compress::SensitivityReport& s : report.sensitivities)
    out["sensitivities"].push_back({{"name", s.name}, {"format", s.format}, {"divergence", s.divergence}});
  out["equalizations"] = JsonOut::array();
  for (const compress::EqualizationReport& e : report.equalizations)
    out["equalizations"].push_back({{"reader", e.reader},
                                    {"activation_power", e.activation_power},
                                    {"weight_power", e.weight_power},
                                    {"gain", e.gain}});
  if (loss)
    out["evaluation"] = {{"data", flags.eval},
                         {"n", loss->after.n},
                         {"accuracy_before", loss->before.accuracy()},
                         {"accuracy", loss->after.accuracy()},
                         {"control_accuracy", loss->after.control_accuracy()},
                         {"mean_kl_divergence", loss->after.mean_kl_divergence()},
                         {"max_kl_divergence", loss->after.max_kl_divergence},
                         {"same_top_token", loss->after.same_top()}};
  out["gate"] = JsonOut::array();
  for (const compress::GateResult& g : gate)
    out["gate"].push_back({{"condition", g.condition}, {"value", g.value}, {"passed", g.passed}});
  print_json(out);
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
  options.progress = [&](const std::string& what, std::int64_t n_done, std::int64_t n) {
    if (Interrupt::take()) throw Interrupted();
    if (flags.machine.quiet) return;
    // How much there is to do is known once the data was read.
    if (n_done <= 1) bar.emplace("compress", n);
    bar->update(n_done, what);
  };
  try {
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
    if (flags.json)
      print_document(flags, report, loss, results);
    else
      print_text(flags, report, loss, results);
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
  app.add_option("--weights", flags->weights,
                 "Format of the language model's linears (as for run), or auto: as they are")
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("--vision-weights", flags->vision_weights, "The same of towers, projectors and resamplers")
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("--lm-head", flags->lm_head, "The same of the output layer")
      ->capture_default_str()
      ->type_name("TYPE");
  CLI::Option* const bits =
      app.add_option(
             "--bits", flags->bits,
             "Bits a weight, scales included, that all linears take on average: each takes the format of "
             "--choices that costs the answers least")
          ->check(is_within(1, 16))
          ->type_name("X");
  app.add_option("--choices", flags->choices, "Formats to choose from with --bits")
      ->expected(1)
      ->take_all()
      ->delimiter(',')
      ->needs(bits)
      ->capture_default_str()
      ->type_name("TYPE,...");
  app.add_option("--sensitivity-samples", flags->n_sensitivity_samples,
                 "Conversations to measure that cost on")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}).description(""))
      ->needs(bits)
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--calibration-samples", flags->calibration.n_samples, "Conversations of DATA to look at")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100000}).description(""))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--image-token-weight", flags->calibration.image_row_weight,
                 "What a token of a picture counts beside one of text in the calibration")
      ->check(is_within(0, 1))
      ->capture_default_str()
      ->type_name("X");
  app.add_option("--clip-to", flags->clip_to,
                 "Smallest share of a group's range that the search of scales tries; 1: no search")
      ->check(is_within(0.1, 1))
      ->capture_default_str()
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
  app.add_flag("--force", flags->force, "Replace the converted checkpoint that OUT holds");
  app.add_option("--html", flags->html, "Write the report as one HTML file")->type_name("FILE");
  flags->machine.add_machine_flags(app);
  add_json_flag(app, flags->json);
  show_first(app, {"data", "weights", "vision-weights", "eval", "gate", "json"});
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
