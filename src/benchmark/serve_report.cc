#include "benchmark/serve_report.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "report/text_table.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxSeries = 400;  // points of a series in JSON

struct Latency {
  const char* key;    // in JSON
  const char* title;  // in tables
  double GenerationTimings::*time;
};
constexpr Latency kLatencies[] = {
    {"first_token", "first token", &GenerationTimings::first_token_ms},
    {"end_to_end", "end to end", &GenerationTimings::total_ms},
    {"queue", "waiting", &GenerationTimings::queue_ms},
    {"image_decode", "image decode", &GenerationTimings::image_decode_ms},
    {"preprocess", "preprocess", &GenerationTimings::preprocess_ms},
    {"encode", "tower", &GenerationTimings::encode_ms},
    {"prefill", "prefill", &GenerationTimings::prefill_ms},
    {"decode", "decode", &GenerationTimings::decode_ms},
    {"detokenize", "detokenize", &GenerationTimings::detokenize_ms},
};
constexpr const char* kInterToken = "inter_token";

double per_s(double n, double ms) { return ms > 0 ? n * 1000.0 / ms : 0; }

void add_latencies(const ServeRun& run, ServeSummary& out) {
  std::vector<double> gaps;
  for (const ServedRequest& r : run.requests) gaps.insert(gaps.end(), r.gaps_ms.begin(), r.gaps_ms.end());
  for (const Latency& latency : kLatencies) {
    std::vector<double> values;
    for (const ServedRequest& r : run.requests)
      if (!r.error) values.push_back(r.timings.*latency.time);
    out.latencies.emplace_back(latency.key, percentiles_of(std::move(values)));
    if (out.latencies.size() == 1) out.latencies.emplace_back(kInterToken, percentiles_of(std::move(gaps)));
  }
}

void add_steps(const ServeRun& run, ServeSummary& out) {
  double block_ms = 0, ms = 0;
  std::int64_t n_sequences = 0;
  for (const ServedStep& step : run.steps) {
    const StepStats& s = step.stats;
    const std::int64_t n_rows = s.n_prompt_rows + s.n_decode_rows;
    out.n_padded_rows += s.n_padded_rows;
    out.n_patches += s.n_patches;
    out.n_padded_patches += s.n_padded_patches;
    out.n_blocks = s.n_blocks;
    out.most_used_blocks = std::max(out.most_used_blocks, s.n_used_blocks);
    out.most_running = std::max(out.most_running, s.n_running);
    out.most_waiting = std::max(out.most_waiting, s.n_waiting);
    block_ms += step.ms * static_cast<double>(s.n_used_blocks);
    ms += step.ms;
    if (n_rows == 0) continue;
    ++out.n_steps;
    out.n_rows += n_rows;
    n_sequences += s.n_sequences;
    out.most_rows = std::max(out.most_rows, n_rows);
    out.most_sequences = std::max(out.most_sequences, s.n_sequences);
  }
  if (ms > 0) out.mean_used_blocks = block_ms / ms;
  if (out.n_steps == 0) return;
  out.mean_sequences = static_cast<double>(n_sequences) / static_cast<double>(out.n_steps);
  out.mean_rows = static_cast<double>(out.n_rows) / static_cast<double>(out.n_steps);
}

// The run over time in at most kMaxSeries stretches: means weighted by time.
JsonOut series_json(const ServeRun& run) {
  const std::size_t n = std::min(kMaxSeries, run.steps.size());
  std::vector<double> weight(n), sequences(n), rows(n), blocks(n), waiting(n);
  for (const ServedStep& step : run.steps) {
    const double share = run.wall_ms > 0 ? (step.start_ms + step.ms / 2) / run.wall_ms : 0;
    const std::size_t i = std::min(n - 1, static_cast<std::size_t>(share * static_cast<double>(n)));
    weight[i] += step.ms;
    sequences[i] += step.ms * static_cast<double>(step.stats.n_sequences);
    rows[i] += step.ms * static_cast<double>(step.stats.n_prompt_rows + step.stats.n_decode_rows);
    blocks[i] += step.ms * static_cast<double>(step.stats.n_used_blocks);
    waiting[i] += step.ms * static_cast<double>(step.stats.n_waiting);
  }
  JsonOut out = JsonOut::array();
  for (std::size_t i = 0; i < n; ++i) {
    if (weight[i] <= 0) continue;
    out.push_back({{"ms", run.wall_ms * (static_cast<double>(i) + 0.5) / static_cast<double>(n)},
                   {"sequences", sequences[i] / weight[i]},
                   {"rows", rows[i] / weight[i]},
                   {"used_blocks", blocks[i] / weight[i]},
                   {"waiting", waiting[i] / weight[i]}});
  }
  return out;
}

}  // namespace

