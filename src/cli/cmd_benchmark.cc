// triptych bench: the speed of every stage, and how near it is to what the machine could do. (Not
// cmd_bench.cc: sources that end in _bench.cc belong to the micro-benchmarks.)
#include <cstdio>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "api/convert.h"
#include "base/error.h"
#include "benchmark/bench.h"
#include "benchmark/bench_compare.h"
#include "benchmark/bench_html.h"
#include "benchmark/bench_report.h"
#include "benchmark/bench_speculation.h"
#include "benchmark/dispatch_cost.h"
#include "benchmark/published_shapes.h"
#include "cli/bench_load.h"
#include "cli/bench_memory.h"
#include "cli/bench_serve.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "cli/json_output.h"
#include "cli/output_file.h"
#include "cli/speculation_flags.h"
#include "io/mapped_file.h"
#include "report/machine.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

struct BenchFlags {
  ModelFlags model;
  MediaFlags media;
  BenchOptions options;
  std::string shapes;
  std::string kv_cache_dtype = "auto";
  std::string only;
  std::string compare;
  std::optional<std::string> html;
  int n_layers = 0;
  bool limits = false, json = false;
  MemoryFlags memory;
  ServeFlags serve;
  LoadFlags load;
  SpeculationFlags speculation;
};

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::unique_ptr<LoadedModel> make_model(const BenchFlags& flags, std::string& description) {
  if (flags.shapes.empty()) {
    if (flags.n_layers > 0) fail(ErrorCode::kInvalidArgument, "--layers goes with --shapes");
    description = flags.model.model;
    return flags.model.open();
  }
  if (!flags.model.model.empty()) fail(ErrorCode::kInvalidArgument, "MODEL and --shapes exclude each other");
  Json config;
  with_flag("--layers", [&] { config = published_config(flags.shapes, flags.n_layers); });
  LoadOptions options = flags.model.load_options();
  const std::string weights = flags.model.dtype == "auto" ? "fp16" : flags.model.dtype;
  description = fmt::format("{}, random {} weights", flags.shapes, weights);
  if (flags.n_layers > 0)
    description +=
        fmt::format(", {} of {} layers", flags.n_layers, *language_layers(published_config(flags.shapes)));
  const DType dtype = options.weight_dtype.value_or(DType::kF16);
  if (options.static_vision_inputs != true) return LoadedModel::with_random_weights(config, dtype, options);
  // The ranges are those of the picture that will be measured.
  options.static_vision_inputs.reset();
  {
    const auto dynamic = LoadedModel::with_random_weights(config, dtype, options);
    options.activation_quants = calibrate_on_test_picture(*dynamic, flags.options);
  }
  return LoadedModel::with_random_weights(config, dtype, options);
}

// --only LIST: which measurements.
void choose(const std::string& only, BenchOptions& options) {
  if (only.empty()) return;
  options.answer = options.question = false;
  bool batch = false, pictures = false;
  for (const std::string& word : split_at_commas(only)) {
    bool* chosen = word == "answer"     ? &options.answer
                   : word == "question" ? &options.question
                   : word == "batch"    ? &batch
                   : word == "pictures" ? &pictures
                                        : nullptr;
    if (chosen == nullptr)
      fail(ErrorCode::kInvalidArgument,
           "--only: expected answer, question, batch and pictures in a list, got \"{}\"", word);
    *chosen = true;
  }
  if (batch && options.n_batch == 0)
    fail(ErrorCode::kInvalidArgument, "--only batch needs the number of sequences: --batch N");
  if (pictures && options.n_picture_batch == 0)
    fail(ErrorCode::kInvalidArgument, "--only pictures needs the number of requests: --picture-batch N");
  if (!batch) options.n_batch = 0;
  if (!pictures) options.n_picture_batch = 0;
}

int bench_limits(const BenchFlags& flags) {
  const LimitsReport limits = measure_limits_report(flags.model.n_threads);
  if (flags.json) {
    print_json(json_document("bench_limits", limits_report_json(limits)));
  } else {
    std::fputs(limits_table(limits).c_str(), stdout);
  }
  return kExitOk;
}

