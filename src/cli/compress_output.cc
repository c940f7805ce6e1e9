#include "cli/compress_output.h"

#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "cli/json_output.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

std::string bytes_text(double n) { return format_bytes(n); }

}  // namespace

void print_compress_text(const CompressOutcome& outcome) {
  const compress::CompressReport& report = outcome.report;
  const auto& loss = outcome.loss;
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
  std::printf("%s: %s of weights became %s in %.1f s\n", one_line(outcome.out).c_str(),
              format_bytes(static_cast<double>(report.written.source_bytes)).c_str(),
              format_bytes(static_cast<double>(report.written.written_bytes)).c_str(), report.seconds);
  for (const compress::FoldReport& fold : report.folds)
    if (fold.error_before > 0)
      std::printf("%s: residual of the tower folded in, alpha %.1f: error on pictures held out %+.0f %%\n",
                  one_line(fold.name).c_str(), fold.alpha, 100 * (fold.error_after / fold.error_before - 1));
  if (loss)
    std::printf(
        "exact match %s of the original, %s compressed (blank pictures %s); divergence %.2e; same top token "
        "%s\n",
        format_percent(loss->before.accuracy(), 2).c_str(), format_percent(loss->after.accuracy(), 2).c_str(),
        format_percent(loss->after.control_accuracy(), 2).c_str(), loss->after.mean_kl_divergence(),
        format_percent(loss->after.same_top(), 2).c_str());
  for (const compress::GateResult& result : outcome.gate)
    std::printf("gate %s: %.4g, %s\n", result.condition.c_str(), result.value,
                result.passed ? "passed" : "FAILED");
}

void print_compress_json(const CompressOutcome& outcome) {
  const compress::CompressReport& report = outcome.report;
  const auto& loss = outcome.loss;
  JsonOut out = json_document("compress");
  out["model"] = outcome.model;
  out["out"] = outcome.out;
  out["bits_per_weight"] = report.bits_per_weight();
  out["source_bytes"] = report.written.source_bytes;
  out["written_bytes"] = report.written.written_bytes;
  out["seconds"] = report.seconds;
  out["recipe"] = report.recipe;
  out["calibration"] = {{"data", outcome.data},
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
  out["front"] = JsonOut::array();
  for (const compress::FrontPoint& f : report.front)
    out["front"].push_back({{"bits", f.bits}, {"divergence", f.divergence}});
  out["trials"] = JsonOut::array();
  for (const compress::LossTrial& t : report.trials)
    out["trials"].push_back({{"bits", t.bits}, {"points_lost", t.points_lost}});
  out["folds"] = JsonOut::array();
  for (const compress::FoldReport& f : report.folds)
    out["folds"].push_back({{"name", f.name},
                            {"alpha", f.alpha},
                            {"lambda", f.lambda},
                            {"error_before", f.error_before},
                            {"error_after", f.error_after}});
  out["biases"] = JsonOut::array();
  for (const compress::BiasReport& b : report.biases)
    out["biases"].push_back({{"name", b.name}, {"mean_square_shift", b.mean_square_shift}});
  if (loss)
    out["evaluation"] = {{"data", outcome.eval},
                         {"n", loss->after.n},
                         {"accuracy_before", loss->before.accuracy()},
                         {"accuracy", loss->after.accuracy()},
                         {"control_accuracy", loss->after.control_accuracy()},
                         {"mean_kl_divergence", loss->after.mean_kl_divergence()},
                         {"max_kl_divergence", loss->after.max_kl_divergence},
                         {"same_top_token", loss->after.same_top()}};
  out["gate"] = JsonOut::array();
  for (const compress::GateResult& g : outcome.gate)
    out["gate"].push_back({{"condition", g.condition}, {"value", g.value}, {"passed", g.passed}});
  print_json(out);
}

void print_plan_text(const compress::CompressPlan& plan, const compress::Recipe& recipe) {
  std::printf("%s\n", compress::to_yaml(recipe).c_str());
  TextTable table({{"part", Align::kLeft}, {"linears"}, {"weights"}, {"stored"}, {"compressed"}});
  for (const auto& part : plan.parts)
    table.add_row({part.name, std::to_string(part.n_linears),
                   format_count(static_cast<double>(part.n_weights)), bytes_text(part.stored_bytes),
                   bytes_text(part.bytes)});
  std::fputs(table.render().c_str(), stdout);
  TextTable passes({{"pass", Align::kLeft}, {"reads", Align::kLeft}, {"changes", Align::kLeft}});
  for (const compress::PassStep& step : recipe.passes) {
    const compress::PassInfo& info = *compress::find_pass(step.name);
    passes.add_row({step.name, std::string(info.reads), std::string(info.changes)});
  }
  std::printf("\n%s", passes.render().c_str());
  std::printf(
      "\n%zu stages over %lld conversations, %lld measurements of sensitivity; %zu linears stay as they "
      "are\n",
      plan.n_stages, static_cast<long long>(plan.n_samples), static_cast<long long>(plan.n_measurements),
      plan.kept.size());
  if (recipe.budget.any())
    std::printf(
        "formats will be chosen within the budget; the sizes above are those of the recipe's formats\n");
  std::printf("weights %s -> about %s\n", bytes_text(plan.source_bytes).c_str(),
              bytes_text(plan.total_bytes()).c_str());
  std::printf(
      "memory beside the mapped checkpoint, by arithmetic: %s for the largest stage, up to %s of codes\n",
      bytes_text(plan.stage_bytes).c_str(), bytes_text(plan.codes_bytes).c_str());
  std::printf("time, from one conversation (%.3f s) and a small matrix: about %.0f s\n", plan.sample_seconds,
              plan.seconds);
}

void print_plan_json(const std::string& model, const compress::CompressPlan& plan,
                     const compress::Recipe& recipe) {
  JsonOut out = json_document("compress-plan");
  out["model"] = model;
  out["recipe"] = compress::to_yaml(recipe);
  out["parts"] = JsonOut::array();
  for (const auto& part : plan.parts)
    out["parts"].push_back({{"name", part.name},
                            {"linears", part.n_linears},
                            {"weights", part.n_weights},
                            {"stored_bytes", part.stored_bytes},
                            {"bytes", part.bytes}});
  out["kept"] = plan.kept;
  out["unreached"] = plan.unreached;
  out["stages"] = plan.n_stages;
  out["samples"] = plan.n_samples;
  out["measurements"] = plan.n_measurements;
  out["source_bytes"] = plan.source_bytes;
  out["estimated_bytes"] = plan.total_bytes();
  out["estimated_stage_bytes"] = plan.stage_bytes;
  out["estimated_codes_bytes"] = plan.codes_bytes;
  out["estimated_seconds"] = plan.seconds;
  print_json(out);
}

}  // namespace triptych::cli
