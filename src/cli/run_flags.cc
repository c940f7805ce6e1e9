#include "cli/run_flags.h"

#include <algorithm>
#include <limits>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/help_tree.h"
#include "cli/input_file.h"
#include "cli/output_file.h"

namespace triptych::cli {
namespace {

constexpr const char* kBatchGroup = "Many questions";

void check_draw(const RunFlags& flags) {
  if (!flags.draw) return;
  if (flags.interactive) fail(ErrorCode::kInvalidArgument, "--draw needs --prompt: it is for one answer");
  if (flags.images.empty()) fail(ErrorCode::kInvalidArgument, "--draw needs a picture to draw on (--image)");
  std::vector<NamedPath> others = flags.inputs();
  if (flags.profile.trace_out) others.push_back({"--trace-out", *flags.profile.trace_out});
  check_output("--draw", *flags.draw, others);
}

// The first flag given that speaks of videos; null: none.
const char* video_flag(const api::VideoOptions& options) {
  return options.frames_per_s          ? "--fps"
         : options.max_frames          ? "--max-frames"
         : options.source_frames_per_s ? "--video-fps"
                                       : nullptr;
}

// stdin can be read once.
void check_stdin(const RunFlags& flags) {
  const auto n_pictures = std::count_if(flags.images.begin(), flags.images.end(), is_stdin);
  if (n_pictures > 1) fail(ErrorCode::kInvalidArgument, "--image - can be given once");
  if (n_pictures == 0) return;
  if (flags.interactive)
    fail(ErrorCode::kInvalidArgument, "--image - reads the picture from stdin, so --prompt is needed");
  if (flags.prompt.reads_stdin())
    fail(ErrorCode::kInvalidArgument, "--image - and the question cannot both come from stdin");
}

// The lines say all that is asked.
void check_batch(const RunFlags& flags) {
  const auto refuse = [](const char* flag, bool given) {
    if (given)
      fail(ErrorCode::kInvalidArgument, "{} does not go with --jsonl: its lines say what is asked", flag);
  };
  refuse("--image", !flags.images.empty());
  refuse("--video", !flags.videos.empty());
  refuse("--prompt", flags.prompt.is_given());
  refuse("--interactive", flags.interactive);
  refuse("--draw", flags.draw.has_value());
  refuse("--profile", flags.profile.profile);
  const auto& [in, out] = flags.jsonl;
  std::vector<NamedPath> inputs = flags.inputs();
  if (in != "-") inputs.push_back({"IN of --jsonl", in});
  if (out != "-") check_output("--jsonl", out, inputs);
}

void add_media_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("--image", flags.images,
                 "A picture: PNG, JPEG, WebP, GIF, TIFF, BMP or PNM; - is stdin; may be repeated")
      ->expected(1)
      ->take_all()
      ->type_name("FILE");
  flags.prompt.add_to(app, "The question; - reads it from stdin; without it a chat begins");
  const auto add_video = [&](const char* name, auto& to, const char* description) {
    return app.add_option(name, to, description)->group(help_group::kMedia);
  };
  add_video("--video", flags.videos,
            "A video: a folder of frames in the order of their names, an animated GIF or WebP, or one "
            "picture; may be repeated; pictures and videos keep the order given")
      ->expected(1)
      ->take_all()
      ->type_name("PATH");
  add_video("--fps", flags.video.frames_per_s, "Frames a second to take of a video")
      ->check(CLI::Range(1e-6, 1e6).description(""))
      ->type_name("F")
      ->default_str("the model's, 2 as a rule");
  add_video("--max-frames", flags.video.max_frames, "Most frames to take of a video")
      ->check(CLI::Range(1, 1 << 20).description(""))
      ->type_name("N")
      ->default_str("the model's");
  add_video("--video-fps", flags.video.source_frames_per_s,
            "Frames a second that a folder's frames were taken at, or an animation plays at instead of its "
            "own delays")
      ->check(CLI::Range(1e-6, 1e6).description(""))
      ->type_name("F")
      ->default_str("of a folder all frames are taken, as sampled already");
  flags.media.add_to(app);
  flags.media.add_image_tokens_to(app);
  flags.pictures.add_to(app);
}

void add_batch_flags(CLI::App& app, RunFlags& flags) {
  app.add_option(
         "--jsonl", flags.jsonl,
         "Answer every line of IN, {\"prompt\": ..., \"images\": [...]}, in a line of OUT; lines that "
         "OUT has already are left out (docs/json.md)")
      ->type_name("IN OUT")
      ->group(kBatchGroup);
  app.add_option("--max-num-seqs,--batch", flags.batch, "Questions answered at once")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N")
      ->capture_default_str()
      ->group(kBatchGroup);
  flags.scheduler.add_to(app, kBatchGroup);
}

}  // namespace