// Of one format alone also what a step costs beside its kernels.
std::vector<BenchRun> run_all_formats(const BenchFlags& flags, std::optional<DispatchCost>& dispatch) {
  std::vector<BenchFlags> all;
  for (const std::string& weights : split_at_commas(flags.model.dtype)) {
    BenchFlags one = flags;
    one.model.dtype = weights;
    static_cast<void>(one.model.load_options());  // refuses a wrong word before the first run
    all.push_back(std::move(one));
  }
  std::vector<BenchRun> runs;
  for (const BenchFlags& one : all) {
    reset_peak_memory();
    BenchRun run;
    const auto model = make_model(one, run.model);
    run.weights = weight_words(one.model, *model).weights;
    BenchOptions options = one.options;
    options.kv_cache_dtype = parse_kv_dtype(one.kv_cache_dtype).value_or(model->auto_kv_dtype());
    run.report = run_bench(*model, options);
    if (all.size() == 1 && one.options.answer) {
      const Json config =
          one.shapes.empty() ? model->checkpoint().config() : published_config(one.shapes, one.n_layers);
      LoadOptions load = one.model.load_options();
      load.static_vision_inputs.reset();  // of answers alone
      dispatch = measure_dispatch(*model, config, load, one.options.replay_steps);
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

JsonOut speculation_json(const BenchFlags& flags, const std::string& model, const std::string& weights,
                         const SpeculationBenchOptions& options,
                         const std::vector<SpeculationTrace>& traces) {
  JsonOut out = json_document("bench_speculation", {{"model", model},
                                                    {"weights", weights},
                                                    {"kv_cache_dtype", to_string(options.kv_cache_dtype)},
                                                    {"method", flags.speculation.options.method},
                                                    {"sequences", options.n_sequences},
                                                    {"prompt_tokens", options.prompt_tokens},
                                                    {"decode_tokens", options.decode_tokens}});
  out["traces"] = JsonOut::array();
  for (const SpeculationTrace& trace : traces)
    out["traces"].push_back({{"name", trace.name},
                             {"tokens_per_s", trace.tokens_per_s},
                             {"plain_tokens_per_s", trace.plain_tokens_per_s},
                             {"speedup", trace.speedup},
                             {"lowest_speedup", trace.lowest_speedup},
                             {"highest_speedup", trace.highest_speedup},
                             {"drafted_tokens", trace.n_drafted},
                             {"accepted_tokens", trace.n_accepted},
                             {"same_answers", trace.is_same}});
  return out;
}

// --speculative: answers with and without drafts, in turn. Exit code 1 when one was not the same.
int bench_speculation(const BenchFlags& flags) {
  flags.speculation.check();
  std::string description;
  const auto model = make_model(flags, description);
  const SpeculationBenchOptions options{
      .speculation = api::to_inner(flags.speculation.options),
      .prompt_tokens = flags.options.prompt_tokens,
      .decode_tokens = flags.options.decode_tokens,
      .n_repeats = flags.options.n_repeats,
      .n_sequences = std::max(1, flags.options.n_batch),
      .kv_cache_dtype = parse_kv_dtype(flags.kv_cache_dtype).value_or(model->auto_kv_dtype()),
      .replay_steps = flags.options.replay_steps};
  const std::vector<SpeculationTrace> traces = run_speculation_bench(*model, options);
  const std::string weights = weight_words(flags.model, *model).weights;
  if (flags.json) {
    print_json(speculation_json(flags, description, weights, options, traces));
  } else {
    std::printf("%s, weights %s, %s, answers of %lld tokens to prompts of %lld, %d at once\n\n",
                one_line(description).c_str(), weights.c_str(), flags.speculation.options.method.c_str(),
                static_cast<long long>(options.decode_tokens), static_cast<long long>(options.prompt_tokens),
                options.n_sequences);
    TextTable table({{"answers", Align::kLeft},
                     {"tokens/s"},
                     {"without"},
                     {"speedup"},
                     {"range"},
                     {"drafted"},
                     {"right"}});
    for (const SpeculationTrace& t : traces)
      table.add_row({t.name, fmt::format("{:.1f}", t.tokens_per_s),
                     fmt::format("{:.1f}", t.plain_tokens_per_s), fmt::format("{:.3f}", t.speedup),
                     fmt::format("{:.3f} to {:.3f}", t.lowest_speedup, t.highest_speedup),
                     std::to_string(t.n_drafted), std::to_string(t.n_accepted)});
    std::fputs(table.render().c_str(), stdout);
  }
  const bool all_same = std::all_of(traces.begin(), traces.end(), [](const auto& t) { return t.is_same; });
  if (!all_same) std::fputs("triptych: an answer with drafts is not the one without\n", stderr);
  return all_same ? kExitOk : kExitCheckFailed;
}

int bench_model(BenchFlags flags) {
  if (flags.model.model.empty() && flags.shapes.empty())
    fail(ErrorCode::kInvalidArgument, "a MODEL, --shapes NAME or --limits is needed");
  if (flags.speculation.wanted()) return bench_speculation(flags);
  choose(flags.only, flags.options);
  flags.options.media = flags.media.inner_options();
  flags.options.kv_cache_tokens = flags.serve.kv_cache_tokens;
  if (flags.html) {
    std::vector<NamedPath> inputs = flags.model.inputs();
    inputs.push_back({"--compare", flags.compare});
    check_output("--html", *flags.html, inputs);
    flags.options.parts = flags.options.timeline = true;
  }
  if (flags.options.parts && !flags.options.answer)
    fail(ErrorCode::kInvalidArgument, "--parts and --html need the measurement \"answer\"");
  std::optional<EarlierBench> earlier;
  if (!flags.compare.empty())
    earlier = parse_earlier_bench(read_text_file(flags.compare, std::uint64_t{16} << 20), flags.compare);
  std::optional<DispatchCost> dispatch;
  const std::vector<BenchRun> runs = run_all_formats(flags, dispatch);
  const MachineLimits limits = measure_limits(flags.model.n_threads).median;
  if (flags.html) write_output("--html", *flags.html, bench_html(runs, limits));
  if (flags.json) {
    JsonOut out = json_document(runs.size() == 1 ? "bench" : "bench_sweep", bench_json(runs, limits));
    if (dispatch) out["dispatch"] = dispatch_json(*dispatch, runs.front().report);
    if (earlier) out["compared"] = compare_json(*earlier, runs);
    print_json(out);
    return kExitOk;
  }
  std::string text = runs.size() == 1 ? report_text(runs.front(), limits) : sweep_text(runs, limits);
  if (dispatch) text += dispatch_text(*dispatch, runs.front().report);
  if (earlier) text += "\n" + compare_text(*earlier, runs, limits);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

int bench_trace(const BenchFlags& flags) {
  if (!flags.serve.trace_file.empty() && flags.model.model.empty() && flags.shapes.empty())
    fail(ErrorCode::kInvalidArgument, "--serve-trace: a MODEL or --shapes NAME is needed");
  return bench_serve(flags.serve,
                     {.make_model = [&](std::string& description) { return make_model(flags, description); },
                      .model = flags.model,
                      .kv_cache_dtype = flags.kv_cache_dtype,
                      .replay_steps = flags.options.replay_steps,
                      .html = flags.html,
                      .json = flags.json,
                      .n_requests = flags.memory.workload.n_requests});
}

// These measure something else: what is said about the stages of a model would be lost on them.
void check_alone(const BenchFlags& flags) {
  const bool limits = flags.limits && !flags.memory.wanted();
  const char* other = flags.memory.wanted()  ? "--memory"
                      : flags.serve.wanted() ? "--serve-trace and --make-trace"
                                             : "--limits";
  const auto refuse = [&other](const char* flag, bool given) {
    if (given) fail(ErrorCode::kInvalidArgument, "{} does not go with {}", flag, other);
  };
  if (flags.memory.wanted()) refuse("--serve-trace", flags.serve.wanted());
  if (flags.serve.wanted()) refuse("--limits", flags.limits);
  if (flags.memory.wanted() || limits) {
    refuse("MODEL", !flags.model.model.empty());
    refuse("--html", flags.html.has_value());
  }
  if (flags.memory.wanted() || limits || flags.serve.wanted()) {
    refuse("--compare", !flags.compare.empty());
    refuse("--only", !flags.only.empty());
  }
  if (limits) refuse("--shapes", !flags.shapes.empty());
  if (flags.memory.wanted() || limits) refuse("--speculative", flags.speculation.wanted());
  if (flags.speculation.wanted()) {
    other = "--speculative";
    refuse("--html", flags.html.has_value());
    refuse("--compare", !flags.compare.empty());
    refuse("--only", !flags.only.empty());
    refuse("--parts", flags.options.parts);
  }
  if (flags.memory.wanted()) return;
  if (flags.memory.write_trace) fail(ErrorCode::kInvalidArgument, "--trace-allocations goes with --memory");
  if (!flags.memory.trace_file.empty())
    fail(ErrorCode::kInvalidArgument, "--replay-allocations goes with --memory");
}

int bench(const BenchFlags& flags) {
  if (flags.load.wanted())
    return bench_load(flags.load, flags.serve,
                      {.html = flags.html,
                       .json = flags.json,
                       .quiet = flags.model.quiet,
                       .n_requests = flags.memory.workload.n_requests});
  flags.load.check_unused();
  check_alone(flags);
  if (flags.memory.wanted())
    return bench_memory(flags.memory, flags.shapes, flags.model.load_options(), flags.json);
  if (flags.serve.wanted()) return bench_trace(flags);
  return flags.limits ? bench_limits(flags) : bench_model(flags);
}

}  // namespace

void add_bench_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App& app = *program.add_subcommand("bench", "Measure the speed of every stage");
  flags->model.add_to(app, false);
  std::vector<std::string> names;
  for (const PublishedShape& shape : published_shapes()) names.emplace_back(shape.name);
  const auto range = [](int low) {
    return CLI::Range(std::int64_t{low}, std::int64_t{1} << 30).description("");
  };
  app.add_option("--shapes", flags->shapes,
                 "Random weights with the sizes of a published model instead of MODEL")
      ->check(CLI::IsMember(names))
      ->type_name("NAME");
  app.add_option("--layers", flags->n_layers, "Only N layers of the language model (with --shapes)")
      ->check(range(1))
      ->type_name("N");
  app.add_option("--prompt-tokens", flags->options.prompt_tokens,
                 "Tokens of the prompt, the picture's included")
      ->check(range(1))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--decode", flags->options.decode_tokens, "Tokens of the answer")
      ->check(range(2))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--repeat", flags->options.n_repeats, "Runs; medians are shown")
      ->check(range(1))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--width", flags->options.picture_width_px, "Width of the test picture, pixels")
      ->check(CLI::Range(1, 16384).description(""))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--height", flags->options.picture_height_px, "Height of the test picture, pixels")
      ->check(CLI::Range(1, 16384).description(""))
      ->capture_default_str()
      ->type_name("N");
  add_kv_cache_dtype(app, flags->kv_cache_dtype);
  add_enforce_eager(app, flags->options.replay_steps);
  app.add_option("--question-tokens", flags->options.question_tokens,
                 "Text tokens of the short question behind a picture")
      ->check(range(1))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--batch", flags->options.n_batch,
                 "Also N sequences that decode at once, each after a text prompt of its own")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  app.add_option("--picture-batch", flags->options.n_picture_batch,
                 "Also N requests at once about a picture that the tower has seen, within --kv-cache-tokens")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  flags->media.add_image_tokens_to(app);
  app.add_option(
         "--only", flags->only,
         "Only these measurements: answer (all stages), question (first token after a picture), batch, "
         "pictures")
      ->type_name("LIST");
  app.add_flag("--parts", flags->options.parts, "Also time every part of the model: its matrices, attention");
  app.add_option("--compare", flags->compare, "Compare with FILE, which an earlier --json wrote")
      ->type_name("FILE");
  app.add_option("--html", flags->html,
                 "Write a report with the roofline of every part and what each thread did")
      ->type_name("FILE");
  app.add_flag("--limits", flags->limits, "Only measure what the machine could do");
  flags->memory.add_to(app);
  flags->serve.add_to(app);
  flags->load.add_to(app);
  flags->speculation.add_to(app);
  add_json_flag(app, flags->json, "Print one JSON object instead of a table");
  show_first(app, {"shapes", "weights", "prompt-tokens", "decode", "json"});
  std::string footer = "Shapes:\n";
  for (const PublishedShape& shape : published_shapes())
    footer += fmt::format("  {:<22}{}\n", shape.name, shape.description);
  footer +=
      "\nThe roofline is the longer of operations over the fp32 or int8 speed and bytes over the read speed, "
      "all "
      "measured in the\n"
      "same run. --weights takes several formats in a list: one row each.\n\n"
      "Examples:\n"
      "  triptych bench MODEL\n"
      "  triptych bench --shapes llava-1.5-7b --weights int8 --decode 16\n"
      "  triptych bench --shapes llava-1.5-13b --layers 8 --json > earlier.json\n"
      "  triptych bench --shapes llava-1.5-13b --layers 8 --compare earlier.json\n"
      "  triptych bench MODEL --weights bf16,int8,int4:g128 --batch 8\n"
      "  triptych bench MODEL --weights int8 --html report.html\n"
      "  triptych bench --make-trace t.jsonl --requests 96 --seed 1\n"
      "  triptych bench MODEL --serve-trace t.jsonl --clients 16\n"
      "  triptych bench --serve http://127.0.0.1:8000 --requests 96 --rate 2\n"
      "  triptych bench --shapes llava-1.5-7b --weights int4:g128 --speculative ngram --decode 128\n"
      "  triptych bench --memory\n"
      "  triptych bench --limits";
  app.footer(footer);
  app.callback([flags, &action] { action = [flags] { return bench(*flags); }; });
}

}  // namespace triptych::cli
