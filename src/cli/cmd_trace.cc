// triptych trace: everything a prompt passes through, as a safetensors file.
#include <cstdio>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "cli/json_output.h"
#include "cli/output_file.h"
#include "cli/picture_file.h"
#include "cli/prompt_flags.h"
#include "engine/engine.h"
#include "evaluation/tap_recorder.h"
#include "evaluation/trace_shape.h"
#include "io/safetensors.h"
#include "media/image.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

constexpr KvDType kKvDType = KvDType::kF32;  // unless asked for another: values to compare with

struct TraceFlags {
  ModelFlags model;
  ContextFlags context;
  MediaFlags media;
  PictureFlags pictures;
  PromptFlags prompt;
  std::vector<std::string> images;
  std::string system, out;
  bool json = false;
};

ChatRequest make_request(const TraceFlags& flags) {
  ChatRequest out;
  if (!flags.system.empty()) out.messages.push_back(ChatMessage::text("system", flags.system));
  ChatMessage message;
  message.role = "user";
  for (const std::string& name : flags.images) {
    message.parts.push_back({ContentPart::Kind::kImage, ""});
    out.media.push_back(
        {.frames = {read_picture(name, flags.pictures)}, .is_video = false, .frames_per_s = 0});
  }
  message.parts.push_back({ContentPart::Kind::kText, flags.prompt.read()});
  out.messages.push_back(std::move(message));
  out.media_options = flags.media.inner_options();
  return out;
}

int trace(const TraceFlags& flags) {
  std::vector<NamedPath> inputs = flags.model.inputs();
  for (const std::string& name : flags.images) inputs.push_back({"--image", name});
  check_output("--out", flags.out, inputs);
  if (!flags.prompt.is_given()) fail(ErrorCode::kInvalidArgument, "--prompt or --prompt-file is required");
  flags.media.check_values();
  const ChatRequest chat = make_request(flags);
  const auto model = flags.model.open();
  flags.media.check(model->info().architecture, model->info().takes_pixel_limits);
  flags.context.check(model->info().max_context_tokens);
  const PreparedRequest request = model->prepare(chat);
  const auto n_tokens = static_cast<std::int64_t>(request.layout.input_ids.size());

  std::vector<NamedTensor> tensors;
  const Tensor ids(DType::kI64, {1, n_tokens});
  for (std::int64_t i = 0; i < n_tokens; ++i)
    ids.view().as<std::int64_t>()[i] = request.layout.input_ids[static_cast<std::size_t>(i)];
  tensors.push_back({"input_ids", ids});
  std::vector<Tensor> pixels;
  if (!request.media.empty()) pixels = batch_pixels(request.media);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    tensors.push_back({pixels.size() == 1 ? "pixel_values" : fmt::format("pixel_values.{}", i), pixels[i]});

  Engine engine(*model, flags.context.engine_options(kKvDType));
  TapRecorder recorder;
  const TensorView logits = engine.forward_prompt(request, &recorder);
  const std::int64_t n_pictures = n_stacked_pictures(request.media);
  for (TapRecorder::Tap& tap : recorder.taps())
    tensors.push_back(
        {"tap." + tap.name, tap.view().reshape(batched_shape(tap.n_rows, tap.width, n_tokens, n_pictures))});
  tensors.push_back({"logits", logits});
  with_flag("--out", [&] {
    write_safetensors(output_path(flags.out), tensors,
                      {{"prompt", request.prompt}, {"model", model->info().architecture}});
  });

  if (flags.json) {
    JsonOut out = json_document("trace", {{"file", flags.out}, {"tensors", JsonOut::array()}});
    for (const NamedTensor& tensor : tensors) {
      const auto dims = tensor.view.shape().dims();
      out["tensors"].push_back({{"name", tensor.name},
                                {"dtype", to_string(tensor.view.dtype())},
                                {"shape", std::vector<std::int64_t>(dims.begin(), dims.end())}});
    }
    print_json(out);
    return kExitOk;
  }
  TextTable table({{"tensor", Align::kLeft}, {"shape", Align::kLeft}});
  for (const NamedTensor& tensor : tensors) table.add_row({tensor.name, to_string(tensor.view.shape())});
  std::fputs(table.render().c_str(), stdout);
  std::printf("%zu tensors in %s\n", tensors.size(), flags.out.c_str());
  return kExitOk;
}

}  // namespace

void add_trace_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<TraceFlags>();
  CLI::App& app = *program.add_subcommand("trace", "Write all intermediate values of a prompt to a file");
  flags->model.add_to(app);
  app.add_option("--image", flags->images, "A picture; - is stdin; may be repeated")
      ->expected(1)
      ->take_all()
      ->type_name("FILE");
  flags->prompt.add_to(app, "The question; - reads it from stdin");
  app.add_option("--system", flags->system, "System prompt")->type_name("TEXT");
  app.add_option("--out,-o", flags->out, "Safetensors file to write")->required()->type_name("FILE");
  flags->media.add_to(app);
  flags->pictures.add_to(app);
  flags->context.add_to(app, kKvDType);
  add_json_flag(app, flags->json, "Print one JSON object instead of a table");
  show_first(app, {"image", "prompt", "out", "weights", "json"});
  app.footer(
      "Writes input_ids [1, T], pixel_values, logits [T, V], and under tap.<name> the output of every part "
      "that the\n"
      "reference implementation gives that module name.\n\n"
      "Examples:\n"
      "  triptych trace MODEL --image photo.jpg --prompt \"What is it?\" --out trace.safetensors");
  app.callback([flags, &action] { action = [flags] { return trace(*flags); }; });
}

}  // namespace triptych::cli
