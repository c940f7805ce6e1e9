// triptych bench: the speed of every stage, and how near it is to what the machine could do. (Not
// cmd_bench.cc: sources that end in _bench.cc belong to the micro-benchmarks.)
#include <cstdio>

#include <CLI/CLI.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/dispatch_cost.h"
#include "cli/flags.h"
#include "cli/json_output.h"
#include "cli/machine.h"
#include "cli/memory_report.h"
#include "cli/published_shapes.h"
#include "cli/text_table.h"

namespace triptych::cli {
namespace {

struct BenchFlags {
  ModelFlags model;
  BenchOptions options;
  std::string shapes;
  std::string kv_cache_dtype = "auto";
  int n_layers = 0;
  bool limits = false, json = false;
  MemoryFlags memory;
};

std::unique_ptr<LoadedModel> make_model(const BenchFlags& flags, std::string& description) {
  if (flags.shapes.empty()) {
    if (flags.n_layers > 0) fail(ErrorCode::kInvalidArgument, "--layers goes with --shapes");
    description = flags.model.model;
    return flags.model.open();
  }
  if (!flags.model.model.empty()) fail(ErrorCode::kInvalidArgument, "MODEL and --shapes exclude each other");
  const Json config = published_config(flags.shapes, flags.n_layers);
  const LoadOptions options = flags.model.load_options();
  const std::string weights = flags.model.dtype == "auto" ? "fp16" : flags.model.dtype;
  description = fmt::format("{}, random {} weights", flags.shapes, weights);
  if (flags.n_layers > 0)
    description +=
        fmt::format(", {} of {} layers", flags.n_layers, *language_layers(published_config(flags.shapes)));
  return LoadedModel::with_random_weights(config, options.weight_dtype.value_or(DType::kF16), options);
}

JsonOut limits_json(const MachineLimits& limits) {
  return {{"threads", limits.n_threads},
          {"instruction_set", to_string(active_isa())},
          {"processor", cpu_name()},
          {"fp32_flops_per_s", limits.fp32_flops_per_s},
          {"read_bytes_per_s", limits.read_bytes_per_s},
          {"int8_ops_per_s", limits.int8_ops_per_s},
          {"bf16_flops_per_s", limits.bf16_flops_per_s}};
}

std::string limits_text(const MachineLimits& limits) {
  std::string out = fmt::format("{}, {} thread{}, {}: {}FLOP/s in fp32, {}/s read from memory", cpu_name(),
                                limits.n_threads, limits.n_threads == 1 ? "" : "s", to_string(active_isa()),
                                format_count(limits.fp32_flops_per_s), format_bytes(limits.read_bytes_per_s));
  if (limits.int8_ops_per_s > 0) out += fmt::format(", {}OP/s in int8", format_count(limits.int8_ops_per_s));
  if (limits.bf16_flops_per_s > 0)
    out += fmt::format(", {}FLOP/s in bf16", format_count(limits.bf16_flops_per_s));
  return out + '\n';
}

void print_report(const BenchReport& report, const MachineLimits& limits, const std::string& description) {
  std::printf("%s; %lld prompt tokens, %lld of them from a picture\n", one_line(description).c_str(),
              static_cast<long long>(report.n_prompt_tokens), static_cast<long long>(report.n_image_tokens));
  std::fputs(limits_text(limits).c_str(), stdout);
  TextTable table(
      {{"stage", Align::kLeft}, {"time"}, {"rate"}, {"operations"}, {"bytes"}, {"of the roofline"}});
  for (const BenchStage& stage : report.stages) {
    const bool counted = stage.cost.flops + stage.cost.int8_ops > 0;
    table.add_row(
        {stage.name, format_ms(stage.ms),
         fmt::format("{:.1f} {}/s", static_cast<double>(stage.n_items) * 1000.0 / stage.ms, stage.unit),
         counted ? format_count(stage.cost.flops + stage.cost.int8_ops) : "-",
         counted ? format_bytes(stage.cost.bytes) : "-",
         counted ? format_percent(roofline_share(stage.cost, limits, stage.ms / 1000.0)) : "-"});
  }
  std::fputs(table.render().c_str(), stdout);
  std::printf("first token after %s; peak memory %s, of it keys and values %s\n",
              format_ms(report.first_token_ms).c_str(),
              format_bytes(static_cast<double>(report.peak_memory_bytes)).c_str(),
              format_bytes(static_cast<double>(report.kv_cache_bytes)).c_str());
}

JsonOut report_json(const BenchReport& report, const MachineLimits& limits, const std::string& description) {
  JsonOut out = {{"model", description},
                 {"version", build_info().version},
                 {"revision", build_info().revision},
                 {"prompt_tokens", report.n_prompt_tokens},
                 {"image_tokens", report.n_image_tokens},
                 {"first_token_ms", report.first_token_ms},
                 {"peak_memory_bytes", report.peak_memory_bytes},
                 {"kv_cache_bytes", report.kv_cache_bytes}};
  out["stages"] = JsonOut::array();
  for (const BenchStage& stage : report.stages) {
    JsonOut one = {{"name", stage.name},
                   {"ms", stage.ms},
                   {"items", stage.n_items},
                   {"unit", stage.unit},
                   {"items_per_s", static_cast<double>(stage.n_items) * 1000.0 / stage.ms}};
    if (stage.cost.flops + stage.cost.int8_ops > 0) {
      one["flops"] = stage.cost.flops;
      one["int8_ops"] = stage.cost.int8_ops;
      one["bytes"] = stage.cost.bytes;
      one["roofline_share"] = roofline_share(stage.cost, limits, stage.ms / 1000.0);
    }
    out["stages"].push_back(std::move(one));
  }
  out["limits"] = limits_json(limits);
  return out;
}

int bench(BenchFlags flags) {
  if (flags.memory.wanted())
    return bench_memory(flags.memory, flags.shapes, flags.model.load_options(), flags.json);
  if (flags.limits) {
    const MachineLimits limits = measure_limits(flags.model.n_threads);
    if (flags.json) {
      print_json(limits_json(limits));
    } else {
      std::fputs(limits_text(limits).c_str(), stdout);
    }
    return kExitOk;
  }
  if (flags.model.model.empty() && flags.shapes.empty())
    fail(ErrorCode::kInvalidArgument, "a MODEL, --shapes NAME or --limits is needed");
  flags.options.kv_cache_dtype = parse_kv_dtype(flags.kv_cache_dtype).value_or(KvDType::kF16);
  std::string description;
  reset_peak_memory();
  const auto model = make_model(flags, description);
  const BenchReport report = run_bench(*model, flags.options);
  const MachineLimits limits = measure_limits(flags.model.n_threads);
  const Json config =
      flags.shapes.empty() ? model->checkpoint().config() : published_config(flags.shapes, flags.n_layers);
  const auto dispatch = measure_dispatch(*model, config, flags.model.load_options());
  if (flags.json) {
    JsonOut out = report_json(report, limits, description);
    if (dispatch) out["dispatch"] = dispatch_json(*dispatch, report);
    print_json(out);
  } else {
    print_report(report, limits, description);
    if (dispatch) std::fputs(dispatch_text(*dispatch, report).c_str(), stdout);
  }
  return kExitOk;
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
  add_kv_cache_dtype(app, flags->kv_cache_dtype, "fp16");
  app.add_flag("--limits", flags->limits, "Only measure what the machine could do");
  flags->memory.add_to(app);
  app.add_flag("--json", flags->json, "Print one JSON object instead of a table");
  std::string footer = "Shapes:\n";
  for (const PublishedShape& shape : published_shapes())
    footer += fmt::format("  {:<22}{}\n", shape.name, shape.description);
  footer +=
      "\nThe roofline is the longer of operations over the fp32 or int8 speed and bytes over the read speed, "
      "all "
      "measured in the\n"
      "same run.\n\n"
      "Examples:\n"
      "  triptych bench MODEL\n"
      "  triptych bench --shapes llava-1.5-7b --weights int8 --decode 16\n"
      "  triptych bench --shapes llava-1.5-13b --layers 8 --json\n"
      "  triptych bench --memory\n"
      "  triptych bench --limits";
  app.footer(footer);
  app.callback([flags, &action] { action = [flags] { return bench(*flags); }; });
}

}  // namespace triptych::cli