ServeSummary summarize(const ServeRun& run) {
  ServeSummary out;
  for (const ServedRequest& r : run.requests) {
    if (r.error) {
      if (out.n_failed++ == 0) out.first_error = r.error->message;
      continue;
    }
    ++out.n_answered;
    out.n_prompt_tokens += r.n_prompt_tokens;
    out.n_image_tokens += r.n_image_tokens;
    out.n_answer_tokens += r.n_answer_tokens;
  }
  out.requests_per_s = per_s(static_cast<double>(out.n_answered), run.wall_ms);
  out.prompt_tokens_per_s = per_s(static_cast<double>(out.n_prompt_tokens), run.wall_ms);
  out.answer_tokens_per_s = per_s(static_cast<double>(out.n_answer_tokens), run.wall_ms);
  if (run.wall_ms > 0) out.cpu_share = run.cpu_ms / (run.wall_ms * run.n_threads);
  add_latencies(run, out);
  add_steps(run, out);
  return out;
}

std::vector<std::pair<std::string, std::string>> serve_facts(const ServeReport& report) {
  const ServeRun& run = report.run;
  const ServeSummary s = summarize(run);
  const EngineTotals& t = run.totals;
  const auto share = [](std::int64_t part, std::int64_t all) {
    return all > 0 ? fmt::format("{} of {} ({})", part, all,
                                 format_percent(static_cast<double>(part) / static_cast<double>(all)))
                   : std::string("not in use");
  };
  std::string visual = share(t.n_vision_hits, t.n_vision_queries);
  if (t.n_vision_hits > 0) visual += fmt::format(", about {} saved", format_ms(t.vision_saved_ms));
  return {
      {"requests", fmt::format("{} answered, {} failed in {}: {:.3f} requests/s", s.n_answered, s.n_failed,
                               format_ms(run.wall_ms), s.requests_per_s)},
      {"tokens of prompts", fmt::format("{}, {} of them of pictures: {:.1f} tokens/s", s.n_prompt_tokens,
                                        s.n_image_tokens, s.prompt_tokens_per_s)},
      {"tokens of answers", fmt::format("{}: {:.1f} tokens/s", s.n_answer_tokens, s.answer_tokens_per_s)},
      {"steps",
       fmt::format("{}; in one {:.2f} sequences on average, {} at most; {:.1f} rows on average, {} at most",
                   s.n_steps, s.mean_sequences, s.most_sequences, s.mean_rows, s.most_rows)},
      {"padding", fmt::format("{} of {} rows, {} of {} patches", s.n_padded_rows, s.n_rows + s.n_padded_rows,
                              s.n_padded_patches, s.n_patches)},
      {"running, waiting", fmt::format("{} and {} at most", s.most_running, s.most_waiting)},
      {"cache blocks", fmt::format("{:.1f} in use on average, {} at most, of {} with {} tokens each ({})",
                                   s.mean_used_blocks, s.most_used_blocks, s.n_blocks, kBlockTokens,
                                   format_bytes(static_cast<double>(run.kv_cache_bytes)))},
      {"preemptions", fmt::format("{}", t.n_preemptions)},
      {"prefix cache, tokens", share(t.n_prefix_hits, t.n_prefix_queries)},
      {"visual cache, pictures", visual},
      {"processor", fmt::format("{} of {} thread{} on average", format_percent(s.cpu_share), run.n_threads,
                                run.n_threads == 1 ? "" : "s")},
      {"peak memory", format_bytes(static_cast<double>(run.peak_memory_bytes))}};
}