void RunFlags::add_to(CLI::App& app) {
  add_media_flags(app, *this);
  sampling.add_to(app);
  constraint.add_to(app);
  model.add_to(app);
  app.add_flag("--interactive,-i", interactive, "Chat: read messages line by line");
  app.add_option("--system", system, "System prompt")->type_name("TEXT");
  add_batch_flags(app, *this);
  context.add_to(app);
  prefix_cache.add_to(app, help_group::kContext, "; without either in chats only");
  visual_cache.add_to(app);
  add_enforce_eager(app, replay_steps);
  speculation.add_to(app);
  add_json_flag(app, json, "Print one JSON object (in a chat one line per answer) instead of text");
  app.add_option("--draw", draw, "Draw the boxes and points that the answer names on its picture, as PNG")
      ->type_name("FILE")
      ->group(help_group::kOutput);
  profile.add_to(app);
  show_first(app, {"image", "prompt", "max-tokens", "temperature", "weights"});
}

// The order in which --image and --video were given, each with its argument.
void RunFlags::take_media_order(const CLI::App& app) {
  std::size_t n_images = 0;
  std::size_t n_videos = 0;
  for (const CLI::Option* option : app.parse_order()) {
    if (option->check_lname("image") && n_images < images.size())
      media_files.push_back({false, images[n_images++]});
    if (option->check_lname("video") && n_videos < videos.size())
      media_files.push_back({true, videos[n_videos++]});
  }
}

void RunFlags::check() {
  if (is_batch()) {
    check_batch(*this);
  } else if (!prompt.is_given()) {
    interactive = true;
  } else if (interactive) {
    fail(ErrorCode::kInvalidArgument, "--prompt and --interactive exclude each other");
  }
  check_stdin(*this);
  check_draw(*this);
  sampling.check();
  speculation.check();
  if (interactive && sampling.n_sequences() > 1)
    fail(ErrorCode::kInvalidArgument, "{} needs --prompt: a chat goes on with one answer",
         sampling.n ? "--n" : "--best-of");
  media.check_values();
  // In a chat a video may come later, and lines of a batch name theirs.
  const char* flag = video_flag(video);
  if (flag != nullptr && videos.empty() && !interactive && !is_batch())
    fail(ErrorCode::kInvalidArgument, "{} needs a video to sample (--video)", flag);
}

void RunFlags::check(const api::Model& loaded) const {
  media.check(loaded.architecture(), loaded.takes_pixel_limits());
  context.check(loaded.max_context_tokens());
  if (const char* flag = video_flag(video); flag != nullptr && !loaded.takes_videos())
    fail(ErrorCode::kUnsupported, "{}: {} does not take videos", flag, loaded.architecture());
  if (draw && !loaded.names_regions())
    fail(ErrorCode::kUnsupported, "--draw: answers of {} name no boxes", loaded.architecture());
}

std::vector<NamedPath> RunFlags::inputs() const {
  std::vector<NamedPath> out = model.inputs();
  for (const MediaArgument& file : media_files)
    out.push_back({file.is_video ? "--video" : "--image", file.name});
  if (!prompt.prompt_file.empty()) out.push_back({"--prompt-file", prompt.prompt_file});
  for (NamedPath& file : constraint.inputs()) out.push_back(std::move(file));
  return out;
}

api::EngineOptions RunFlags::engine_options() const {
  api::EngineOptions out{.max_context_tokens = context.ctx_size_tokens,
                         .max_sequences = std::max(8, sampling.n_sequences()),
                         .kv_cache_dtype = context.kv_cache_dtype,
                         .replay_steps = replay_steps,
                         .prefix_cache_bytes = prefix_cache.bytes(interactive),
                         .speculation = speculation.options};
  scheduler.fill(out);
  visual_cache.apply_to(out);
  return out;
}

}  // namespace triptych::cli
