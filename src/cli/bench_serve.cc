#include "cli/bench_serve.h"

#include <charconv>
#include <cstdio>
#include <filesystem>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "benchmark/bench.h"
#include "benchmark/serve_driver.h"
#include "benchmark/serve_html.h"
#include "benchmark/serve_report.h"
#include "cli/commands.h"
#include "cli/flag_checks.h"
#include "cli/json_output.h"
#include "cli/output_file.h"
#include "io/mapped_file.h"
#include "report/machine.h"

namespace triptych::cli {
namespace {

constexpr std::uint64_t kMaxTrace_bytes = std::uint64_t{512} << 20;
constexpr const char* kGroup = "Traces of requests";

// "a,b,c": whole numbers from 1.
std::vector<std::int64_t> numbers_of(const char* flag, const std::string& text) {
  std::vector<std::int64_t> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t value = 0;
    const auto [last, problem] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (problem != std::errc() || last != text.data() + end || value < 1)
      fail(ErrorCode::kInvalidArgument, "{}: expected whole numbers from 1 with commas between, got \"{}\"",
           flag, text);
    out.push_back(value);
    begin = end + 1;
  }
  return out;
}

std::pair<std::int64_t, std::int64_t> range_of(const char* flag, const std::string& text) {
  const std::vector<std::int64_t> numbers = numbers_of(flag, text);
  if (numbers.size() != 2 || numbers[0] > numbers[1])
    fail(ErrorCode::kInvalidArgument, "{}: expected LOW,HIGH, got \"{}\"", flag, text);
  return {numbers[0], numbers[1]};
}

EngineOptions engine_options(const ServeFlags& flags, const ServeSetting& setting) {
  EngineOptions out;
  out.max_context_tokens = flags.ctx_size_tokens;
  out.kv_cache_tokens = flags.kv_cache_tokens;
  out.max_batch_tokens = flags.max_batch_tokens;
  out.max_sequences = flags.max_sequences > 0 ? flags.max_sequences
                      : flags.n_clients > 0   ? flags.n_clients
                                              : 16;
  out.kv_cache_dtype = parse_kv_dtype(setting.kv_cache_dtype);
  out.replay_steps = setting.replay_steps;
  out.prefix_cache_bytes = flags.prefix_cache.bytes();
  out.vision_embedding_cache_bytes = static_cast<std::size_t>(flags.visual_cache_gb * 1e9);
  return out;
}

// What the parts of the model take, on a picture and a prompt like those of the trace.
BenchReport parts_of(LoadedModel& model, const ServeReport& report) {
  BenchOptions options;
  options.question = false;
  options.parts = true;
  options.n_repeats = 1;
  options.decode_tokens = 8;
  options.picture_width_px = options.picture_height_px = 448;
  options.kv_cache_dtype = report.options.engine.kv_cache_dtype.value_or(model.auto_kv_dtype());
  options.media = report.options.media;
  const MediaPlan plan = model.model().plan_media(
      {.width_px = options.picture_width_px, .height_px = options.picture_height_px}, options.media);
  const std::int64_t n_room =
      model.info().max_context_tokens - plan.n_prompt_tokens - options.decode_tokens - 1;
  if (n_room < 1) return {};  // no prompt fits beside such a picture
  options.prompt_tokens = plan.n_prompt_tokens + std::min<std::int64_t>(200, n_room);
  return run_bench(model, options);
}

void write_trace(const ServeFlags& flags, const ServeSetting& setting) {
  check_output("--make-trace", *flags.make_trace, setting.model.inputs());
  std::string text;
  with_flag("--make-trace", [&] { text = trace_text(make_trace(mix_of(flags, setting.n_requests))); });
  write_output("--make-trace", *flags.make_trace, text);
}

}  // namespace

TraceMix mix_of(const ServeFlags& flags, int n_requests) {
  TraceMix out = flags.mix;
  out.n_requests = n_requests;
  out.requests_per_s = flags.rate;
  if (!flags.prompt_range.empty()) out.prompt_tokens = range_of("--prompt-range", flags.prompt_range);
  if (!flags.answer_range.empty()) out.answer_tokens = range_of("--answer-range", flags.answer_range);
  if (!flags.sides.empty()) {
    out.sides_px.clear();
    for (const std::int64_t side : numbers_of("--picture-sides", flags.sides))
      out.sides_px.push_back(
          static_cast<int>(std::min<std::int64_t>(side, 1 << 30)));  // make_trace refuses it
  }
  return out;
}

std::string load_words(const ServeFlags& flags) {
  if (flags.sequential) return "one request after another";
  if (flags.n_clients > 0)
    return fmt::format("{} client{} in a closed loop", flags.n_clients, flags.n_clients == 1 ? "" : "s");
  if (flags.rate > 0) return fmt::format("Poisson arrivals, {} requests/s", flags.rate);
  return "arrivals of the trace";
}

void check_loads(const ServeFlags& flags) {
  const int n_loads = (flags.sequential ? 1 : 0) + (flags.n_clients > 0 ? 1 : 0) + (flags.rate > 0 ? 1 : 0);
  if (n_loads > 1) fail(ErrorCode::kInvalidArgument, "--clients, --rate and --sequential exclude each other");
}

std::vector<TraceRequest> read_trace(const std::string& file) {
  std::vector<TraceRequest> out;
  with_flag("--serve-trace", [&] { out = parse_trace(read_text_file(file, kMaxTrace_bytes), file); });
  return out;
}