std::string latency_title(std::string_view key) {
  for (const Latency& latency : kLatencies)
    if (key == latency.key) return latency.title;
  return "between tokens";
}

std::string serve_text(const ServeReport& report) {
  const ServeSummary s = summarize(report.run);
  std::string out = fmt::format("{}; weights {}; {}; {} thread{}\n", report.model, report.weights,
                                report.load, report.run.n_threads, report.run.n_threads == 1 ? "" : "s");
  for (const auto& [name, value] : serve_facts(report)) out += fmt::format("  {:<24}{}\n", name, value);
  TextTable table({{"time", Align::kLeft}, {"mean"}, {"p50"}, {"p90"}, {"p99"}, {"longest"}});
  for (const auto& [key, p] : s.latencies)
    table.add_row({latency_title(key), format_ms(p.mean), format_ms(p.p50), format_ms(p.p90),
                   format_ms(p.p99), format_ms(p.highest)});
  out += '\n' + table.render(2);
  if (s.n_failed > 0) out += fmt::format("\n  the first that failed: {}\n", one_line(s.first_error));
  return out;
}

JsonOut serve_json(const ServeReport& report) {
  const ServeRun& run = report.run;
  const ServeSummary s = summarize(run);
  JsonOut latencies = JsonOut::object();
  for (const auto& [key, p] : s.latencies)
    latencies[key + "_ms"] = {
        {"mean", p.mean}, {"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"highest", p.highest}};
  JsonOut errors = JsonOut::array();
  for (std::size_t i = 0; i < run.requests.size() && errors.size() < 10; ++i)
    if (run.requests[i].error)
      errors.push_back({{"request", i + 1}, {"message", run.requests[i].error->message}});
  return {{"model", report.model},
          {"weights", report.weights},
          {"load", report.load},
          {"threads", run.n_threads},
          {"prepare_threads", report.options.n_prepare_threads},
          {"max_num_seqs", report.options.engine.max_sequences},
          {"max_num_batched_tokens", report.options.engine.max_batch_tokens},
          {"max_context_tokens", run.max_context_tokens},
          {"requests", {{"answered", s.n_answered}, {"failed", s.n_failed}, {"errors", errors}}},
          {"wall_ms", run.wall_ms},
          {"cpu_ms", run.cpu_ms},
          {"requests_per_s", s.requests_per_s},
          {"prompt_tokens", s.n_prompt_tokens},
          {"image_tokens", s.n_image_tokens},
          {"answer_tokens", s.n_answer_tokens},
          {"prompt_tokens_per_s", s.prompt_tokens_per_s},
          {"answer_tokens_per_s", s.answer_tokens_per_s},
          {"latencies", latencies},
          {"batch",
           {{"steps", s.n_steps},
            {"mean_sequences", s.mean_sequences},
            {"most_sequences", s.most_sequences},
            {"mean_rows", s.mean_rows},
            {"most_rows", s.most_rows},
            {"most_running", s.most_running},
            {"most_waiting", s.most_waiting}}},
          {"padding",
           {{"rows", s.n_rows},
            {"padded_rows", s.n_padded_rows},
            {"patches", s.n_patches},
            {"padded_patches", s.n_padded_patches}}},
          {"kv_cache",
           {{"blocks", s.n_blocks},
            {"block_tokens", kBlockTokens},
            {"bytes", run.kv_cache_bytes},
            {"mean_used_blocks", s.mean_used_blocks},
            {"most_used_blocks", s.most_used_blocks},
            {"preemptions", run.totals.n_preemptions}}},
          {"prefix_cache",
           {{"query_tokens", run.totals.n_prefix_queries}, {"hit_tokens", run.totals.n_prefix_hits}}},
          {"visual_cache",
           {{"queries", run.totals.n_vision_queries},
            {"hits", run.totals.n_vision_hits},
            {"encoded", run.totals.n_media_encoded},
            {"saved_ms", run.totals.vision_saved_ms}}},
          {"peak_memory_bytes", run.peak_memory_bytes},
          {"series", series_json(run)}};
}

}  // namespace triptych
