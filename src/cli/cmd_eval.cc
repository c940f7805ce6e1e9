// triptych eval: accuracy on questions with known answers.
#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/flag_checks.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "cli/json_output.h"
#include "cli/scheduler_flags.h"
#include "cli/visual_cache_flags.h"
#include "evaluation/eval.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

struct EvalFlags {
  ModelFlags model;
  MediaFlags media;
  VisualCacheFlags visual_cache;
  std::string data;
  std::string kv_cache_dtype = "auto";
  std::int64_t limit = 0;
  int batch = 16;
  SchedulerFlags scheduler;
  double min_accuracy = 0;
  std::size_t show_mistakes = 0;
  std::string reference;
  bool no_control = false, no_likelihood = false, kl_divergence = false, json = false;
};

JsonOut score_json(const EvalScore& score, const EvalOptions& options) {
  JsonOut out = {{"n", score.n}, {"right", score.n_right}, {"accuracy", score.accuracy()}};
  if (options.likelihood) {
    out["answer_tokens"] = score.n_answer_tokens;
    out["mean_logprob"] = score.mean_logprob();
  }
  if (options.reference != nullptr) {
    out["mean_kl_divergence"] = score.mean_kl_divergence();
    out["max_kl_divergence"] = score.max_kl_divergence;
    out["same_top_token"] = score.same_top();
  }
  if (options.control) out["control_accuracy"] = score.control_accuracy();
  return out;
}

void print_report(const EvalReport& report, const EvalFlags& flags, const EvalOptions& options) {
  TextTable table({{"kind", Align::kLeft},
                   {"n"},
                   {"exact match"},
                   {"mean log p"},
                   {"KL divergence"},
                   {"same top token"},
                   {"blank picture"}});
  const auto add = [&](const std::string& name, const EvalScore& score) {
    table.add_row({one_line(name), std::to_string(score.n), format_percent(score.accuracy(), 2),
                   options.likelihood ? fmt::format("{:.4f}", score.mean_logprob()) : "-",
                   options.reference != nullptr ? fmt::format("{:.1e}", score.mean_kl_divergence()) : "-",
                   options.reference != nullptr ? format_percent(score.same_top(), 2) : "-",
                   options.control ? format_percent(score.control_accuracy(), 2) : "-"});
  };
  for (const auto& [kind, score] : report.kinds) add(kind, score);
  const EvalScore total = report.total();
  add("all", total);
  std::fputs(table.render().c_str(), stdout);
  std::printf("\n%lld questions in %.1f s (%.1f per second)\n", static_cast<long long>(total.n),
              report.seconds, static_cast<double>(total.n) / report.seconds);
  for (std::size_t i = 0; i < std::min(flags.show_mistakes, report.mistakes.size()); ++i) {
    const EvalMistake& m = report.mistakes[i];
    std::printf("%s: %s\n  expected: %s\n  got:      %s\n", one_line(m.id).c_str(),
                one_line(m.question).c_str(), one_line(m.expected).c_str(), one_line(m.got).c_str());
  }
}