void ServeFlags::add_to(CLI::App& app) {
  const auto add = [&](const char* name, auto& to, const char* description, const char* type) {
    return app.add_option(name, to, description)->type_name(type)->group(kGroup);
  };
  const auto count = [](std::int64_t low, std::int64_t high) {
    return CLI::Range(low, high).description("");
  };
  add("--serve-trace", trace_file, "Answer the requests of a trace, several at once, and report times",
      "FILE");
  add("--make-trace", make_trace, "Write a trace of --requests N made-up requests, the same for each --seed",
      "FILE");
  add("--clients", n_clients, "So many ask again as soon as they have their answer", "N")
      ->check(count(1, 65536));
  add("--rate", rate, "Poisson arrivals, so many requests a second, instead of the trace's own times", "R")
      ->check(is_within(1e-6, 1e6));
  app.add_flag("--sequential", sequential, "One request after another")->group(kGroup);
  add("--seed", mix.seed, "Of --make-trace and of the arrivals of --rate", "N")
      ->check(is_unsigned_64())
      ->capture_default_str();
  add("--max-num-seqs", max_sequences, "Requests that run at once", "N")
      ->check(count(1, 65536))
      ->default_str("--clients, or 16");
  add("--max-num-batched-tokens", max_batch_tokens, "Tokens of a step", "N")
      ->check(count(1, std::int64_t{1} << 30))
      ->capture_default_str();
  add("--kv-cache-tokens", kv_cache_tokens, "Tokens that the key/value cache holds; of --picture-batch, too",
      "N")
      ->check(count(1, std::int64_t{1} << 30))
      ->default_str("--ctx-size for each of --max-num-seqs");
  add("--ctx-size,--max-model-len", ctx_size_tokens, "Tokens of prompt and answer together", "N")
      ->check(count(1, std::int64_t{1} << 32))
      ->default_str("what the trace needs");
  prefix_cache.add_to(app, kGroup, "");
  add("--visual-cache-gb", visual_cache_gb, "Memory for what towers gave for pictures seen before", "GB")
      ->check(is_within(0, 1e6))
      ->capture_default_str();
  add("--prepare-threads", n_prepare_threads,
      "Threads that decode and prepare pictures beside the steps; 0: between them", "N")
      ->check(count(0, 256))
      ->capture_default_str();
  add("--picture-sides", sides, "--make-trace: widths and heights that are drawn from, pixels", "LIST")
      ->default_str("224,336,448,560,672");
  add("--prompt-range", prompt_range, "--make-trace: tokens of the questions", "LOW,HIGH")
      ->default_str("10,400");
  add("--answer-range", answer_range, "--make-trace: tokens of the answers", "LOW,HIGH")
      ->default_str("16,128");
  add("--text-share", mix.text_share, "--make-trace: share of the requests without a picture", "P")
      ->check(is_within(0, 1))
      ->capture_default_str();
  add("--repeat-share", mix.repeat_share, "--make-trace: share of the pictures that were shown before", "P")
      ->check(is_within(0, 1))
      ->capture_default_str();
  add("--prefix-tokens", mix.prefix_tokens, "--make-trace: tokens that all requests of a tenant begin with",
      "N")
      ->check(count(0, 1 << 20))
      ->capture_default_str();
  add("--tenants", mix.n_tenants, "--make-trace: tenants that requests are of", "N")
      ->check(count(1, 1 << 20))
      ->capture_default_str();
  media.add_to(app);
}

int bench_serve(ServeFlags flags, const ServeSetting& setting) {
  check_loads(flags);
  flags.media.check_values();
  if (flags.make_trace) write_trace(flags, setting);
  if (flags.trace_file.empty()) return kExitOk;
  if (setting.html) {
    std::vector<NamedPath> inputs = setting.model.inputs();
    inputs.push_back({"--serve-trace", flags.trace_file});
    check_output("--html", *setting.html, inputs);
  }
  std::vector<TraceRequest> trace = read_trace(flags.trace_file);
  if (flags.rate > 0) set_poisson_arrivals(trace, flags.rate, flags.mix.seed);
  ServeReport report;
  report.load = load_words(flags);
  if (flags.sequential) flags.n_clients = 1;
  const auto model = setting.make_model(report.model);
  flags.media.check(model->info().architecture, model->info().takes_pixel_limits);
  report.weights = weight_words(setting.model, *model).weights;
  report.options.n_clients = flags.n_clients;
  report.options.engine = engine_options(flags, setting);
  report.options.n_prepare_threads = flags.n_prepare_threads;
  report.options.media = flags.media.inner_options();
  report.options.folder = std::filesystem::path(flags.trace_file).parent_path();
  std::optional<ProgressBar> bar;
  if (!setting.model.quiet) bar.emplace("requests", static_cast<std::int64_t>(trace.size()));
  report.options.on_progress = [&bar](std::size_t n_done) {
    if (bar) bar->update(static_cast<std::int64_t>(n_done));
  };
  report.options.timeline = setting.html.has_value();
  report.run = run_serve(*model, trace, report.options);
  bar.reset();
  if (setting.html) {
    const MachineLimits limits = measure_limits(setting.model.n_threads).median;
    write_output("--html", *setting.html, serve_html(report, parts_of(*model, report), limits));
  }
  if (setting.json) {
    print_json(json_document("bench_serve", serve_json(report)));
  } else {
    std::fputs(serve_text(report).c_str(), stdout);
  }
  return summarize(report.run).n_failed > 0 ? kExitCheckFailed : kExitOk;
}

}  // namespace triptych::cli
