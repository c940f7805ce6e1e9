// triptych inspect: what a checkpoint holds and what it will cost here.
#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "cli/json_output.h"
#include "engine/engine.h"
#include "engine/packed_directory.h"
#include "report/cost_model.h"
#include "report/machine.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

struct InspectFlags {
  ModelFlags model;
  ContextFlags context;
  bool tensors = false;
  bool json = false;
  bool verify = false;
};

// Memory and time of one sequence; only for models this build can run.
struct Estimate {
  std::int64_t context_tokens = 0;
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t weight_bytes = 0;  // used in place of the checkpoint's files
  std::int64_t private_bytes =
      0;  // quantized or converted copies, whose source is not kept, and small tables
  std::int64_t kv_bytes = 0;
  MachineLimits limits;
  double short_ms = 0;  // a token at the start of the context
  double full_ms = 0;   // a token when the context is full
  // What the two read at: memory, or the caches where they hold all that a token reads.
  double short_bytes_per_s = 0, full_bytes_per_s = 0;
};

Estimate make_estimate(const LoadedModel& model, const InspectFlags& flags) {
  Estimate out;
  const EngineOptions options = flags.context.engine_options();
  out.context_tokens =
      options.max_context_tokens > 0 ? options.max_context_tokens : model.info().max_context_tokens;
  const LanguageCost cost(model.model(), options.kv_cache_dtype.value_or(model.auto_kv_dtype()));
  out.kv_bytes_per_token = cost.kv_bytes_per_token();
  out.kv_bytes = out.kv_bytes_per_token * out.context_tokens;
  for (const auto& [name, size] : model.model().part_sizes().parts) {
    out.weight_bytes += size.mapped_bytes;
    out.private_bytes += size.owned_bytes;
  }
  out.limits = measure_limits(flags.model.n_threads).median;
  // What the caches hold from token to token is not read from memory again.
  const auto bound_ms = [&](const Cost& token) {
    MachineLimits limits = out.limits;
    if (token.bytes <= static_cast<double>(last_cache_bytes()))
      limits.read_bytes_per_s =
          std::max(limits.read_bytes_per_s,
                   measure_cached_reads(flags.model.n_threads, static_cast<std::size_t>(token.bytes)));
    return std::pair(roofline_seconds(token, limits) * 1000.0, limits.read_bytes_per_s);
  };
  std::tie(out.short_ms, out.short_bytes_per_s) = bound_ms(cost.decode(1));
  std::tie(out.full_ms, out.full_bytes_per_s) = bound_ms(cost.decode(out.context_tokens));
  return out;
}

struct Inspection {
  std::string architecture;
  std::string problem;  // why this build cannot run it; empty: it can
  std::unique_ptr<LoadedModel> model;
  std::optional<Estimate> estimate;
};

std::string architecture_of(const JsonView& config) {
  if (const auto list = config.find("architectures"); list && list->is_array())
    for (const JsonView& item : list->items()) return item.as_string();
  const auto type = config.find("model_type");
  return type && type->is_string() ? "model_type " + type->as_string() : "unknown";
}

struct DTypeShare {
  std::int64_t n_tensors = 0;
  std::int64_t n_elements = 0;
  std::int64_t bytes = 0;
};

std::map<std::string, DTypeShare> dtype_histogram(const WeightTable& weights) {
  std::map<std::string, DTypeShare> out;
  for (const WeightEntry& entry : weights) {
    DTypeShare& share = out[std::string(to_string(entry.view.dtype()))];
    ++share.n_tensors;
    share.n_elements += entry.view.numel();
    share.bytes += static_cast<std::int64_t>(entry.view.size_bytes());
  }
  return out;
}

// As --vision-activations has it.
const char* activations_word(const LoadedModel& model) {
  return model.has_static_vision_inputs() ? "static" : "dynamic";
}

std::vector<std::pair<const char*, std::optional<QuantFormat>>> parts_of(const WeightFormats& formats) {
  return {{"language", formats.language}, {"vision", formats.vision}, {"lm_head", formats.lm_head}};
}