int run_eval(const EvalFlags& flags) {
  std::vector<EvalQuestion> questions = read_questions(flags.data);
  if (flags.limit > 0 && static_cast<std::size_t>(flags.limit) < questions.size())
    questions.resize(static_cast<std::size_t>(flags.limit));
  flags.media.check_values();
  const auto model = flags.model.open();
  flags.media.check(model->info().architecture, model->info().takes_pixel_limits);
  std::unique_ptr<LoadedModel> reference;
  if (flags.kl_divergence) {
    ModelFlags in_fp32 = flags.model;
    in_fp32.dtype = "fp32";
    in_fp32.vision_weights = in_fp32.lm_head = "";
    in_fp32.exact_groups = false;
    in_fp32.vision_attention = in_fp32.vision_activations = in_fp32.activations = "auto";
    if (!flags.reference.empty()) in_fp32.model = flags.reference;
    reference = in_fp32.open();
  }
  EvalOptions options{.likelihood = !flags.no_likelihood,
                      .control = !flags.no_control,
                      .n_sequences = flags.batch,
                      .media = flags.media.inner_options(),
                      .kv_cache_dtype = parse_kv_dtype(flags.kv_cache_dtype).value_or(model->auto_kv_dtype()),
                      .reference = reference.get(),
                      .vision_embedding_cache_bytes = flags.visual_cache.memory_bytes(),
                      .vision_cache = flags.visual_cache.inner_options()};
  flags.scheduler.fill(options.engine);
  EvalReport report;
  {
    ProgressBar bar("eval", static_cast<std::int64_t>(questions.size()));
    report =
        evaluate(*model, flags.data, questions, options, [&](std::int64_t n_done) { bar.update(n_done); });
  }
  const EvalScore total = report.total();
  if (flags.json) {
    const WeightWords words = weight_words(flags.model, *model);
    JsonOut out = json_document("eval", {{"model", flags.model.model},
                                         {"weights", words.weights},
                                         {"vision_weights", words.vision_weights},
                                         {"lm_head", words.lm_head},
                                         {"kv_cache_dtype", to_string(options.kv_cache_dtype)},
                                         {"data", flags.data},
                                         {"seconds", report.seconds},
                                         {"pictures_encoded", report.n_pictures_encoded}});
    out["total"] = score_json(total, options);
    for (const auto& [kind, score] : report.kinds) out["kinds"][kind] = score_json(score, options);
    out["mistakes"] = JsonOut::array();
    for (const EvalMistake& m : report.mistakes)
      out["mistakes"].push_back(
          {{"id", m.id}, {"question", m.question}, {"expected", m.expected}, {"got", m.got}});
    print_json(out);
  } else {
    print_report(report, flags, options);
  }
  if (total.accuracy() < flags.min_accuracy) {
    std::fprintf(stderr, "triptych: accuracy %.4f is below --min-accuracy %.4f\n", total.accuracy(),
                 flags.min_accuracy);
    return kExitCheckFailed;
  }
  if (options.control && total.n_right > 0 && total.n_control_right >= total.n_right) {
    std::fprintf(stderr, "triptych: a blank picture gives as many right answers: the picture is not used\n");
    return kExitCheckFailed;
  }
  return kExitOk;
}

}  // namespace

void add_eval_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App& app = *program.add_subcommand("eval", "Measure accuracy on questions about pictures");
  flags->model.add_to(app);
  app.add_option("--data", flags->data, "Directory with questions.jsonl and its pictures")
      ->required()
      ->type_name("DIR");
  app.add_option("--limit", flags->limit, "Only the first N questions")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40).description(""))
      ->type_name("N");
  app.add_option("--max-num-seqs,--batch", flags->batch, "Questions answered at once")
      ->check(CLI::Range(1, 1024).description(""))
      ->capture_default_str()
      ->type_name("N");
  flags->scheduler.add_to(app, "Many questions");
  app.add_flag("--no-control", flags->no_control, "Leave out the run with a blank picture");
  app.add_flag("--no-likelihood", flags->no_likelihood, "Leave out the log-likelihood of the known answers");
  app.add_flag("--kl-divergence", flags->kl_divergence,
               "Divergence of the answers' tokens from the same model in float32, which is loaded beside it")
      ->excludes("--no-likelihood");
  app.add_option(
         "--reference", flags->reference,
         "Take the divergence from this checkpoint instead (in float32): the original of a converted one")
      ->needs("--kl-divergence")
      ->type_name("DIR");
  app.add_option("--min-accuracy", flags->min_accuracy, "Exit code 1 below this share")
      ->check(is_within(0, 1))
      ->type_name("X");
  app.add_option("--mistakes", flags->show_mistakes, "Show the first N wrong answers")
      ->check(CLI::Range(0, 1 << 30).description(""))
      ->type_name("N");
  add_kv_cache_dtype(app, flags->kv_cache_dtype);
  flags->media.add_to(app);
  flags->media.add_image_tokens_to(app);
  flags->visual_cache.add_to(app);
  add_json_flag(app, flags->json, "Print one JSON object instead of a table");
  show_first(app, {"data", "weights", "limit", "min-accuracy", "json"});
  app.footer(
      "questions.jsonl holds one object a line: {\"id\", \"image\", \"question\", \"answer\"}. An answer is "
      "right when the\n"
      "whole text is equal. The control asks the same about a white picture of the same size.\n\n"
      "Examples:\n"
      "  triptych eval assets/models/scenes-llava --data assets/eval/scenes\n"
      "  triptych eval MODEL --data DIR --limit 200 --min-accuracy 0.9 --json");
  app.callback([flags, &action] { action = [flags] { return run_eval(*flags); }; });
}

}  // namespace triptych::cli
