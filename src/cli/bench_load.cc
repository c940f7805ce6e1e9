#include "cli/bench_load.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "benchmark/load_client.h"
#include "benchmark/load_report.h"
#include "benchmark/load_requests.h"
#include "cli/commands.h"
#include "cli/flag_checks.h"
#include "cli/json_output.h"
#include "cli/output_file.h"

namespace triptych::cli {
namespace {

constexpr const char* kGroup = "Load on a server";
constexpr int kDefaultClients = 16;  // of requests that are made up and have no times

// These say what an engine in this process does.
constexpr const char* kOfAnEngine[] = {"MODEL",
                                       "--make-trace",
                                       "--shapes",
                                       "--layers",
                                       "--weights",
                                       "--kv-cache-dtype",
                                       "--compare",
                                       "--only",
                                       "--parts",
                                       "--limits",
                                       "--memory",
                                       "--batch",
                                       "--decode",
                                       "--prompt-tokens",
                                       "--picture-batch",
                                       "--max-num-seqs",
                                       "--ctx-size",
                                       "--min-pixels",
                                       "--max-pixels",
                                       "--kv-cache-tokens",
                                       "--max-num-batched-tokens",
                                       "--speculative",
                                       "--prepare-threads",
                                       "--visual-cache-gb",
                                       "--prefix-cache-gb",
                                       "--enable-prefix-caching",
                                       "--image-tokens-keep"};

std::vector<TraceRequest> requests_of(ServeFlags& serve, int n_requests) {
  if (serve.trace_file.empty()) {
    std::vector<TraceRequest> out;
    with_flag("--serve", [&] { out = make_trace(mix_of(serve, n_requests)); });
    if (serve.rate <= 0 && serve.n_clients == 0 && !serve.sequential) serve.n_clients = kDefaultClients;
    return out;
  }
  std::vector<TraceRequest> out = read_trace(serve.trace_file);
  if (serve.rate > 0) set_poisson_arrivals(out, serve.rate, serve.mix.seed);
  return out;
}

}  // namespace

void LoadFlags::add_to(CLI::App& app) {
  app_ = &app;
  const auto add = [&](const char* name, auto& to, const char* description, const char* type) {
    return app.add_option(name, to, description)->type_name(type)->group(kGroup);
  };
  add("--serve", url,
      "Send the requests of --serve-trace, or --requests N made-up ones, to a server that speaks OpenAI's "
      "chat completions, and report times; the variable TRIPTYCH_API_KEY holds its key",
      "URL");
  add("--ask-model", model, "The model's name in requests", "NAME")->default_str("the server's first");
  add("--request-fields", fields, "Members added to each request; null takes one away", "JSON");
  add("--request-timeout", timeout_s, "Seconds that a request may take", "S")
      ->check(is_within(0.001, 86400))
      ->capture_default_str();
}

void LoadFlags::check_alone() const {
  for (const char* flag : kOfAnEngine)
    if (app_->count(flag) > 0) fail(ErrorCode::kInvalidArgument, "{} does not go with --serve", flag);
}

void LoadFlags::check_unused() const {
  for (const char* flag : {"--ask-model", "--request-fields", "--request-timeout"})
    if (app_->count(flag) > 0) fail(ErrorCode::kInvalidArgument, "{} goes with --serve", flag);
}

int bench_load(const LoadFlags& flags, ServeFlags serve, const LoadSetting& setting) {
  flags.check_alone();
  check_loads(serve);
  if (setting.html)
    check_output("--html", *setting.html,
                 serve.trace_file.empty() ? std::vector<NamedPath>()
                                          : std::vector<NamedPath>{{"--serve-trace", serve.trace_file}});
  LoadTarget target;
  with_flag("--serve", [&] { target = parse_load_url(flags.url); });
  const std::vector<TraceRequest> trace = requests_of(serve, setting.n_requests);
  LoadReport report;
  report.url = flags.url;
  report.load = load_words(serve);
  report.n_clients = serve.sequential ? 1 : serve.n_clients;
  LoadTestOptions options;
  options.n_clients = report.n_clients;
  options.timeout_s = flags.timeout_s;
  if (const char* key = std::getenv("TRIPTYCH_API_KEY"); key != nullptr) options.api_key = key;
  report.model = flags.model;
  if (report.model.empty()) with_flag("--serve", [&] { report.model = first_served_model(target, options); });
  const std::vector<std::string> bodies =
      make_load_bodies(trace, {.model = report.model,
                               .folder = std::filesystem::path(serve.trace_file).parent_path(),
                               .fields = flags.fields});
  std::vector<double> arrivals_ms;
  for (const TraceRequest& request : trace) arrivals_ms.push_back(request.arrival_ms);
  std::optional<ProgressBar> bar;
  if (!setting.quiet) bar.emplace("requests", static_cast<std::int64_t>(trace.size()));
  options.on_progress = [&bar](std::size_t n_done) {
    if (bar) bar->update(static_cast<std::int64_t>(n_done));
  };
  with_flag("--serve", [&] { report.run = run_load(target, bodies, arrivals_ms, options); });
  bar.reset();
  if (setting.html) write_output("--html", *setting.html, load_html(report));
  if (setting.json) {
    print_json(json_document("bench_load", load_json(report)));
  } else {
    std::fputs(load_text(report).c_str(), stdout);
  }
  return summarize(report.run).served.n_failed > 0 ? kExitCheckFailed : kExitOk;
}

}  // namespace triptych::cli