JsonOut inspection_json(const Inspection& it, const Checkpoint& checkpoint, const InspectFlags& flags) {
  JsonOut out =
      json_document("inspect", {{"architecture", it.architecture}, {"supported", it.problem.empty()}});
  if (!it.problem.empty()) out["problem"] = it.problem;
  if (flags.verify) out["checksums"] = "sound";
  out["files"] = checkpoint.weight_files();
  out["weight_bytes"] = checkpoint.weights().total_bytes();
  for (const auto& [name, share] : dtype_histogram(checkpoint.weights()))
    out["dtypes"][name] = {
        {"tensors", share.n_tensors}, {"elements", share.n_elements}, {"bytes", share.bytes}};
  if (it.model) {
    const ModelInfo& info = it.model->info();
    out["family"] = info.family;
    for (const auto& [name, size] : it.model->model().part_sizes().parts)
      out["parts"][name] = {{"parameters", size.n_parameters},
                            {"read_bytes", size.read_bytes},
                            {"mapped_bytes", size.mapped_bytes},
                            {"private_bytes", size.owned_bytes}};
    if (const WeightFormats& formats = it.model->weight_formats(); formats.any()) {
      out["quantized"] = {{"stored", it.model->is_packed()}};
      for (const auto& [name, format] : parts_of(formats))
        out["quantized"][name] = format ? JsonOut(format->to_string()) : JsonOut();
      out["quantized"]["vision_activations"] = activations_word(*it.model);
    }
    out["language_model"] = {{"layers", info.n_layers},
                             {"hidden_size", info.hidden_size},
                             {"heads", info.n_heads},
                             {"kv_heads", info.n_kv_heads},
                             {"head_dim", info.head_dim},
                             {"vocab_size", info.vocab_size},
                             {"max_context_tokens", info.max_context_tokens}};
    const Estimate& e = *it.estimate;
    out["estimate"] = {{"context_tokens", e.context_tokens},
                       {"kv_bytes_per_token", e.kv_bytes_per_token},
                       {"memory_bytes", e.weight_bytes + e.private_bytes + e.kv_bytes},
                       {"read_bytes_per_s", e.limits.read_bytes_per_s},
                       {"fp32_flops_per_s", e.limits.fp32_flops_per_s},
                       {"read_bytes_per_s_first", e.short_bytes_per_s},
                       {"read_bytes_per_s_full_context", e.full_bytes_per_s},
                       {"instruction_set", to_string(active_isa())},
                       {"ms_per_token_first", e.short_ms},
                       {"ms_per_token_full_context", e.full_ms}};
  }
  if (flags.tensors) {
    out["tensors"] = JsonOut::array();
    for (const WeightEntry& entry : checkpoint.weights())
      out["tensors"].push_back({{"name", entry.name},
                                {"dtype", to_string(entry.view.dtype())},
                                {"shape", std::vector<std::int64_t>(entry.view.shape().dims().begin(),
                                                                    entry.view.shape().dims().end())},
                                {"file", entry.file}});
  }
  return out;
}

void print_model(const LoadedModel& model, const Estimate& e) {
  const ModelInfo& info = model.info();
  if (const WeightFormats& formats = model.weight_formats(); formats.any()) {
    std::printf("\n%s", model.is_packed() ? "stored quantized" : "quantized while loading");
    for (const auto& [name, format] : parts_of(formats))
      std::printf("%s %s %s", name == parts_of(formats).front().first ? ":" : ",", name,
                  format ? format->to_string().c_str() : "as stored");
    std::printf("\nactivations of the tower: %s\n", activations_word(model));
  }
  TextTable parts({{"part", Align::kLeft}, {"parameters"}, {"read per pass"}, {"in place"}, {"private"}});
  double n_parameters = 0;
  for (const auto& [name, size] : model.model().part_sizes().parts) {
    parts.add_row({name, format_count(static_cast<double>(size.n_parameters)),
                   format_bytes(static_cast<double>(size.read_bytes)),
                   format_bytes(static_cast<double>(size.mapped_bytes)),
                   format_bytes(static_cast<double>(size.owned_bytes))});
    n_parameters += static_cast<double>(size.n_parameters);
  }
  parts.add_row({"all", format_count(n_parameters), "", "", ""});
  std::printf("\n%s", parts.render().c_str());
  std::printf(
      "\nlanguage model   %d layers of width %lld, %d heads, %d key/value heads of %d, %lld rows of "
      "vocabulary, context %lld\n",
      info.n_layers, static_cast<long long>(info.hidden_size), info.n_heads, info.n_kv_heads, info.head_dim,
      static_cast<long long>(info.vocab_size), static_cast<long long>(info.max_context_tokens));
  std::printf("keys and values  %s per token, %s for %lld tokens\n",
              format_bytes(static_cast<double>(e.kv_bytes_per_token)).c_str(),
              format_bytes(static_cast<double>(e.kv_bytes)).c_str(),
              static_cast<long long>(e.context_tokens));
  std::printf(
      "memory           about %s: weights in place %s, private %s, keys and values; available here: %s\n",
      format_bytes(static_cast<double>(e.weight_bytes + e.private_bytes + e.kv_bytes)).c_str(),
      format_bytes(static_cast<double>(e.weight_bytes)).c_str(),
      format_bytes(static_cast<double>(e.private_bytes)).c_str(),
      format_bytes(static_cast<double>(available_memory_bytes())).c_str());
  const auto source = [&](double rate) -> std::string {
    return rate > e.limits.read_bytes_per_s ? "caches" : "memory";
  };
  std::string reads = format_bytes(e.short_bytes_per_s) + "/s read from " + source(e.short_bytes_per_s);
  if (source(e.short_bytes_per_s) != source(e.full_bytes_per_s))
    reads += " (" + format_bytes(e.full_bytes_per_s) + "/s from " + source(e.full_bytes_per_s) + ")";
  std::printf(
      "time per token   at least %s to %s (full context), from %s and %sFLOP/s measured now with %s on %d "
      "thread%s\n",
      format_ms(e.short_ms).c_str(), format_ms(e.full_ms).c_str(), reads.c_str(),
      format_count(e.limits.fp32_flops_per_s).c_str(), std::string(to_string(active_isa())).c_str(),
      e.limits.n_threads, e.limits.n_threads == 1 ? "" : "s");
}

void print_inspection(const Inspection& it, const Checkpoint& checkpoint, const InspectFlags& flags) {
  std::printf("architecture     %s%s\n", one_line(it.architecture).c_str(),
              it.problem.empty() ? "" : " (cannot be run)");
  if (!it.problem.empty()) std::printf("problem          %s\n", one_line(it.problem).c_str());
  std::printf("weights          %zu tensors, %s in %zu file%s\n\n", checkpoint.weights().size(),
              format_bytes(static_cast<double>(checkpoint.weights().total_bytes())).c_str(),
              checkpoint.weight_files().size(), checkpoint.weight_files().size() == 1 ? "" : "s");
  TextTable types({{"type", Align::kLeft}, {"tensors"}, {"elements"}, {"bytes"}});
  for (const auto& [name, share] : dtype_histogram(checkpoint.weights()))
    types.add_row({name, std::to_string(share.n_tensors), format_count(static_cast<double>(share.n_elements)),
                   format_bytes(static_cast<double>(share.bytes))});
  std::fputs(types.render().c_str(), stdout);
  if (it.model) print_model(*it.model, *it.estimate);
  if (!flags.tensors) return;
  TextTable tensors(
      {{"tensor", Align::kLeft}, {"type", Align::kLeft}, {"shape", Align::kLeft}, {"file", Align::kLeft}});
  for (const WeightEntry& entry : checkpoint.weights())
    tensors.add_row({one_line(entry.name), std::string(to_string(entry.view.dtype())),
                     to_string(entry.view.shape()), entry.file});
  std::printf("\n%s", tensors.render().c_str());
}

int inspect(const InspectFlags& flags) {
  const LoadOptions load = flags.model.load_options();
  CheckpointOptions options;
  options.links = load.links;
  const Checkpoint checkpoint = [&] {
    try {
      return Checkpoint::open(flags.model.model, options);
    } catch (const Error&) {
      // Without weights a directory still says whether it would run: an architecture that is not supported
      // comes first.
      CheckpointOptions config_only = options;
      config_only.load_weights = false;
      ModelRegistry::global().find(Checkpoint::open(flags.model.model, config_only).config_view());
      throw;
    }
  }();
  if (flags.verify) {
    if (!is_packed_directory(checkpoint.config()))
      fail(ErrorCode::kInvalidArgument, "--verify: {} holds no checksums; directories of triptych convert do",
           flags.model.model);
    ThreadPool pool(flags.model.n_threads);
    check_packed_weights(checkpoint, pool);
    if (!flags.json) std::printf("checksums        all %zu tensors are sound\n", checkpoint.weights().size());
  }
  Inspection it;
  it.architecture = architecture_of(checkpoint.config_view());
  try {
    it.model = flags.model.open();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal || error.code() == ErrorCode::kOutOfMemory) throw;
    it.problem = error.what();
  }
  if (it.model) {
    flags.context.check(it.model->info().max_context_tokens);
    it.estimate = make_estimate(*it.model, flags);
  }
  if (flags.json) {
    print_json(inspection_json(it, checkpoint, flags));
  } else {
    print_inspection(it, checkpoint, flags);
  }
  return it.problem.empty() ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_inspect_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App& app =
      *program.add_subcommand("inspect", "Show what a checkpoint holds and what it costs on this machine");
  flags->model.add_to(app);
  flags->context.add_to(app);
  app.add_flag("--tensors", flags->tensors, "List every tensor");
  app.add_flag("--verify", flags->verify, "Read a converted checkpoint whole and compare its checksums");
  add_json_flag(app, flags->json, "Print one JSON object instead of tables");
  show_first(app, {"weights", "ctx-size", "tensors", "verify", "json"});
  app.footer(
      "Times are lower bounds: bytes and operations of a token over the speeds measured now. Exit code 1: "
      "the files are\n"
      "sound, but this build cannot run the model.\n\n"
      "Examples:\n"
      "  triptych inspect MODEL\n"
      "  triptych inspect MODEL --tensors --ctx-size 2048\n"
      "  triptych inspect MODEL --json | jq .parts");
  app.callback([flags, &action] { action = [flags] { return inspect(*flags); }; });
}

}  // namespace triptych::cli
